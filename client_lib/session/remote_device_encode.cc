// Turns work into messages.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/base/optimization.h"
#include "absl/strings/str_cat.h"
#include "client_lib/session/debug_flags.h"
#include "client_lib/session/graph_recorder.h"
#include "client_lib/session/remote_device.h"
#include "common/error.h"
#include "common/log/log.h"
#include "common/srg/proto_codec.h"

namespace djinn {
namespace {

// Storages in a Free message, at most.
constexpr size_t kMaxFreesPerMessage = 4096;

// The second use, the 16th, the 128th...
bool TellsOfRepeat(uint64_t uses) {
  while (uses > 2 && uses % 8 == 0) uses /= 8;
  return uses == 2;
}

// Empty when no call has a site.
std::vector<uint32_t> SitesOf(const Segment& segment) {
  std::vector<uint32_t> sites;
  bool any = false;
  for (const Segment::Mark& call : segment.calls()) any |= call.site != 0;
  if (!any) return sites;
  for (const Segment::Mark& call : segment.calls()) sites.push_back(call.site);
  return sites;
}

}  // namespace

void RemoteDevice::Process(Work work) {
  if (ABSL_PREDICT_FALSE(debug::Has(debug::kProfile))) ProfileSender();
  if (ABSL_PREDICT_FALSE(sender_profile_ != nullptr)) {
    AskForReport();
    // Stays where it is while the work ends the profile.
    const std::shared_ptr<DeviceProfile> profile = sender_profile_;
    profile->encoding.Enter(0, Now());
    ProcessNow(std::move(work));
    profile->encoding.Leave(Now());
    return;
  }
  ProcessNow(std::move(work));
}

void RemoteDevice::ProcessNow(Work work) {
  dead_.Collect(&pending_free_);
  // Room first where the work may need it.
  if (!std::holds_alternative<RunWork>(work.action) &&
      !std::holds_alternative<ReplayWork>(work.action) &&
      !std::holds_alternative<ReadWork>(work.action) &&
      !std::holds_alternative<ProfileWork>(work.action) &&
      !std::holds_alternative<MeterWork>(work.action) &&
      !std::holds_alternative<ModelWork>(work.action)) {
    AppendFrees();
  }
  auto request = std::make_shared<v1::ControlRequest>();
  std::visit([&](auto& action) { Encode(work, action, request.get()); },
             work.action);
  if (work.storage && RunEncoder::ReleaseUse(work.storage.get())) {
    pending_free_.push_back(work.storage->id());
  }
  Append(work.lane, std::move(request), /*ends_work=*/true);
  AppendFrees();
}

void RemoteDevice::Encode(const Work& work, RunWork& run,
                          v1::ControlRequest* request) {
  RunEncoder::Encoded encoded = encoder_->Encode(
      *run.segment, context_->telling.load(std::memory_order_relaxed));
  if (ABSL_PREDICT_FALSE(debug::Has(debug::kExecution))) {
    const uint64_t id = encoded.run.structure_id();
    log::Info("structure",
              {{"device", index_},
               {"structure", id},
               {"calls", run.segment->calls().size()},
               {"known", encoded.definition.has_value() ? "no" : "yes"},
               {"reason", encoded.definition.has_value()
                              ? history_.Explain(*run.segment, id)
                              : "defined before"}});
  }
  std::vector<uint32_t> sites = SitesOf(*run.segment);
  if (ABSL_PREDICT_FALSE(GraphRecorder::Global().records(index_))) {
    GraphRecorder::Global().Add(encoder_->Describe(*run.segment),
                                NotesOf(sites));
  }
  if (ABSL_PREDICT_FALSE(sender_profile_ != nullptr)) {
    CountProfiled(run.segment->calls().size());
  }
  if (ABSL_PREDICT_FALSE(role_.on_repeat != nullptr) &&
      TellsOfRepeat(encoded.uses)) {
    RepeatedStructure repeated;
    repeated.structure = encoder_->Describe(*run.segment, &repeated.storages);
    repeated.notes = NotesOf(sites);
    repeated.uses = encoded.uses;
    role_.on_repeat(std::move(repeated));
  }
  // Drops the references to storages here, not under the lock.
  run.segment->Clear();
  if (run.metadata != nullptr) {
    // The run's own number: a definition goes before it.
    MutexLock lock(&mu_);
    const uint64_t number =
        log_.next_sequence() + (encoded.definition.has_value() ? 1 : 0);
    metadata_[number] = run.metadata;
  }
  FinishRun(work, std::move(encoded), std::move(sites), run.segment, request);
}

void RemoteDevice::Encode(const Work& work, ReplayWork& replay,
                          v1::ControlRequest* request) {
  const RecordingPart& part = replay.recording->parts[replay.part];
  const uint64_t telling = context_->telling.load(std::memory_order_relaxed);
  RunEncoder::Encoded encoded =
      replay.sized == nullptr
          ? encoder_->Encode(part, replay.fast, replay.bindings, telling)
          : encoder_->Encode(part, replay.fast, *replay.sized, replay.size,
                             replay.bindings, telling);
  if (ABSL_PREDICT_FALSE(debug::Has(debug::kExecution))) {
    log::Info("recording",
              {{"device", index_},
               {"recording", replay.recording->number},
               {"part", replay.part},
               {"structure", encoded.run.structure_id()},
               {"calls", part.structure.nodes.size()},
               {"known", encoded.definition.has_value() ? "no" : "yes"}});
  }
  if (ABSL_PREDICT_FALSE(GraphRecorder::Global().records(index_))) {
    GraphRecorder::Global().Add(srg::ToProto(part.structure),
                                NotesOf(part.sites));
  }
  if (ABSL_PREDICT_FALSE(sender_profile_ != nullptr)) {
    CountProfiled(part.structure.nodes.size());
  }
  FinishRun(work, std::move(encoded), part.sites, nullptr, request);
}

void RemoteDevice::FinishRun(const Work& work, RunEncoder::Encoded encoded,
                             std::vector<uint32_t> sites, Segment* segment,
                             v1::ControlRequest* request) {
  std::shared_ptr<v1::ControlRequest> define;
  std::vector<uint64_t> admitted;
  {
    MutexLock lock(&mu_);
    if (segment != nullptr) recorder_.Recycle(segment);
    admitted.swap(admitted_);
    ++statistics_.runs;
    if (encoded.definition.has_value()) {
      RunEncoder::Definition& definition = *encoded.definition;
      ++statistics_.structures_defined;
      defining_[definition.message.structure_id()] =
          std::move(definition.fingerprint);
      structures_->SaidIn(log_.next_sequence());
      define = std::make_shared<v1::ControlRequest>();
      *define->mutable_ordered()->mutable_define_structure() =
          std::move(definition.message);
    }
  }
  for (const uint64_t id : admitted) structures_->Admitted(id);
  if (encoded.telling.has_value() &&
      context_->TellsFirst(encoded.telling->key_hash)) {
    context_->link->SendStructure(std::move(encoded.telling->structure),
                                  NotesOf(sites), std::nullopt);
  }
  if (define != nullptr) {
    Append(work.lane, std::move(define), /*ends_work=*/false);
  }
  *request->mutable_ordered()->mutable_run() = std::move(encoded.run);
  if (ABSL_PREDICT_FALSE(recomputed_.load(std::memory_order_relaxed) > 0)) {
    request->mutable_ordered()->mutable_run()->set_recomputed_nodes(
        recomputed_.exchange(0, std::memory_order_relaxed));
  }
  written_ = std::move(encoded.written);
  if (sites.empty()) return;
  MutexLock lock(&mu_);
  call_sites_.Add(log_.next_sequence(), std::move(sites));
}

void RemoteDevice::Encode(const Work& work, InstallWork& install,
                          v1::ControlRequest* request) {
  v1::Install* const message = request->mutable_ordered()->mutable_install();
  message->set_storage(work.storage->id());
  message->set_base_version(install.base_version);
  if (install.wait == nullptr) {
    const uint64_t size = install.copy.size();
    const bool fits = size <= sender_limits_.inline_bytes();
    if (fits) {
      message->set_inline_value(std::move(install.copy));
    } else {
      message->set_content(std::move(install.copy));
    }
    MutexLock lock(&mu_);
    ++(fits ? statistics_.uploads_inline : statistics_.uploads_sent);
    // The device went to another worker, which takes more inline.
    if (fits && install.eager) eager_.Complete(size);
    return;
  }
  // The uploading thread holds the bytes, too.
  const SharedBytes source = std::exchange(install.source, {});
  UploadWait& wait = *install.wait;
  if (source.bytes.size() <= sender_limits_.inline_bytes()) {
    message->set_inline_value(source.bytes.data(), source.bytes.size());
    MutexLock lock(&mu_);
    ++statistics_.uploads_inline;
    wait.state = UploadWait::State::kOver;
    wait.changed.SignalAll();
    return;
  }
  v1::Transfer* const transfer = message->mutable_transfer();
  transfer->set_transfer_id(next_transfer_id_++);
  transfer->set_size_bytes(source.bytes.size());
  transfer->set_hash_high(install.hash.high);
  transfer->set_hash_low(install.hash.low);
  transfer->set_provable(true);
  MutexLock lock(&mu_);
  wait.transfer_id = transfer->transfer_id();
  uploads_.Add(std::move(install.wait));
}

void RemoteDevice::Encode(const Work& work, SeedWork& seed,
                          v1::ControlRequest* request) {
  v1::Install* const message = request->mutable_ordered()->mutable_install();
  message->set_storage(work.storage->id());
  message->set_base_version(seed.base_version);
  message->mutable_seed()->set_value(seed.seed);
}

void RemoteDevice::Encode(const Work& work, CreateWork& create,
                          v1::ControlRequest* request) {
  v1::CreateStorage* const message =
      request->mutable_ordered()->mutable_create_storage();
  message->set_storage(work.storage->id());
  message->set_base_version(create.base_version);
  message->set_size_bytes(create.size_bytes);
}

void RemoteDevice::Encode(const Work& work, ReadWork& read,
                          v1::ControlRequest* request) {
  v1::Read* const message = request->mutable_ordered()->mutable_read();
  message->set_storage(work.storage->id());
  message->set_version(read.version);
  *message->mutable_view() = srg::ToProto(read.view);
  ReadWait& wait = *read.wait;
  if (wait.bytes > sender_limits_.inline_bytes()) {
    message->set_transfer_id(next_transfer_id_++);
  }
  // An abandoned one is sent all the same: the order is numbered.
  MutexLock lock(&mu_);
  wait.transfer_id = message->transfer_id();
  if (wait.transfer_id != 0) wait.chunks.emplace(wait.bytes);
  reads_.AddSent(log_.next_sequence(), read.wait);
}

void RemoteDevice::Append(uint32_t lane,
                          std::shared_ptr<v1::ControlRequest> request,
                          bool ends_work) {
  v1::Ordered* const ordered = request->mutable_ordered();
  ordered->set_lane(lane);
  uint64_t limit = 0;
  uint64_t bytes = 0;
  {
    MutexLock lock(&mu_);
    ordered->set_sequence(log_.next_sequence());
    request->set_acknowledged_reply(replies_.handled());
    bytes = ordered->ByteSizeLong();
    limit = limits_.max_outstanding_bytes();
    if (bytes <= limit) {
      statistics_.bytes_up += bytes;
      log_.Append(std::move(request), bytes, ends_work,
                  std::exchange(written_, {}));
      if (ends_work) processing_ = false;
      if (cancelling_) progress_changed_.SignalAll();
      return;
    }
  }
  Fail(LimitExceeded("MESSAGE_TOO_LARGE",
                     "one message to the worker (calls with many values or "
                     "very large structures)",
                     limit, 0, bytes));
}

void RemoteDevice::AppendFrees() {
  // Each takes ten bytes at most.
  const size_t fits = sender_limits_.max_outstanding_bytes() / 16;
  while (!pending_free_.empty()) {
    auto request = std::make_shared<v1::ControlRequest>();
    auto* const storages =
        request->mutable_ordered()->mutable_free()->mutable_storages();
    const size_t count = std::min(
        {pending_free_.size(), kMaxFreesPerMessage, std::max<size_t>(fits, 1)});
    storages->Add(pending_free_.end() - count, pending_free_.end());
    pending_free_.resize(pending_free_.size() - count);
    Append(0, std::move(request), /*ends_work=*/false);
  }
  AppendForgottenModels();
}

}  // namespace djinn
