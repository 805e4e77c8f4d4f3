// Encodes the kept messages for a worker that knows nothing of the session.
//
// They have the numbers 1, 2, 3, ... there. Graphs get new ids, and repeats
// become full runs. A storage has the versions that the program knows: where
// messages in between are left out, CreateStorage.version leaves their versions
// out, too.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "client_lib/session/device/answers/answer_table.h"
#include "client_lib/session/device/replica/copies.h"
#include "client_lib/session/device/replica/replica.h"
#include "client_lib/session/device/replica/replica_state.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/hash/hash.h"

namespace djinn::replica {
namespace {

using Node = Lineage::Node;

class Replayer {
 public:
  explicit Replayer(State& r) ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu)
      : state_(r),
        encoder_(r.sender.encoder),
        lineage_(*r.connection.lineage),
        recovery_(r.connection.recovery),
        inline_bytes_(r.connection.limits.inline_bytes()),
        max_graphs_(r.connection.limits.max_graphs()),
        had_session_(r.connection.recovery.former_workers.contains(
            r.connection.lease.worker_id())) {}

  absl::StatusOr<Replay> Encode() {
    for (Node& node : lineage_.nodes()) {
      for (const Lineage::Use& use : node.uses) last_use_[use.storage] = &node;
    }
    lineage_.BeginAnew();
    const std::list<Node>& nodes = lineage_.nodes();
    for (auto next = lineage_.nodes().begin(); next != nodes.end();) {
      Node& node = *next++;
      if (KeptOf(node) == nullptr) {
        return absl::FailedPreconditionError("a message was not kept");
      }
      // The anchors of a node's values follow it.
      anchors_ = {next, std::find_if(next, lineage_.nodes().end(),
                                     [](const Node& n) { return !n.anchor; })};
      DJINN_RETURN_IF_ERROR(Encode(&node));
      FreeUnused(node);
    }
    for (const auto& [id, model] : recovery_.models) EncodeModel(model);
    AskAgain();
    // No node may go while the loop visits them.
    for (const uint64_t sequence : answered_) lineage_.Answered(sequence);
    return std::move(replay_);
  }

 private:
  EncodedMessage& Add(uint32_t lane,
                      std::shared_ptr<v1::ControlRequest> request) {
    return encoder_.EncodeAgain(lane, std::move(request), &replay_.messages);
  }

  // Adds the node's own message.
  void AddFor(Node* node, std::shared_ptr<v1::ControlRequest> request) {
    if (node->executed) ++replay_.count;
    const KeptMessage& kept = *KeptOf(*node);
    EncodedMessage& message = Add(kept.lane, std::move(request));
    message.ends_work = kept.ends_work && !node->executed;
    message.sites = kept.extras().sites;
    if (!node->executed || node->awaits_answer) {
      message.registration = kept.extras().registration;
    }
    lineage_.Resent(node, message.request->ordered().sequence());
  }

  // Creates the storage with this version, or takes it from `from` to it. Its
  // contents do not matter.
  void SetVersion(const Lineage::Use& use, uint64_t from, uint64_t version) {
    auto request = std::make_shared<v1::ControlRequest>();
    v1::CreateStorage* const create =
        request->mutable_ordered()->mutable_create_storage();
    create->set_storage(use.storage);
    create->set_base_version(from);
    create->set_size_bytes(use.size_bytes);
    create->set_version(version);
    Add(0, std::move(request));
    versions_[use.storage] = version;
  }

  // Adds a message without an effect in place of the node's own, because
  // threads of the program wait until the worker has executed it. Returns the
  // thread that waited for the node's answer.
  Registration AddEmpty(Node* node) {
    auto request = std::make_shared<v1::ControlRequest>();
    request->mutable_ordered()->mutable_free();
    AddFor(node, std::move(request));
    return std::exchange(replay_.messages.back().registration, {});
  }

