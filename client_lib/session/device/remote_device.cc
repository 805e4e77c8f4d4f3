#include "client_lib/session/device/remote_device.h"

#include <utility>

#include "absl/base/optimization.h"
#include "client_lib/session/device/outgoing/segment_queue.h"
#include "client_lib/session/device/replica/copies.h"
#include "client_lib/session/device/replica/replica.h"
#include "client_lib/session/model/fork_guard.h"
#include "client_lib/session/model/repeatable.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace djinn {
namespace {

// Time that the destructor waits for the stream.
constexpr absl::Duration kStreamEndTimeout = absl::Seconds(5);

// Returns the storages of the call's unknown results, in order.
std::vector<StoragePtr> UnknownResults(Call* call) {
  const srg::Node node = NodeOf(*call);
  std::vector<StoragePtr> storages;
  for (const srg::Result& result : node.results) {
    if (const auto* unknown = std::get_if<srg::UnknownResult>(&result)) {
      storages.push_back(call->touches()[unknown->slot].storage);
    }
  }
  return storages;
}

}  // namespace

RemoteDevice::RemoteDevice(ReplicaRole role,
                           std::shared_ptr<SessionContext> context)
    : state_(std::move(role), std::move(context)) {
  state_.sender.thread = state_.context->options.threads->Start(
      [this] { replica::SenderLoop(state_); });
}

RemoteDevice::~RemoteDevice() {
  if (IsForkedChild()) {
    // A forked child does not have the threads, and what they held is in an
    // unknown state.
    (void)state_.sender.thread.release();
    return;
  }
  replica::Stop(state_);
  replica::Join(state_,
                Deadline(kStreamEndTimeout, state_.context->options.clock));
  replica::Disconnect(state_);
}

void RemoteDevice::MarkDead(RemoteStorage* storage) {
  replica::Release(state_, storage);
}

