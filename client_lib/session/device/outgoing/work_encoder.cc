#include "client_lib/session/device/outgoing/work_encoder.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/base/optimization.h"
#include "client_lib/session/model/call_sites.h"
#include "client_lib/session/model/debug_flags.h"
#include "client_lib/session/recording/graph_recorder.h"
#include "common/hash/hash.h"
#include "common/log/log.h"
#include "common/srg/proto_codec.h"

namespace djinn {
namespace {

// Limit on storages in a Free message.
constexpr size_t kMaxFreesPerMessage = 4096;

// Returns true at the 2nd use, the 16th, the 128th, ...
bool TellsOfRepeat(uint64_t uses) {
  while (uses > 2 && uses % 8 == 0) uses /= 8;
  return uses == 2;
}

// Returns the calls' sites, or nothing when no call has one.
std::vector<uint32_t> SitesOf(const Segment& segment) {
  std::vector<uint32_t> sites;
  bool any = false;
  for (const Segment::Mark& call : segment.calls()) any |= call.site != 0;
  if (!any) return sites;
  for (const Segment::Mark& call : segment.calls()) sites.push_back(call.site);
  return sites;
}

// Returns whether the work may need room on the worker.
bool NeedsRoom(const Work& work) {
  return work.storage && !std::holds_alternative<ReadWork>(work.action);
}

}  // namespace

WorkEncoder::WorkEncoder(int device_index,
                         std::shared_ptr<SessionContext> context,
                         WorkQueue* queue, DeadList* dead, OnRepeat on_repeat,
                         uint64_t first_transfer_id)
    : device_index_(device_index),
      context_(std::move(context)),
      queue_(queue),
      dead_(dead),
      on_repeat_(std::move(on_repeat)),
      next_transfer_id_(first_transfer_id) {}

void WorkEncoder::BeginAt(const v1::SessionLimits& limits,
                          uint64_t next_sequence) {
  limits_ = limits;
  next_sequence_ = next_sequence;
  graphs_ = std::make_unique<GraphTable>(limits.max_graphs());
  if (runs_ == nullptr) {
    runs_ = std::make_unique<RunEncoder>(graphs_.get());
  } else {
    runs_->UseTable(graphs_.get());
  }
  runs_->KeepRuns(keeps_);
  history_ = GraphHistory();
}

void WorkEncoder::Keep(std::function<bool(uint64_t bytes)> has_room) {
  has_room_ = std::move(has_room);
  keeps_ = true;
}

void WorkEncoder::NoteAdmitted(absl::Span<const uint64_t> graphs) {
  for (const uint64_t id : graphs) graphs_->Admitted(id);
}

EncodedMessage& WorkEncoder::Add(uint32_t lane,
                                 std::shared_ptr<v1::ControlRequest> request,
                                 Out out) {
  v1::Ordered* const ordered = request->mutable_ordered();
  ordered->set_lane(lane);
  ordered->set_sequence(next_sequence_++);
  EncodedMessage& message = out->emplace_back();
  message.request = std::move(request);
  return message;
}

uint64_t WorkEncoder::EncodeOther(uint32_t lane,
                                  std::shared_ptr<v1::ControlRequest> request,
                                  EncodedMessages* messages) {
  return Add(lane, std::move(request), messages).request->ordered().sequence();
}

void WorkEncoder::Encode(Work work, EncodedMessages* messages) {
  if (ABSL_PREDICT_TRUE(profile_ == nullptr)) {
    return EncodeNow(std::move(work), messages);
  }
  const auto now = [this] { return context_->options.clock->Monotonic(); };
  if (profile_->nodes >= DeviceProfile::kReportAfterNodes ||
      profile_->runs >= DeviceProfile::kReportAfterRuns) {
    profile_->nodes = profile_->runs = 0;
    EncodeProfile(v1::PROFILE_ACTION_REPORT, messages);
  }
  // Keeps the profile alive while the work ends it.
  const std::shared_ptr<DeviceProfile> profile = profile_;
  profile->encoding.Enter(0, now());
  EncodeNow(std::move(work), messages);
  profile->encoding.Leave(now());
}

void WorkEncoder::EncodeNow(Work work, Out out) {
  // Storages that the program has dropped make room for the work's results.
  const uint64_t freed = dead_->Collect(&pending_free_);
  if (NeedsRoom(work) || freed >= DeadList::kManyBytes) EncodeFrees(out);
  auto request = std::make_shared<v1::ControlRequest>();
  Registration registration = std::visit(
      [&](auto& action) { return Fill(work, action, request.get(), out); },
      work.action);
  if (work.storage && RunEncoder::ReleaseUse(work.storage.get())) {
    pending_free_.push_back(work.storage->id());
  }
  EncodedMessage& message = Add(work.lane, std::move(request), out);
  message.ends_work = true;
  message.registration = std::move(registration);
  message.written = std::exchange(written_, {});
  message.sites = std::exchange(sites_, {});
  if (keeps_) Keep(work, &message);
  EncodeFrees(out);
}

void WorkEncoder::Keep(const Work& work, EncodedMessage* message) {
  std::unique_ptr<Keepsake> keepsake = std::move(keepsake_);
  if (keepsake == nullptr) keepsake = std::make_unique<Keepsake>();
  const v1::Ordered& ordered = message->request->ordered();
  const auto names = [&](uint64_t storage, uint64_t base_version,
                         uint32_t writes, bool reads, uint64_t size_bytes = 0) {
    keepsake->uses.push_back(
        {storage, base_version, writes, reads, size_bytes});
  };
  bool again = true;  // it can be sent again
  switch (ordered.action_case()) {
    case v1::Ordered::kRun:
      again = keepsake->message != nullptr;
      keepsake->awaits_answer = ordered.run().reply_metadata();
      break;
    case v1::Ordered::kInstall: {
      const v1::Install& install = ordered.install();
      again = !install.has_pull() || keepsake->message != nullptr;
      names(install.storage(), install.base_version(), 1, /*reads=*/false,
            install.has_copy() ? work.storage->size_bytes() : SizeOf(install));
      keepsake->uses.back().generator = install.has_seed();
      if (install.has_copy()) {
        names(install.copy().storage(), install.copy().version(), 0,
              /*reads=*/true);
      }
      break;
    }
    case v1::Ordered::kOffer:
      names(ordered.offer().storage(), ordered.offer().version(), 0,
            /*reads=*/true);
      break;
    case v1::Ordered::kFree:  // a withdrawn offer
      break;
    case v1::Ordered::kCreateStorage: {
      const v1::CreateStorage& create = ordered.create_storage();
      // A storage that shrinks to nothing keeps nothing.
      names(create.storage(), create.base_version(), 1,
            create.base_version() > 0 && create.size_bytes() > 0,
            create.size_bytes());
      break;
    }
    case v1::Ordered::kRead:
      names(ordered.read().storage(), ordered.read().version(), 0,
            /*reads=*/true);
      keepsake->awaits_answer = true;
      break;
    case v1::Ordered::kRegisterModel:
      for (const uint64_t storage : ordered.register_model().storages()) {
        names(storage, 0, 0, /*reads=*/true);
      }
      break;
    case v1::Ordered::kMeter:
      break;
    default:
      // A profile.
      again = false;
      break;
  }
  if (!again) {
    keepsake->message = nullptr;
  } else if (keepsake->message == nullptr) {
    keepsake->message = std::make_unique<KeptMessage>();
  }
  if (KeptMessage* const kept = keepsake->message.get()) {
    kept->lane = work.lane;
    kept->ends_work = true;
    if (!std::holds_alternative<std::monostate>(message->registration)) {
      kept->mutable_extras().registration = message->registration;
    }
    if (!message->sites.empty()) kept->mutable_extras().sites = message->sites;
    if (!ordered.has_run() && kept->request == nullptr) {
      kept->request = message->request;
    }
  }
  message->keepsake = std::move(keepsake);
}

Registration WorkEncoder::Fill(const Work& work, RunWork& run,
                               v1::ControlRequest* request, Out out) {
  RunEncoder::Encoded encoded = runs_->Encode(
      *run.segment, context_->graph_epoch.load(std::memory_order_relaxed));
  if (ABSL_PREDICT_FALSE(debug::Has(debug::kExecution))) {
    const uint64_t id = encoded.run.graph_id();
    log::Info("graph",
              {{"device", device_index_},
               {"graph", id},
               {"calls", run.segment->calls().size()},
               {"known", encoded.definition.has_value() ? "no" : "yes"},
               {"reason", encoded.definition.has_value()
                              ? history_.Explain(*run.segment, id)
                              : "defined before"}});
  }
  std::vector<uint32_t> sites = SitesOf(*run.segment);
  if (ABSL_PREDICT_FALSE(GraphRecorder::Global().records(device_index_))) {
    GraphRecorder::Global().Add(runs_->Describe(*run.segment), NotesOf(sites));
  }
  if (ABSL_PREDICT_FALSE(profile_ != nullptr)) {
    profile_->nodes += run.segment->calls().size();
    ++profile_->runs;
  }
  if (ABSL_PREDICT_FALSE(on_repeat_ != nullptr) &&
      TellsOfRepeat(encoded.uses)) {
    RepeatedGraph repeated;
    repeated.graph = runs_->Describe(*run.segment, &repeated.storages);
    repeated.notes = NotesOf(sites);
    repeated.uses = encoded.uses;
    on_repeat_(std::move(repeated));
  }
  run.segment->Clear();
  queue_->GiveBack(run.segment);
  FillRun(work, std::move(encoded), std::move(sites), request, out);
  if (run.metadata == nullptr) return {};
  return std::move(run.metadata);
}

Registration WorkEncoder::Fill(const Work& work, ReplayWork& replay,
                               v1::ControlRequest* request, Out out) {
  const CapturedPart& part = replay.captured_graph->parts[replay.part];
  const uint64_t graph_epoch =
      context_->graph_epoch.load(std::memory_order_relaxed);
  const PartNumbers* const numbers =
      replay.numbers == nullptr ? nullptr : &(*replay.numbers)[replay.part];
  RunEncoder::Encoded encoded =
      replay.sized == nullptr
          ? runs_->Encode(part, replay.mode, replay.bindings, graph_epoch,
                          numbers)
          : runs_->Encode(part, replay.mode, *replay.sized, replay.size,
                          replay.bindings, graph_epoch);
  if (ABSL_PREDICT_FALSE(debug::Has(debug::kExecution))) {
    log::Info("captured graph",
              {{"device", device_index_},
               {"captured_graph", replay.captured_graph->number},
               {"part", replay.part},
               {"graph", encoded.run.graph_id()},
               {"calls", part.graph.nodes.size()},
               {"known", encoded.definition.has_value() ? "no" : "yes"}});
  }
  if (ABSL_PREDICT_FALSE(GraphRecorder::Global().records(device_index_))) {
    GraphRecorder::Global().Add(srg::ToProto(part.graph), NotesOf(part.sites));
  }
  if (ABSL_PREDICT_FALSE(profile_ != nullptr)) {
    profile_->nodes += part.graph.nodes.size();
    ++profile_->runs;
  }
  FillRun(work, std::move(encoded), part.sites, request, out);
  return {};
}

void WorkEncoder::FillRun(const Work& work, RunEncoder::Encoded encoded,
                          std::vector<uint32_t> sites,
                          v1::ControlRequest* request, Out out) {
  if (encoded.graph_to_send.has_value() &&
      context_->ClaimSending(encoded.graph_to_send->key_hash)) {
    context_->link->SendGraph(std::move(encoded.graph_to_send->graph),
                              NotesOf(sites), std::nullopt);
  }
  if (encoded.definition.has_value()) {
    RunEncoder::Definition& definition = *encoded.definition;
    graphs_->SaidIn(next_sequence_);
    DefinedGraph defined{definition.message.graph_id(),
                         std::move(definition.fingerprint)};
    auto define = std::make_shared<v1::ControlRequest>();
    *define->mutable_ordered()->mutable_define_graph() =
        std::move(definition.message);
    Add(work.lane, std::move(define), out).registration = std::move(defined);
  }
  v1::Run* const run = request->mutable_ordered()->mutable_run();
  *run = std::move(encoded.run);
  if (ABSL_PREDICT_FALSE(recomputed_.load(std::memory_order_relaxed) > 0)) {
    run->set_recomputed_nodes(
        recomputed_.exchange(0, std::memory_order_relaxed));
  }
  written_ = std::move(encoded.written);
  sites_ = std::move(sites);
  if (encoded.kept == nullptr || !keeps_) {
    return;
  }
  keepsake_ = std::make_unique<Keepsake>();
  for (const uint32_t slot : encoded.kept->final_slots) {
    keepsake_->freed.push_back(encoded.kept_uses[slot].storage);
  }
  keepsake_->uses = std::move(encoded.kept_uses);
  keepsake_->message = std::make_unique<KeptMessage>();
  keepsake_->message->run = std::move(encoded.kept);
}

void WorkEncoder::KeepBytes(const ContentHash& hash, absl::string_view bytes) {
  keepsake_ = std::make_unique<Keepsake>();
  keepsake_->message = std::make_unique<KeptMessage>();
  KeptBytes kept;
  // A copy, because the program may write to its bytes once the upload is over.
  if (has_room_(bytes.size())) {
    const auto copy = std::make_shared<const std::string>(bytes);
    kept.memory = {*copy, copy};
  } else {
    kept.spilled = context_->spill->Keep(hash, bytes);
  }
  if (kept.any()) keepsake_->message->mutable_extras().source = std::move(kept);
}

Registration WorkEncoder::Fill(const Work& work, InstallWork& install,
                               v1::ControlRequest* request, Out) {
  v1::Install* const message = request->mutable_ordered()->mutable_install();
  message->set_storage(work.storage->id());
  message->set_base_version(install.base_version);
  if (install.wait == nullptr) {
    const uint64_t size = install.copy.size();
    if (size > limits_.inline_bytes()) {
      if (keeps_ && !has_room_(size)) {
        const ContentHash hash = install.eager
                                     ? install.hash
                                     : HashContent(install.copy.data(), size);
        KeepBytes(hash, install.copy);
        keepsake_->message->request = HashFirst(*message, hash, size);
      }
      message->set_content(std::move(install.copy));
      return {};
    }
    message->set_inline_value(std::move(install.copy));
    if (!install.eager) return {};
    // The device migrated to a worker that takes more bytes inline.
    return InlinedUpload{size};
  }
  // The uploading thread keeps the bytes alive, too.
  const SharedBytes source = std::exchange(install.source, {});
  if (source.bytes.size() <= limits_.inline_bytes()) {
    message->set_inline_value(source.bytes.data(), source.bytes.size());
  } else {
    v1::Transfer* const transfer = message->mutable_transfer();
    transfer->set_transfer_id(next_transfer_id_++);
    transfer->set_size_bytes(source.bytes.size());
    transfer->set_hash_high(install.hash.high);
    transfer->set_hash_low(install.hash.low);
    transfer->set_provable(true);
    if (keeps_) KeepBytes(install.hash, source.bytes);
  }
  return std::move(install.wait);
}

Registration WorkEncoder::Fill(const Work& work, SeedWork& seed,
                               v1::ControlRequest* request, Out) {
  v1::Install* const message = request->mutable_ordered()->mutable_install();
  message->set_storage(work.storage->id());
  message->set_base_version(seed.base_version);
  message->mutable_seed()->set_value(seed.seed);
  return {};
}

Registration WorkEncoder::Fill(const Work& work, CreateWork& create,
                               v1::ControlRequest* request, Out) {
  v1::CreateStorage* const message =
      request->mutable_ordered()->mutable_create_storage();
  message->set_storage(work.storage->id());
  message->set_base_version(create.base_version);
  message->set_size_bytes(create.size_bytes);
  return {};
}

Registration WorkEncoder::Fill(const Work& work, ReadWork& read,
                               v1::ControlRequest* request, Out) {
  v1::Read* const message = request->mutable_ordered()->mutable_read();
  message->set_storage(work.storage->id());
  message->set_version(read.version);
  *message->mutable_view() = srg::ToProto(read.view);
  if (read.wait->bytes > limits_.inline_bytes()) {
    message->set_transfer_id(next_transfer_id_++);
  }
  // An abandoned read is sent all the same, because messages are numbered.
  return std::move(read.wait);
}

Registration WorkEncoder::Fill(const Work& work, OfferWork& offer,
                               v1::ControlRequest* request, Out) {
  if (offer.withdrawn) {
    // Messages are numbered, and threads may wait for this one.
    request->mutable_ordered()->mutable_free();
    return {};
  }
  v1::Offer* const message = request->mutable_ordered()->mutable_offer();
  message->set_storage(work.storage->id());
  message->set_version(offer.version);
  message->set_ticket(std::move(offer.ticket));
  message->set_round(offer.rank.round);
  if (offer.rank.remaining_seconds < std::numeric_limits<double>::infinity()) {
    message->set_remaining_seconds(offer.rank.remaining_seconds);
  }
  return {};
}

Registration WorkEncoder::Fill(const Work& work, CopyWork& copy,
                               v1::ControlRequest* request, Out) {
  v1::Install* const message = request->mutable_ordered()->mutable_install();
  message->set_storage(work.storage->id());
  message->set_base_version(copy.base_version);
  message->mutable_copy()->set_storage(copy.source->id());
  message->mutable_copy()->set_version(copy.source_version);
  if (keeps_) {
    keepsake_ = std::make_unique<Keepsake>();
    keepsake_->kept_copy = std::move(copy.needed);
  }
  // The program may have released it meanwhile.
  if (RunEncoder::ReleaseUse(copy.source.get())) {
    pending_free_.push_back(copy.source->id());
  }
  return {};
}

Registration WorkEncoder::Fill(const Work& work, PullWork& pull,
                               v1::ControlRequest* request, Out) {
  v1::Install* const message = request->mutable_ordered()->mutable_install();
  message->set_storage(work.storage->id());
  message->set_base_version(pull.base_version);
  const uint64_t size = pull.offered.pull.size_bytes();
  *message->mutable_pull() = std::move(pull.offered.pull);
  // The bytes stay at the source's worker, and count here.
  if (pull.kept != nullptr && keeps_ &&
      (pull.kept->upload.request != nullptr ||
       size <= context_->options.replay_memory / 2)) {
    keepsake_ = std::make_unique<Keepsake>();
    keepsake_->message = std::make_unique<KeptMessage>();
    pull.kept->losses = pull.offered.losses;
    keepsake_->message->mutable_extras().copy = std::move(pull.kept);
  }
  return {};
}

Registration WorkEncoder::Fill(const Work&, ProfileWork& profile,
                               v1::ControlRequest* request, Out out) {
  // The worker has not begun if nothing was sent since the profile began here.
  if (profile_ == nullptr) EncodeProfile(v1::PROFILE_ACTION_START, out);
  profile_ = nullptr;
  request->mutable_ordered()->mutable_profile()->set_action(
      v1::PROFILE_ACTION_STOP);
  return std::move(profile.wait);
}

Registration WorkEncoder::Fill(const Work&, MeterWork& meter,
                               v1::ControlRequest* request, Out) {
  request->mutable_ordered()->mutable_meter();
  return std::move(meter.wait);
}

Registration WorkEncoder::Fill(const Work&, ModelWork& model,
                               v1::ControlRequest* request, Out) {
  v1::RegisterModel* const message =
      request->mutable_ordered()->mutable_register_model();
  message->set_model_id(model.model_id);
  message->set_name(std::move(model.name));
  for (const StoragePtr& storage : model.storages) {
    // The program may have released the storage meanwhile, and the worker freed
    // it.
    if (storage->known_to_worker_) message->add_storages(storage->id());
  }
  model.storages.clear();
  return std::move(model.wait);
}

void WorkEncoder::EncodeProfile(v1::ProfileAction action,
                                EncodedMessages* messages) {
  auto request = std::make_shared<v1::ControlRequest>();
  request->mutable_ordered()->mutable_profile()->set_action(action);
  Add(0, std::move(request), messages);
}

bool WorkEncoder::CollectDead() {
  dead_->Collect(&pending_free_);
  return !pending_free_.empty();
}

void WorkEncoder::EncodeFrees(EncodedMessages* messages) {
  // Each id takes at most ten bytes.
  const size_t fits = limits_.max_outstanding_bytes() / 16;
  while (!pending_free_.empty()) {
    auto request = std::make_shared<v1::ControlRequest>();
    auto* const storages =
        request->mutable_ordered()->mutable_free()->mutable_storages();
    const size_t count = std::min(
        {pending_free_.size(), kMaxFreesPerMessage, std::max<size_t>(fits, 1)});
    storages->Add(pending_free_.end() - count, pending_free_.end());
    pending_free_.resize(pending_free_.size() - count);
    Add(0, std::move(request), messages);
  }
}

}  // namespace djinn