  absl::Status Encode(Node* node) {
    const KeptMessage& kept = *KeptOf(*node);
    if (kept.extras().copy != nullptr && !node->error.ok()) {
      LeaveOutFetch(node);
      return absl::OkStatus();
    }
    if (kept.run != nullptr && node->suspicion >= RecoveryState::kGivenUp) {
      LeaveOut(node);
      return absl::OkStatus();
    }
    if (kept.run != nullptr) {
      DJINN_RETURN_IF_ERROR(EncodeRun(node, *kept.run));
    } else {
      DJINN_RETURN_IF_ERROR(EncodeOther(node, kept));
    }
    for (const KeptMessage::Seen& seen : kept.extras().seen) {
      if (!node->error.ok()) break;
      EncodeCheck(node, seen);
    }
    return absl::OkStatus();
  }

  // Returns whether an anchor of the node that is being encoded has the value.
  bool IsAnchored(uint64_t storage, uint64_t version) const {
    return std::any_of(anchors_.first, anchors_.second,
                       [&](const Node& anchor) {
                         const Lineage::Use& value = anchor.uses.front();
                         return value.storage == storage &&
                                value.base_version + value.writes == version;
                       });
  }

  // Makes the versions right without the run. Its values must not be shown,
  // except those that anchors install.
  void LeaveOut(Node* node) {
    for (const Lineage::Use& use : node->uses) {
      const uint64_t version = use.base_version + use.writes;
      if (IsAnchored(use.storage, version)) continue;
      const uint64_t now = versions_[use.storage];
      if (now < version) SetVersion(use, now, version);
    }
    std::vector<uint64_t> freed;
    for (const uint32_t slot : KeptOf(*node)->run->final_slots) {
      freed.push_back(node->uses[slot].storage);
    }
    Free(freed);
    const Registration waiting = AddEmpty(node);
    if (const auto* const wait =
            std::get_if<std::shared_ptr<MetadataWait>>(&waiting)) {
      (*wait)->error = node->error;
      (*wait)->done = true;
      (*wait)->changed.SignalAll();
      answered_.push_back(node->sequence);
    }
  }

  // Makes the version right without the value, which no other device has.
  void LeaveOutFetch(Node* node) {
    const Lineage::Use& use = node->uses.front();
    const uint64_t version = use.base_version + use.writes;
    const uint64_t now = versions_[use.storage];
    if (now < version) SetVersion(use, now, version);
    AddEmpty(node);
  }

  absl::Status EncodeRun(Node* node, const KeptRun& kept) {
    for (const Lineage::Use& use : node->uses) {
      const uint64_t now = versions_[use.storage];
      if (now == use.base_version) continue;
      if (use.depends() || now > use.base_version) return Inconsistent(use);
      SetVersion(use, now, use.base_version);
    }
    const uint64_t graph = Define(KeptOf(*node)->lane, kept.graph);
    auto request = std::make_shared<v1::ControlRequest>();
    v1::Run* const run = request->mutable_ordered()->mutable_run();
    run->set_graph_id(graph);
    for (const Lineage::Use& use : node->uses) {
      v1::Binding* const binding = run->add_bindings();
      binding->set_storage(use.storage);
      binding->set_base_version(use.base_version);
      binding->set_writes(use.writes);
      binding->set_reads(use.reads);
      versions_[use.storage] = use.base_version + use.writes;
    }
    run->mutable_float_holes()->Add(kept.floats.begin(), kept.floats.end());
    for (const std::string& value : kept.scalar_tensors) {
      run->add_scalar_tensors(value);
    }
    run->mutable_final_slots()->Add(kept.final_slots.begin(),
                                    kept.final_slots.end());
    RunEncoder::FillMode(kept.mode, run);
    run->set_size(kept.size);
    run->set_reply_metadata(kept.reply_metadata);
    for (const uint32_t slot : kept.final_slots) {
      versions_.erase(node->uses[slot].storage);
    }
    AddFor(node, std::move(request));
    if (kept.reply_metadata && !node->awaits_answer) {
      // The program has the metadata, and nobody waits for it.
      auto wait = std::make_shared<MetadataWait>();
      if (const auto* const before = std::get_if<std::shared_ptr<MetadataWait>>(
              &KeptOf(*node)->extras().registration)) {
        wait->expected = (*before)->expected;
      }
      replay_.messages.back().registration = std::move(wait);
      if (KeptOf(*node)->extras().metadata.has_value()) {
        Lineage::Hold(node);
        recovery_.metadata_checks[node->sequence] = node;
      }
    }
    return absl::OkStatus();
  }

