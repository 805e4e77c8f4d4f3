// Recordings: kept beside what a lane records, and carried out again as a
// whole.
#include <utility>

#include "client_lib/session/execution_flag.h"
#include "client_lib/session/fork_guard.h"
#include "client_lib/session/remote_device.h"
#include "common/error.h"
#include "common/status_macros.h"

namespace djinn {
namespace {

using Source = RecordingPart::Slot::Source;

absl::Status Stale(absl::string_view why) {
  return MakeError(absl::StatusCode::kFailedPrecondition, "STALE_RECORDING",
                   why);
}

}  // namespace

absl::Status RemoteDevice::StartRecording(uint32_t lane) {
  if (IsForkedChild()) return AfterForkError();
  MutexLock lock(&mu_);
  if (!usable_) return Unusable();
  std::unique_ptr<Recorder>& recorder = recordings_[lane];
  if (recorder != nullptr) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "ALREADY_RECORDING",
                     "the thread's calls are being recorded already");
  }
  recorder = std::make_unique<Recorder>();
  if (spans_) {
    recorder->Refuse(kSpansWorkers, "it uses a device that spans workers");
  }
  return absl::OkStatus();
}

void RemoteDevice::RefuseRecording(uint32_t lane, absl::string_view reason,
                                   absl::string_view what) {
  const auto found = recordings_.find(lane);
  if (found != recordings_.end()) found->second->Refuse(reason, what);
}

absl::StatusOr<std::shared_ptr<const Recording>> RemoteDevice::FinishRecording(
    uint32_t lane, absl::Span<RemoteStorage* const> given,
    absl::Span<RemoteStorage* const> outputs, size_t awaited) {
  if (IsForkedChild()) return AfterForkError();
  std::unique_ptr<Recorder> recorder;
  {
    MutexLock lock(&mu_);
    const auto found = recordings_.find(lane);
    if (found == recordings_.end()) {
      return MakeError(absl::StatusCode::kFailedPrecondition, "NOT_RECORDING",
                       "the thread's calls are not being recorded");
    }
    recorder = std::move(found->second);
    recordings_.erase(found);
  }
  return recorder->Finish(given, outputs, awaited);
}

absl::Status RemoteDevice::RecordingRefusal(uint32_t lane) {
  if (IsForkedChild()) return AfterForkError();
  MutexLock lock(&mu_);
  const auto found = recordings_.find(lane);
  return found == recordings_.end() ? absl::OkStatus()
                                    : found->second->refusal();
}

void RemoteDevice::DropRecording(uint32_t lane) {
  if (IsForkedChild()) return;
  std::unique_ptr<Recorder> recorder;  // destroyed without the lock
  MutexLock lock(&mu_);
  const auto found = recordings_.find(lane);
  if (found == recordings_.end()) return;
  recorder = std::move(found->second);
  recordings_.erase(found);
}

absl::StatusOr<std::vector<StoragePtr>> RemoteDevice::Replay(
    uint32_t lane, const std::shared_ptr<const Recording>& recording,
    absl::Span<RemoteStorage* const> given) {
  if (IsForkedChild()) return AfterForkError();
  DJINN_RETURN_IF_ERROR(CheckReplay(*recording, given));
  std::vector<StoragePtr> outputs;
  std::vector<uint64_t> made(recording->made, 0);
  {
    MutexLock lock(&mu_);
    DJINN_RETURN_IF_ERROR(Enter(Caller::kDirect));
    // They count as soon as they are made: not for what is not taken.
    for (const uint64_t bytes : recording->output_bytes) {
      outputs.push_back(role_.owner->NewStorage(bytes));
    }
    RefuseRecording(lane, "NESTED", "it carries out another recording");
    SealedSegments sealed;
    recorder_.SealLane(lane, &sealed);
    QueueSegments(sealed);
    const uint64_t first_made = recorder_.TakeStorageIds(recording->made);
    const bool fast = FastExecution();
    for (size_t part = 0; part < recording->parts.size(); ++part) {
      ReplayWork work = StampReplay(
          recording, part, fast, given,
          [&](uint32_t index) { return recording->kept[index].get(); },
          first_made, outputs, &made);
      statistics_.calls += recording->parts[part].structure.nodes.size();
      const size_t footprint =
          work.bindings.size() * sizeof(RunEncoder::Binding);
      Queue({lane, StoragePtr(), footprint, std::move(work)},
            /*needs_lease=*/true);
      // What the program will read goes ahead of the parts that follow.
      for (const RecordingPart::Slot& slot : recording->parts[part].slots) {
        if (!slot.born || slot.output == RecordingPart::kNoOutput) continue;
        RemoteStorage* const output = outputs[slot.output].get();
        const ReadPredictor::Prediction* const prediction = predictor_.OnOutput(
            lane, recording->number, slot.output, output->id());
        if (prediction != nullptr) QueueForeseen(lane, output, *prediction);
      }
    }
  }
  SendNow();
  return outputs;
}

