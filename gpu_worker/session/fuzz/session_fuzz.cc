// Feeds a session with messages that a client might send: graphs, runs,
// installs, uploads, reads, frees and acknowledgements, over streams that
// break, in any order and state. Whatever arrives, the session answers or fails
// once, its progress never falls, and in the end it holds nothing.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/fuzz/mutate_message.h"
#include "common/fuzz/require.h"
#include "common/fuzz/session_input.pb.h"
#include "common/log/log.h"
#include "common/srg/proto_codec.h"
#include "common/srg/validate.h"
#include "djinn/v1/execution.pb.h"
#include "djinn/v1/pull.pb.h"
#include "gpu_worker/plan/graph_cache.h"
#include "gpu_worker/plan/run_context.h"
#include "gpu_worker/pull/link_rates.h"
#include "gpu_worker/pull/offer_table.h"
#include "gpu_worker/pull/peer_pulls.h"
#include "gpu_worker/session/fuzz/permissive_device.h"
#include "gpu_worker/session/observe/session_metrics.h"
#include "gpu_worker/session/session.h"
#include "gpu_worker/session/state/outbox.h"
#include "gpu_worker/session/uploads/upload_rate.h"
#include "gpu_worker/store/content_cache.h"
#include "gpu_worker/store/content_proofs.h"
#include "gpu_worker/store/device_memory.h"
#include "gpu_worker/store/ledger.h"

namespace djinn::worker {
namespace {

using fuzz::Require;

constexpr uint64_t kDeviceBytes = 1 << 20;
constexpr char kWorkerId[] = "w0";
constexpr uint64_t kIncarnation = 7;
constexpr size_t kInlineBytes = 4096;

// Fetches from this worker, and from no other.
class LocalPulls : public PullSource {
 public:
  explicit LocalPulls(OfferTable* offers)
      : pulls_(kWorkerId, kIncarnation, offers) {}

  void Start(const std::string& worker_id, const v1::PullRequest& request,
             std::shared_ptr<PullReceiver> receiver) override {
    if (Knows(worker_id)) {
      pulls_.Start(worker_id, request, std::move(receiver));
    } else {
      receiver->OnFailed(absl::UnavailableError("nobody is there"));
    }
  }
  void Cancel(const PullReceiver* receiver) override {
    pulls_.Cancel(receiver);
  }
  bool Knows(const std::string& worker_id) const override {
    return pulls_.Knows(worker_id);
  }

 private:
  PeerPulls pulls_;
};

// The client's end, which checks what the session sends.
class WatchedStream : public WorkerStream {
 public:
  void Start(WorkerStreamReceiver*) override {}
  bool Send(std::shared_ptr<const v1::ControlResponse> response) override {
    if (response->reply_number() != 0) {
      Require(response->reply_number() > last_reply_, "replies are numbered");
      last_reply_ = response->reply_number();
    }
    return true;
  }
  bool SendBulk(uint64_t, uint64_t, SharedBytes payload) override {
    Require(!payload.bytes.empty() && payload.bytes.size() <= kBulkChunkBytes,
            "chunks have bytes, and not too many");
    return true;
  }
  void Close(absl::Status) override {}

 private:
  uint64_t last_reply_ = 0;
};

// Tracks the state that a correct client knows, and repairs messages by it.
class Client {
 public:
  void Repair(v1::Ordered* message) {
    switch (message->action_case()) {
      case v1::Ordered::kRun:
        return RepairRun(message->mutable_run());
      case v1::Ordered::kInstall:
        RepairPull(message->mutable_install());
        RepairContent(message->mutable_install());
        return message->mutable_install()->set_base_version(
            versions_[message->install().storage()]);
      case v1::Ordered::kOffer:
        message->mutable_offer()->mutable_ticket()->resize(
            OfferTable::kTicketBytes);
        return message->mutable_offer()->set_version(
            versions_[message->offer().storage()]);
      case v1::Ordered::kCreateStorage:
        return message->mutable_create_storage()->set_base_version(
            versions_[message->create_storage().storage()]);
      case v1::Ordered::kRead:
        return message->mutable_read()->set_version(
            versions_[message->read().storage()]);
      default:
        return;
    }
  }