  absl::Status EncodeOther(Node* node, const KeptMessage& kept) {
    auto request = std::make_shared<v1::ControlRequest>(*kept.request);
    request->clear_acknowledged_reply();
    v1::Ordered* const ordered = request->mutable_ordered();
    switch (ordered->action_case()) {
      case v1::Ordered::kInstall:
        return EncodeInstall(node, kept, std::move(request));
      case v1::Ordered::kCreateStorage: {
        const Lineage::Use& use = node->uses.front();
        const uint64_t now = versions_[use.storage];
        if (now != use.base_version) {
          if (use.depends() || now > use.base_version) return Inconsistent(use);
          SetVersion(use, now, use.base_version);
        }
        versions_[use.storage] = use.base_version + 1;
        break;
      }
      case v1::Ordered::kRead:
        if (!node->awaits_answer) {
          // The program has the value, and its destination may be gone.
          AddEmpty(node);
          return absl::OkStatus();
        }
        if (versions_[node->uses.front().storage] !=
            node->uses.front().base_version) {
          return Inconsistent(node->uses.front());
        }
        ResetRead(kept);
        break;
      case v1::Ordered::kOffer:
        // The device that was to fetch it asks for another offer
        // (CheckSources()).
        AddEmpty(node);
        return absl::OkStatus();
      default:
        break;
    }
    AddFor(node, std::move(request));
    return absl::OkStatus();
  }

  absl::Status EncodeInstall(Node* node, const KeptMessage& kept,
                             std::shared_ptr<v1::ControlRequest> request) {
    const Lineage::Use& use = node->uses.front();
    v1::Install* const install = request->mutable_ordered()->mutable_install();
    const uint64_t now = versions_[use.storage];
    const uint64_t after = use.base_version + use.writes;
    // The message that produced the version is sent again, too.
    if (node->anchor && now == after) return absl::OkStatus();
    if (now > use.base_version) return Inconsistent(use);
    if (install->has_copy()) {
      const Lineage::Use& copied = node->uses[1];
      if (versions_[copied.storage] != copied.base_version) {
        return Inconsistent(copied);
      }
    }
    if (use.generator && now == 0 && !install->has_seed()) {
      return EncodeGenerator(node, std::move(request));
    }
    // It replaces the whole contents, whatever version they have.
    install->set_base_version(now);
    versions_[use.storage] = now + 1;
    if (install->has_content() && install->content().size() <= inline_bytes_) {
      std::string bytes = std::move(*install->mutable_content());
      install->set_inline_value(std::move(bytes));
    }
    KeptBytes source = kept.extras().source;
    if (install->has_content() && node->executed && had_session_) {
      source.memory = AskFirst(kept, install);
    }
    // No thread of the program has the bytes any more.
    const bool orphaned =
        install->has_transfer() && (node->executed || IsOver(kept));
    if (install->has_transfer()) {
      install->mutable_transfer()->set_provable(source.any() || !orphaned);
    }
    if (orphaned) {
      // The thread that uploaded it may still be about to forget the old id.
      install->mutable_transfer()->set_transfer_id(encoder_.NextTransferId());
    }
    AddFor(node, std::move(request));
    if (kept.extras().copy != nullptr) {
      recovery_.fetches.emplace_back(node->sequence, kept.extras().copy);
    }
    EncodedMessage& message = replay_.messages.back();
    if (std::holds_alternative<InlinedUpload>(message.registration)) {
      message.registration = {};
    }
    if (orphaned) {
      auto wait = std::make_shared<UploadWait>();
      wait->uploaded_before = true;
      message.registration = wait;
      replay_.uploads.emplace_back(std::move(wait), std::move(source));
    }
    if (now + 1 != after) SetVersion(use, now + 1, after);
    const auto copy = recovery_.kept_copies.find(use.storage);
    if (copy != recovery_.kept_copies.end()) {
      OfferCopy(use.storage, after, *copy->second);
    }
    return absl::OkStatus();
  }