absl::Status RemoteDevice::Record(uint32_t lane, Call* call) {
  if (ABSL_PREDICT_FALSE(IsForkedChild())) return AfterForkError();
  if (ABSL_PREDICT_FALSE(call->unknown_results() != 0)) {
    return MakeError(absl::StatusCode::kInternal, "UNKNOWN_RESULT",
                     "a call with unknown results must be waited for");
  }
  DJINN_ASSIGN_OR_RETURN(const CallRecorder::Due due,
                         state_.recorder.Record(lane, call));
  if (ABSL_PREDICT_TRUE(due == CallRecorder::Due::kNothing)) {
    return absl::OkStatus();
  }
  if (due == CallRecorder::Due::kSend) {
    replica::SendNow(state_);
  } else {
    state_.sender.wakeup.Set();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ResultMetadata>> RemoteDevice::RecordAndWait(
    uint32_t lane, Call* call) {
  if (IsForkedChild()) return AfterForkError();
  if (call->unknown_results() == 0) {
    return MakeError(absl::StatusCode::kInternal, "UNKNOWN_RESULT",
                     "the call has no unknown result to wait for");
  }
  const std::vector<StoragePtr> storages = UnknownResults(call);
  const auto wait = std::make_shared<MetadataWait>();
  wait->expected = storages.size();
  DJINN_RETURN_IF_ERROR(state_.recorder.RecordAndWait(lane, call, wait));
  replica::SendNow(state_);
  {
    MutexLock lock(&state_.answers.mu);
    const absl::Status waited =
        state_.answers.Await(wait.get(), [&] { return wait->done; });
    state_.answers.NoteTold(waited);
    DJINN_RETURN_IF_ERROR(waited);
  }
  if (!wait->error.ok()) {
    state_.context->root_errors.AddReported(state_.index, wait->error);
    return wait->error;
  }
  for (size_t i = 0; i < storages.size(); ++i) {
    storages[i]->set_size_bytes(wait->results[i].storage_bytes);
  }
  return std::move(wait->results);
}

absl::Status RemoteDevice::Upload(uint32_t lane, RemoteStorage* storage,
                                  SharedBytes source) {
  absl::Status status =
      state_.uploader.Upload(lane, storage, std::move(source), [this] {
        MutexLock lock(&state_.connection.mu);
        // A multi-worker device tries its workers until one has room. The
        // question costs less than the copies of a message if the worker is
        // near. During a migration the room on the other worker is unknown.
        return !state_.connection.migration.stays &&
               !state_.connection.stream.near &&
               state_.connection.migration.current == nullptr;
      });
  if (ABSL_PREDICT_FALSE(!status.ok())) {
    MutexLock lock(&state_.answers.mu);
    state_.answers.NoteTold(status);
  }
  return status;
}

absl::Status RemoteDevice::Seed(uint32_t lane, RemoteStorage* generator,
                                uint64_t seed) {
  if (IsForkedChild()) return AfterForkError();
  DJINN_RETURN_IF_ERROR(state_.recorder.Write(lane, generator,
                                              SeedWork{0, seed},
                                              /*needs_lease=*/false));
  state_.sender.wakeup.Set();
  return absl::OkStatus();
}

absl::Status RemoteDevice::Resize(uint32_t lane, RemoteStorage* storage,
                                  uint64_t size_bytes) {
  if (IsForkedChild()) return AfterForkError();
  DJINN_RETURN_IF_ERROR(state_.recorder.Resize(lane, storage, size_bytes));
  state_.sender.wakeup.Set();
  return absl::OkStatus();
}

absl::Status RemoteDevice::Read(uint32_t lane, RemoteStorage* storage,
                                const srg::TensorView& view, void* destination,
                                uint64_t bytes) {
  DJINN_ASSIGN_OR_RETURN(const std::shared_ptr<ReadWait> wait,
                         BeginRead(lane, storage, view, destination, bytes));
  return wait == nullptr ? absl::OkStatus()
                         : FinishRead(wait.get(), destination);
}

uint64_t RemoteDevice::VersionOf(const RemoteStorage& storage) {
  if (ABSL_PREDICT_FALSE(IsForkedChild())) return 0;
  return state_.recorder.VersionOf(storage);
}

HostValuePtr RemoteDevice::FindHostValue(const StorageAt& storage) {
  if (ABSL_PREDICT_FALSE(IsForkedChild())) return nullptr;
  return state_.recorder.FindHostValue(storage);
}

void RemoteDevice::KeepHostValue(const StorageAt& written,
                                 absl::Span<const StorageAt> operands,
                                 HostValuePtr value, bool readable) {
  if (ABSL_PREDICT_FALSE(IsForkedChild())) return;
  state_.recorder.KeepHostValue(written, operands, std::move(value), readable);
}

absl::StatusOr<std::vector<StoragePtr>> RemoteDevice::Replay(
    uint32_t lane, const std::shared_ptr<const CapturedGraph>& captured_graph,
    absl::Span<RemoteStorage* const> given,
    std::shared_ptr<const CapturedNumbers> numbers) {
  if (IsForkedChild()) return AfterForkError();
  std::vector<StoragePtr> outputs;
  DJINN_RETURN_IF_ERROR(state_.recorder.Replay(lane, captured_graph, given,
                                               std::move(numbers), &outputs));
  replica::SendNow(state_);
  return outputs;
}

absl::Status RemoteDevice::ReplayShare(uint32_t lane, const GraphShare& share,
                                       const ShareBinding& binding) {
  DJINN_RETURN_IF_ERROR(state_.recorder.ReplayShare(lane, share, binding));
  state_.sender.wakeup.Set();
  return absl::OkStatus();
}

absl::Status RemoteDevice::Pull(uint32_t lane, RemoteStorage* storage,
                                PullWork pull) {
  if (IsForkedChild()) return AfterForkError();
  DJINN_RETURN_IF_ERROR(state_.recorder.Write(lane, storage, std::move(pull),
                                              /*needs_lease=*/true));
  {
    MutexLock lock(&state_.answers.mu);
    ++state_.answers.statistics.device_copies;
  }
  state_.sender.wakeup.Set();
  return absl::OkStatus();
}

absl::StatusOr<PullWork> RemoteDevice::Offer(uint32_t lane,
                                             RemoteStorage* storage,
                                             OfferRank rank) {
  if (IsForkedChild()) return AfterForkError();
  bool keeps = false;
  bool tainted = false;
  {
    MutexLock lock(&state_.connection.mu);
    const auto& lineage = state_.connection.lineage;
    keeps = lineage != nullptr;
    tainted = keeps && lineage->tainted();
  }
  // Only the answer to a read has the error of a value that must not be shown.
  if (tainted) DJINN_RETURN_IF_ERROR(CheckSound(lane, storage));
  if (rank.round == 0) {
    rank.round = state_.context->rounds.load(std::memory_order_relaxed);
  }
  const uint64_t size = storage->size_bytes();
  PullWork pull;
  StoragePtr copy;
  CopyNeeded needed;
  if (keeps) {
    copy = StoragePtr(new RemoteStorage(
        /*id=*/0, state_.role.owner->shared_from_this(), size));
    pull.kept = std::make_shared<KeptCopy>(copy, &state_);
    needed = pull.kept->needed();
  }
  OfferWork offer = replica::NewOffer(state_);
  offer.rank = rank;
  DJINN_RETURN_IF_ERROR(replica::QueueHere(
      state_,
      [&](CallRecorder::Admit admit) {
        return state_.recorder.Offer(lane, storage, copy.get(), needed, &offer,
                                     admit);
      },
      [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.connection.mu) {
        pull.offered = replica::Describe(state_, size, &offer);
        if (keeps) {
          pull.kept->upload =
              replica::UploadOf(state_, SegmentQueue::VersionAt(*storage));
        }
      }));
  state_.sender.wakeup.Set();
  return pull;
}

WorkerDescription RemoteDevice::Facts() const {
  MutexLock lock(&state_.connection.mu);
  return state_.connection.facts;
}

double RemoteDevice::LinkFrom(const std::string& worker_id) const {
  MutexLock lock(&state_.connection.mu);
  return state_.connection.links.BytesPerSecond(worker_id,
                                                replica::Now(state_));
}

void RemoteDevice::Ship(uint32_t lane) {
  if (state_.recorder.Seal(lane)) state_.sender.wakeup.Set();
}

absl::Status RemoteDevice::Discard(uint32_t lane, RemoteStorage* storage) {
  if (!state_.recorder.IsCreated(*storage)) return failure();
  DJINN_RETURN_IF_ERROR(state_.recorder.Write(lane, storage, CreateWork{0, 0},
                                              /*needs_lease=*/false));
  state_.sender.wakeup.Set();
  return absl::OkStatus();
}

absl::Status RemoteDevice::RegisterModel(uint32_t lane, uint64_t model_id,
                                         absl::string_view name,
                                         std::vector<StoragePtr> storages) {
  if (IsForkedChild()) return AfterForkError();
  return replica::RegisterModel(state_, lane, model_id, name,
                                std::move(storages));
}

void RemoteDevice::ForgetModel(uint64_t model_id) {
  if (!IsForkedChild()) replica::ForgetModel(state_, model_id);
}

absl::StatusOr<DevicePlacement> RemoteDevice::Placement() {
  if (IsForkedChild()) return AfterForkError();
  return replica::Placement(state_);
}

absl::Status RemoteDevice::CatchUp() { return replica::CatchUp(state_); }

void RemoteDevice::StayAtWorker() {
  MutexLock lock(&state_.connection.mu);
  state_.connection.migration.stays = true;
}

void RemoteDevice::FailWith(const absl::Status& failure) {
  replica::Fail(state_, failure, /*by_itself=*/false);
}

absl::Status RemoteDevice::failure() const {
  MutexLock lock(&state_.connection.mu);
  return state_.connection.end.usable() ? absl::OkStatus()
                                        : state_.connection.end.Reason();
}

}  // namespace djinn