  // Applies a message that was sent.
  void Sent(const v1::Ordered& message) {
    if (message.has_define_graph()) {
      const auto srg_graph = srg::FromProto(message.define_graph().graph());
      Defined defined;
      if (srg_graph.ok()) {
        const auto facts = srg::Validate(*srg_graph, srg::GraphCaps());
        if (facts.ok()) defined = {*srg_graph, *facts};
      }
      srg_graphs_[message.define_graph().graph_id()] = std::move(defined);
    } else if (message.has_run()) {
      SentRun(message.run());
    } else if (message.has_install()) {
      versions_[message.install().storage()] =
          message.install().base_version() + 1;
    } else if (message.has_create_storage()) {
      versions_[message.create_storage().storage()] =
          message.create_storage().version() != 0
              ? message.create_storage().version()
              : message.create_storage().base_version() + 1;
    }
  }

 private:
  struct Defined {
    srg::Graph srg_graph;
    srg::GraphFacts facts;
    // The storages that the remembered runs bound, by place.
    std::vector<std::vector<uint64_t>> remembered;
  };

  static bool IsCreated(const srg::Slot& slot) {
    return slot.kind == srg::Slot::Kind::kCreated ||
           slot.kind == srg::Slot::Kind::kResult;
  }

  void SentRun(const v1::Run& run) {
    const auto found = srg_graphs_.find(run.graph_id());
    std::vector<uint64_t> bound;
    if (!run.has_repeat()) {
      for (const v1::Binding& binding : run.bindings()) {
        versions_[binding.storage()] =
            binding.base_version() + binding.writes();
        bound.push_back(binding.storage());
      }
    } else if (found != srg_graphs_.end() &&
               run.repeat().place() < found->second.remembered.size()) {
      const Defined& defined = found->second;
      const std::vector<uint64_t>& before =
          defined.remembered[run.repeat().place()];
      uint64_t next = run.repeat().first_new_storage();
      int listed = 0;
      uint32_t gap = 0;
      uint64_t storage = 0;
      for (size_t i = 0; i < before.size(); ++i) {
        if (listed < run.repeat().slot_gaps_size() &&
            listed < run.repeat().storages_size() &&
            run.repeat().slot_gaps(listed) == gap++) {
          storage += static_cast<uint64_t>(run.repeat().storages(listed++));
          bound.push_back(storage);
          gap = 0;
        } else {
          bound.push_back(IsCreated(defined.srg_graph.slots[i]) ? next++
                                                                : before[i]);
        }
        versions_[bound.back()] += defined.facts.slots[i].writes;
      }
    }
    if (found == srg_graphs_.end()) return;
    std::vector<std::vector<uint64_t>>& remembered = found->second.remembered;
    if (!run.has_repeat()) remembered.clear();
    if (bound.size() != found->second.srg_graph.slots.size()) return;
    if (run.remember()) {
      remembered.push_back(std::move(bound));
    } else if (run.repeat().place() < remembered.size()) {
      remembered[run.repeat().place()] = std::move(bound);
    }
  }

  // Makes the repeat fit a run that is remembered.
  void RepairRepeat(const Defined& defined, v1::Run* run) {
    v1::Repeat* const repeat = run->mutable_repeat();
    repeat->set_place(repeat->place() % defined.remembered.size());
    if (defined.remembered.size() == srg::kMaxRememberedRuns) {
      run->set_remember(false);
    }
    const std::vector<uint64_t>& before = defined.remembered[repeat->place()];
    std::set<uint32_t> slots;
    uint64_t slot = 0;
    for (const uint32_t gap : repeat->slot_gaps()) {
      slot += gap;
      if (slot >= before.size()) break;
      slots.insert(static_cast<uint32_t>(slot++));
    }
    const int count = static_cast<int>(slots.size());
    repeat->mutable_slot_gaps()->Truncate(count);
    while (repeat->storages_size() < count) repeat->add_storages(1);
    repeat->mutable_storages()->Truncate(count);
    repeat->clear_base_versions();
    uint64_t storage = 0;
    for (const int64_t step : repeat->storages()) {
      storage += static_cast<uint64_t>(step);
      repeat->add_base_versions(versions_[storage]);
    }
    run->clear_bindings();
    bool created = false;
    uint64_t versions = 0;
    for (uint32_t i = 0; i < before.size(); ++i) {
      if (slots.contains(i)) continue;
      if (IsCreated(defined.srg_graph.slots[i])) {
        created = true;
      } else {
        versions += versions_[before[i]];
      }
    }
    if (!created) repeat->clear_first_new_storage();
    if (created && repeat->first_new_storage() == 0) {
      repeat->set_first_new_storage(3000);
    }
    repeat->set_version_sum(versions);
    if (repeat->same_final_slots()) run->clear_final_slots();
  }