  // Offers the copy to the devices that asked for it, or may ask. They may
  // fetch it before what follows is executed, which may wait for them.
  void OfferCopy(uint64_t storage, uint64_t version,
                 const std::atomic<uint64_t>& needed) {
    const uint64_t now = needed.load(std::memory_order_acquire);
    auto asked = recovery_.asked_offers.extract(storage);
    // A device that has lost its worker since asks again. It must find this
    // offer then, because a further one would be behind what this device
    // fetches.
    if (!asked.empty() && asked.mapped().needed == now) {
      return AddOffer(storage, version, asked.mapped().ticket);
    }
    if (now == 0) return;
    std::string ticket = NewOffer(state_).ticket;
    AddOffer(storage, version, ticket);
    recovery_.spare_offers[storage] = std::move(ticket);
  }

  void AddOffer(uint64_t storage, uint64_t version, const std::string& ticket) {
    auto request = std::make_shared<v1::ControlRequest>();
    v1::Offer* const offer = request->mutable_ordered()->mutable_offer();
    offer->set_storage(storage);
    offer->set_version(version);
    offer->set_ticket(ticket);
    Add(0, std::move(request));
    recovery_.replayed_offers.insert(storage);
  }

  // Makes an eager upload ask by hash whether the worker has the bytes on disk.
  // Returns the bytes.
  static SharedBytes AskFirst(const KeptMessage& kept, v1::Install* install) {
    const std::string& bytes = kept.request->ordered().install().content();
    const ContentHash hash = HashContent(bytes.data(), bytes.size());
    v1::Transfer* const transfer = install->mutable_transfer();
    transfer->set_size_bytes(bytes.size());
    transfer->set_hash_high(hash.high);
    transfer->set_hash_low(hash.low);
    return {bytes, kept.request};
  }

  // Returns whether no thread of the program uploads the bytes, because it has
  // done so or because the upload was eager.
  static bool IsOver(const KeptMessage& kept) {
    const auto* const wait =
        std::get_if<std::shared_ptr<UploadWait>>(&kept.extras().registration);
    return wait == nullptr || (*wait)->state == UploadWait::State::kOver;
  }

  // Installs a generator's state. Only a seed makes a storage a generator.
  absl::Status EncodeGenerator(Node* node,
                               std::shared_ptr<v1::ControlRequest> request) {
    const Lineage::Use& use = node->uses.front();
    const uint64_t after = use.base_version + use.writes;
    // The program seeded it before.
    if (after < 2) return Inconsistent(use);
    auto seed = std::make_shared<v1::ControlRequest>();
    v1::Install* const first = seed->mutable_ordered()->mutable_install();
    first->set_storage(use.storage);
    first->mutable_seed();
    Add(0, std::move(seed));
    request->mutable_ordered()->mutable_install()->set_base_version(1);
    versions_[use.storage] = 2;
    AddFor(node, std::move(request));
    if (after > 2) SetVersion(use, 2, after);
    return absl::OkStatus();
  }

  static void ResetRead(const KeptMessage& kept) {
    const auto* const wait =
        std::get_if<std::shared_ptr<ReadWait>>(&kept.extras().registration);
    if (wait == nullptr) return;
    (*wait)->announced = false;
    (*wait)->reply_number = 0;
  }

  // Reads a value that the program has seen.
  void EncodeCheck(Node* node, const KeptMessage::Seen& seen) {
    auto request = std::make_shared<v1::ControlRequest>();
    *request->mutable_ordered()->mutable_read() = seen.read;
    const auto now = versions_.find(seen.read.storage());
    // The run freed it.
    if (now == versions_.end() || now->second != seen.read.version()) return;
    const EncodedMessage& message = Add(0, std::move(request));
    Lineage::Hold(node);
    recovery_.checks[message.request->ordered().sequence()] = {node, seen.hash};
  }