absl::Status RemoteDevice::ReplayShare(uint32_t lane,
                                       const ShareOfRecording& share,
                                       const ShareBinding& binding) {
  {
    MutexLock lock(&mu_);
    DJINN_RETURN_IF_ERROR(Enter(Caller::kOrdered));
    SealedSegments sealed;
    recorder_.SealLane(lane, &sealed);
    QueueSegments(sealed);
    std::vector<uint64_t> made(share.recording->made, 0);
    // Rows are shared out in fast mode alone: the device looked.
    ReplayWork work = StampReplay(
        share.recording, 0, /*fast=*/true, binding.given,
        [&](uint32_t index) { return binding.kept[index]; },
        recorder_.TakeStorageIds(share.recording->made), binding.outputs,
        &made);
    work.sized = share.structure;
    work.size = share.size;
    statistics_.calls += share.calls;
    const size_t footprint = work.bindings.size() * sizeof(RunEncoder::Binding);
    Queue({lane, StoragePtr(), footprint, std::move(work)},
          /*needs_lease=*/true);
  }
  wakeup_.Set();
  return absl::OkStatus();
}

absl::Status RemoteDevice::CheckReplay(
    const Recording& recording, absl::Span<RemoteStorage* const> given) const {
  if (given.size() != recording.given) {
    return MakeError(absl::StatusCode::kInternal, "GIVEN_STORAGES",
                     "a recording is given another number of storages");
  }
  for (const RemoteStorage* const storage : given) {
    if (storage->device().get() != role_.owner) {
      return Stale(
          "an argument is on another virtual device, or of a session "
          "that was closed");
    }
  }
  for (const StoragePtr& storage : recording.kept) {
    if (storage->device().get() != role_.owner) {
      return Stale(
          "it was recorded on another virtual device, or in a session "
          "that was closed");
    }
    if (storage->dead()) {
      return Stale("a tensor that it used is no longer there");
    }
  }
  return absl::OkStatus();
}

ReplayWork RemoteDevice::StampReplay(
    const std::shared_ptr<const Recording>& recording, size_t part, bool fast,
    absl::Span<RemoteStorage* const> given,
    absl::FunctionRef<RemoteStorage*(uint32_t)> kept, uint64_t first_made,
    absl::Span<const StoragePtr> outputs, std::vector<uint64_t>* made) {
  ReplayWork work{recording, part, fast, nullptr, 0, {}, {}};
  const std::vector<RecordingPart::Slot>& slots = recording->parts[part].slots;
  work.bindings.reserve(slots.size());
  for (const RecordingPart::Slot& slot : slots) {
    RunEncoder::Binding& binding = work.bindings.emplace_back();
    binding.writes = slot.writes;
    binding.reads = slot.reads;
    binding.born = slot.born;
    binding.dies = slot.dies;
    if (slot.source == Source::kMade) {
      binding.id = first_made + slot.index;
      uint64_t& version = (*made)[slot.index];
      binding.base_version = version;
      version += slot.writes;
      if (slot.output != RecordingPart::kNoOutput) {
        RemoteStorage* const storage = outputs[slot.output].get();
        binding.storage = storage;
        storage->id_ = binding.id;
        storage->born_ = true;
        storage->version_ = version;
      }
    } else {
      RemoteStorage* const storage =
          slot.source == Source::kGiven ? given[slot.index] : kept(slot.index);
      SealedSegments sealed;
      recorder_.SealUsers(storage, /*writers_only=*/slot.writes == 0, &sealed);
      QueueSegments(sealed);
      if (!storage->born_) {
        const uint64_t size = storage->size_bytes();
        Queue({0, StoragePtr(storage), 0,
               CreateWork{recorder_.StampWrite(storage), size}},
              /*needs_lease=*/false);
      }
      binding.storage = storage;
      binding.id = storage->id();
      binding.base_version = storage->version_;
      storage->version_ += slot.writes;
    }
    if (binding.storage == nullptr) continue;
    binding.uses = 1;
    binding.storage->unsent_uses_.fetch_add(1, std::memory_order_relaxed);
    work.held.emplace_back(binding.storage);
  }
  return work;
}

}  // namespace djinn