  // Makes the pull name this worker and a ticket of the right size.
  static void RepairPull(v1::Install* install) {
    if (!install->has_pull()) return;
    install->mutable_pull()->set_worker_id(kWorkerId);
    install->mutable_pull()->set_worker_incarnation(kIncarnation);
    install->mutable_pull()->mutable_ticket()->resize(OfferTable::kTicketBytes);
  }

  // Makes the value larger than the inline limit.
  static void RepairContent(v1::Install* install) {
    if (!install->has_content()) return;
    std::string* const value = install->mutable_content();
    if (value->size() <= kInlineBytes) value->resize(kInlineBytes + 1);
  }

  void RepairRun(v1::Run* run) {
    const auto found = srg_graphs_.find(run->graph_id());
    if (found == srg_graphs_.end()) return;
    const Defined& defined = found->second;
    const size_t slots = defined.srg_graph.slots.size();
    if (run->has_repeat() && !defined.remembered.empty()) {
      RepairRepeat(defined, run);
      RepairHoles(defined, run);
      RepairFloatGaps(defined, run);
      return;
    }
    const size_t bound = run->bindings_size();
    if (bound > slots) {
      run->mutable_bindings()->DeleteSubrange(slots, bound - slots);
    }
    for (size_t i = 0; i < slots; ++i) {
      v1::Binding* binding =
          i < bound ? run->mutable_bindings(i) : run->add_bindings();
      if (i >= bound) binding->set_storage(1000 + i);
      binding->set_base_version(versions_[binding->storage()]);
      binding->set_writes(defined.facts.slots[i].writes);
      binding->set_reads(defined.facts.slots[i].reads);
    }
    RepairHoles(defined, run);
  }

  static void RepairHoles(const Defined& defined, v1::Run* run) {
    run->mutable_float_holes()->Resize(defined.srg_graph.float_hole_count, 1.5);
    run->clear_scalar_tensors();
    for (const srg::DataType type : defined.facts.scalar_tensor_types) {
      run->add_scalar_tensors(std::string(srg::ElementSize(type), '\x3f'));
    }
    run->set_reply_metadata(defined.facts.unknown_results > 0);
  }

  static void RepairFloatGaps(const Defined& defined, v1::Run* run) {
    v1::Repeat* const repeat = run->mutable_repeat();
    uint64_t hole = 0;
    int count = 0;
    for (const uint32_t gap : repeat->float_gaps()) {
      hole += uint64_t{gap} + 1;
      if (hole > defined.srg_graph.float_hole_count) break;
      ++count;
    }
    repeat->mutable_float_gaps()->Truncate(count);
    run->mutable_float_holes()->Truncate(count);
  }

  std::map<uint64_t, uint64_t> versions_;
  std::map<uint64_t, Defined> srg_graphs_;
};

class Harness {
 public:
  Harness()
      : device_(kDeviceBytes),
        ledger_(kDeviceBytes),
        memory_(&device_, &ledger_),
        graphs_({}),
        contents_(64),
        proofs_(&device_, &random_, /*max_outstanding=*/1),
        offers_({}, &clock_),
        pulls_(&offers_) {
    memory_.SetReclaimer(
        [this](uint64_t bytes) { contents_.EvictIdle(bytes); });
    environment_.worker_id = kWorkerId;
    environment_.clock = &clock_;
    environment_.random = &random_;
    environment_.memory = &memory_;
    environment_.contents = &contents_;
    environment_.proofs = &proofs_;
    contents_.SetSharing({"tenant"});
    environment_.graphs = &graphs_;
    environment_.offers = &offers_;
    environment_.pulls = &pulls_;
    environment_.links = &links_;
    environment_.uploads = &uploads_;
    environment_.counters = &counters_;
    environment_.metrics = &metrics_;
  }