  uint64_t Define(uint32_t lane,
                  const std::shared_ptr<const GraphDefinition>& graph) {
    if (const auto found = graphs_.find(graph.get()); found != graphs_.end()) {
      return found->second;
    }
    GraphTable& table = encoder_.graphs();
    auto request = std::make_shared<v1::ControlRequest>();
    v1::DefineGraph* const define =
        request->mutable_ordered()->mutable_define_graph();
    // It was made by SerializeAsString().
    (void)define->ParseFromString(graph->message);
    if (graphs_.size() >= max_graphs_) {
      for (const uint64_t id : table.Unsaid()) define->add_forget_ids(id);
      graphs_.clear();
    }
    const bool forgets = define->forget_ids_size() > 0;
    EncodedMessage& message = Add(lane, std::move(request));
    if (forgets) table.SaidIn(message.request->ordered().sequence());
    const uint64_t id = table.AddPassing(graph);
    define->set_graph_id(id);
    message.registration = DefinedGraph{id, graph->fingerprint};
    return graphs_[graph.get()] = id;
  }

  void Free(const std::vector<uint64_t>& storages) {
    if (storages.empty()) return;
    auto request = std::make_shared<v1::ControlRequest>();
    request->mutable_ordered()->mutable_free()->mutable_storages()->Add(
        storages.begin(), storages.end());
    Add(0, std::move(request));
    for (const uint64_t storage : storages) versions_.erase(storage);
  }

  // Frees the storages that the program released and that nothing uses any
  // more.
  void FreeUnused(const Node& node) {
    std::vector<uint64_t> unused;
    for (const Lineage::Use& use : node.uses) {
      if (lineage_.IsLive(use.storage) || last_use_[use.storage] != &node ||
          !versions_.contains(use.storage)) {
        continue;
      }
      unused.push_back(use.storage);
    }
    Free(unused);
  }

  void EncodeModel(v1::RegisterModel model) {
    google::protobuf::RepeatedField<uint64_t> storages;
    storages.Swap(model.mutable_storages());
    for (const uint64_t storage : storages) {
      if (versions_.contains(storage)) model.add_storages(storage);
    }
    if (model.storages().empty()) return;
    auto wait = std::make_shared<ModelWait>();
    auto& waiting = recovery_.unanswered.models;
    const auto found = absl::c_find_if(waiting, [&](const auto& other) {
      return other->model_id == model.model_id();
    });
    if (found != waiting.end()) {
      wait = std::move(*found);
      waiting.erase(found);
    }
    auto request = std::make_shared<v1::ControlRequest>();
    *request->mutable_ordered()->mutable_register_model() = std::move(model);
    Add(0, std::move(request)).registration = std::move(wait);
  }

  // Asks for what the lost worker did not answer, and no other message asks.
  void AskAgain() {
    for (auto& wait : recovery_.unanswered.meters) {
      auto request = std::make_shared<v1::ControlRequest>();
      request->mutable_ordered()->mutable_meter();
      Add(0, std::move(request)).registration = std::move(wait);
    }
    // All storages of these models are gone, so that no answer comes.
    for (const auto& wait : recovery_.unanswered.models) {
      wait->done = true;
      wait->changed.SignalAll();
    }
    recovery_.unanswered = {};
  }

  absl::Status Inconsistent(const Lineage::Use& use) {
    return absl::FailedPreconditionError(
        absl::StrCat("storage ", use.storage, " has version ",
                     versions_[use.storage], ", not ", use.base_version));
  }

  State& state_;
  WorkEncoder& encoder_;
  Lineage& lineage_;
  RecoveryState& recovery_;
  const uint64_t inline_bytes_;
  const uint64_t max_graphs_;
  // The worker had the session before it restarted.
  const bool had_session_;
  Replay replay_;
  // The versions that the storages have on the worker; absent: they do not
  // exist.
  absl::flat_hash_map<uint64_t, uint64_t> versions_;
  absl::flat_hash_map<uint64_t, const Node*> last_use_;
  absl::flat_hash_map<const GraphDefinition*, uint64_t> graphs_;
  std::vector<uint64_t> answered_;
  // The anchors of the node that is being encoded.
  std::pair<std::list<Node>::iterator, std::list<Node>::iterator> anchors_;
};

}  // namespace

absl::StatusOr<Replay> EncodeReplay(State& r) { return Replayer(r).Encode(); }

}  // namespace djinn::replica