  void Run(const fuzz::SessionInput& input) {
    v1::SessionLimits limits;
    limits.set_memory_bytes(kDeviceBytes / 2);
    limits.set_max_outstanding(64);
    limits.set_max_outstanding_bytes(1 << 20);
    limits.set_inline_bytes(kInlineBytes);
    limits.set_max_graphs(8);
    int failures = 0;
    const auto account = std::make_shared<TenantAccount>();
    {
      Session session(&environment_, "session", "tenant", account,
                      std::make_shared<LeaseMeter>(&traffic_), limits,
                      {[] {},
                       [&failures](absl::Status status) {
                         Require(!status.ok(), "failures say why");
                         ++failures;
                       },
                       [] {}});
      Attach(&session, 0);
      for (const fuzz::Step& step : input.steps()) {
        Carry(step, &session);
        if (failures > 0) break;
      }
      Require(session.quota().used() <= limits.memory_bytes(),
              "the session's limit holds");
      session.Detach(stream_.get(), streams_);
      session.Drop();
      Require(session.status().storages == 0, "a dropped session has nothing");
    }
    Require(account->memory()->used() == 0, "nor has its tenant");
    Require(offers_.offers() == 0, "and it offers nothing");
    Require(failures <= 1, "a session fails once");
    contents_.EvictIdle(kDeviceBytes);
    Require(ledger_.usage().used == 0, "the ledger gets everything back");
    Require(device_.live_bytes() == 0, "and so does the device");
  }

 private:
  void Attach(Session* session, uint64_t acknowledged_reply) {
    auto stream = std::make_unique<WatchedStream>();
    session->Attach(stream.get(), ++streams_, {}, acknowledged_reply);
    stream_ = std::move(stream);
  }

  void Carry(const fuzz::Step& step, Session* session) {
    if (step.has_resume()) {
      session->Detach(stream_.get(), streams_);
      const bool agreed = session->CheckResume(step.resume()).ok();
      Attach(session, agreed ? step.resume().acknowledged_reply() : 0);
    } else if (step.has_request()) {
      v1::ControlRequest request = step.request();
      request.clear_hello();
      request.clear_ordered();
      session->Receive(std::move(request));
    } else if (step.has_ordered()) {
      v1::Ordered message = step.ordered();
      if (step.repaired()) client_.Repair(&message);
      if (message.sequence() == 0) message.set_sequence(sequence_ + 1);
      sequence_ = message.sequence();
      client_.Sent(message);
      v1::ControlRequest request;
      *request.mutable_ordered() = std::move(message);
      session->Receive(std::move(request));
    } else if (step.has_chunk()) {
      const absl::string_view piece = step.chunk().payload();
      session->ReceiveBulk(step.chunk().transfer_id(), step.chunk().offset(),
                           absl::MakeConstSpan(&piece, 1));
    } else {
      clock_.Advance(absl::Seconds(step.idle_seconds()));
      session->CheckDeadlines();
      offers_.CheckDeadlines(
          [](const std::string&) { return OfferTable::Activity::kIdle; });
    }
    do {
      while (session->steps().HasWork()) {
        session->steps().Step(clock_.Monotonic());
      }
    } while (proofs_.Work());
  }

  PermissiveDevice device_;
  Ledger ledger_;
  DeviceMemory memory_;
  GraphCache graphs_;
  FakeClock clock_;
  FakeRandomSource random_;
  ContentCache contents_;
  ContentProofs proofs_;
  OfferTable offers_;
  LocalPulls pulls_;
  LinkRates links_{&clock_};
  UploadRate uploads_{&clock_};
  SessionMetrics metrics_;
  Traffic traffic_;
  ExecutionCounters counters_;
  SessionEnvironment environment_;
  Client client_;
  std::unique_ptr<WatchedStream> stream_;
  uint64_t streams_ = 0;
  uint64_t sequence_ = 0;
};

}  // namespace
}  // namespace djinn::worker

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  djinn::log::Configure("", djinn::log::Level::kOff);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  djinn::fuzz::SessionInput input;
  if (input.ParseFromArray(data, static_cast<int>(size))) {
    djinn::worker::Harness().Run(input);
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size,
                                          size_t max_size, unsigned int seed) {
  return djinn::fuzz::MutateEncoded<djinn::fuzz::SessionInput>(data, size,
                                                               max_size, seed);
}
