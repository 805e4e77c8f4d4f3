#include "client_lib/session/device/outgoing/call_recorder.h"

#include "absl/base/optimization.h"
#include "client_lib/session/model/debug_flags.h"
#include "client_lib/session/model/execution_flag.h"
#include "client_lib/session/stream/worker_greeting.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace djinn {
namespace {

// Prefetched values travel inside a reply, whatever the worker's limits are.
static_assert(ReadPredictor::kMaxBytes <= kLeastInlineBytes);

// Limits on small uploads that wait until something else wakes the sender.
constexpr size_t kQuietMessages = 16;
constexpr uint64_t kQuietBytes = 256 << 10;

absl::Status Stale(absl::string_view why) {
  return MakeError(absl::StatusCode::kFailedPrecondition, "STALE_RECORDING",
                   why);
}

// Returns a number that no other live thread has.
uint64_t ThisThread() {
  thread_local const char mark = 0;
  return reinterpret_cast<uintptr_t>(&mark);
}

// Prepares the read for latency measurements while the program is profiled.
void AddMarks(ReadWait* wait) {
  if (ABSL_PREDICT_FALSE(debug::Has(debug::kProfile))) {
    wait->marks = std::make_unique<ReadMarks>();
  }
}

// Returns whether a device may execute the captured graph with these inputs.
absl::Status CheckReplay(const VirtualDevice* owner,
                         const CapturedGraph& captured_graph,
                         absl::Span<RemoteStorage* const> given) {
  if (given.size() != captured_graph.given) {
    return MakeError(absl::StatusCode::kInternal, "GIVEN_STORAGES",
                     "a captured graph is given another number of storages");
  }
  for (const RemoteStorage* const storage : given) {
    if (storage->device().get() != owner) {
      return Stale(
          "an argument is on another virtual device, or of a session "
          "that was closed");
    }
  }
  for (const StoragePtr& storage : captured_graph.kept) {
    if (storage->device().get() != owner) {
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

}  // namespace

CallRecorder::CallRecorder(VirtualDevice* owner, WorkQueue* queue,
                           WindowWaiter* window, uint64_t first_storage_id)
    : owner_(owner),
      queue_(queue),
      window_(window),
      work_(queue, first_storage_id) {}

absl::Status CallRecorder::Enter() {
  if (ABSL_PREDICT_TRUE(closed_.ok() && !queue_->full())) {
    return absl::OkStatus();
  }
  return EnterSlow();
}

absl::Status CallRecorder::EnterSlow() {
  while (closed_.ok() && queue_->full()) {
    mu_.Unlock();
    const absl::Status waited = window_->AwaitWindow();
    mu_.Lock();
    if (closed_.ok() && queue_->full()) DJINN_RETURN_IF_ERROR(waited);
  }
  if (!closed_.ok()) refused_.store(true, std::memory_order_release);
  return closed_;
}

absl::StatusOr<CallRecorder::Due> CallRecorder::Record(uint32_t lane,
                                                       Call* call) {
  SealedSegments sealed;
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(Enter());
  DJINN_RETURN_IF_ERROR(work_.segments().Check(call, owner_));
  const Segment* const segment =
      work_.segments().Record(lane, call, &sealed, ThisThread());
  ++statistics_.calls;
  const ReadPredictor::Prediction* const prediction =
      predictor_.OnCall(*segment);
  if (ABSL_PREDICT_TRUE(prediction == nullptr)) {
    if (ABSL_PREDICT_TRUE(sealed.empty())) return Due::kNothing;
    work_.Queue(sealed);
    return Due::kWake;
  }
  const absl::Span<const Touch> touches = segment->touches_of_last_call();
  RemoteStorage* const storage = touches[prediction->touch].storage.get();
  work_.segments().SealWriters(lane, storage, &sealed);
  work_.Queue(sealed);
  Prefetch(lane, storage, *prediction);
  return Due::kSend;
}

absl::Status CallRecorder::RecordAndWait(uint32_t lane, Call* call,
                                         std::shared_ptr<MetadataWait> wait) {
  SealedSegments sealed;
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(Enter());
  DJINN_RETURN_IF_ERROR(work_.segments().Check(call, owner_));
  work_.segments().Record(lane, call, &sealed, ThisThread());
  work_.segments().SealLane(lane, &sealed);
  // The call's own segment is the last of those sealed here.
  sealed.back()->wants_metadata = true;
  ++statistics_.calls;
  ++statistics_.synchronous_calls;
  work_.Queue(sealed, std::move(wait));
  return absl::OkStatus();
}

absl::Status CallRecorder::WriteWith(uint32_t lane, RemoteStorage* storage,
                                     uint64_t* base_version, bool needs_lease,
                                     absl::FunctionRef<Work::Action()> action) {
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(Enter());
  work_.SealUsers(storage, /*writers_only=*/false);
  *base_version = work_.segments().StampWrite(storage);
  queue_->Push({lane, StoragePtr(storage), 0, action()}, needs_lease);
  return absl::OkStatus();
}

absl::Status CallRecorder::Resize(uint32_t lane, RemoteStorage* storage,
                                  uint64_t size_bytes) {
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(Enter());
  storage->set_size_bytes(size_bytes);
  if (!storage->created_) return absl::OkStatus();
  work_.SealUsers(storage, /*writers_only=*/false);
  queue_->Push({lane, StoragePtr(storage), 0,
                CreateWork{work_.segments().StampWrite(storage), size_bytes}},
               /*needs_lease=*/false);
  return absl::OkStatus();
}

absl::Status CallRecorder::Install(uint32_t lane, RemoteStorage* storage,
                                   InstallWork install, bool* quiet) {
  const bool copied = install.wait == nullptr;
  const bool eager = install.eager;
  const size_t footprint = install.copy.size();
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(Enter());
  const bool sealed = work_.SealUsers(storage, /*writers_only=*/false);
  install.base_version = work_.segments().StampWrite(storage);
  queue_->Push({lane, StoragePtr(storage), footprint, std::move(install)},
               /*needs_lease=*/!copied);
  // A small upload by itself can wait until something uses it, unless a thread
  // waits for the room that it takes.
  const WorkQueue::Size size = queue_->size();
  *quiet = copied && !eager && size.works < kQuietMessages &&
           size.bytes < kQuietBytes && !sealed && !queue_->full();
  return absl::OkStatus();
}

absl::Status CallRecorder::Read(uint32_t lane, RemoteStorage* storage,
                                const srg::TensorView& view,
                                std::shared_ptr<ReadWait>* wait,
                                absl::FunctionRef<void(ReadWait*)> prepare) {
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(Enter());
  ++statistics_.reads;
  predictor_.OnRead(lane, storage->id(), view, (*wait)->bytes);
  AddMarks(wait->get());
  if (auto prefetched =
          prefetched_.Take(SegmentQueue::VersionAt(*storage), view)) {
    *wait = std::move(prefetched);
    prepare(wait->get());
  } else {
    work_.SealUsers(storage, /*writers_only=*/true);
    prepare(wait->get());
    work_.Read(lane, storage, view, *wait);
  }
  // Calls that the value does not depend on follow the read. A training step's
  // loss thus returns before the calls recorded after it execute.
  work_.SealLane(lane);
  return absl::OkStatus();
}

absl::Status CallRecorder::ReadQuietly(uint32_t lane, RemoteStorage* storage,
                                       const srg::TensorView& view,
                                       const std::shared_ptr<ReadWait>& wait) {
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(Enter());
  work_.SealUsers(storage, /*writers_only=*/true);
  work_.Read(lane, storage, view, wait);
  return absl::OkStatus();
}

HostValuePtr CallRecorder::FindReadable(const RemoteStorage& storage) {
  MutexLock lock(&mu_);
  return host_values_.FindReadable(SegmentQueue::VersionAt(storage));
}

absl::Status CallRecorder::NoteAnswered(uint32_t lane) {
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(Enter());
  ++statistics_.reads;
  ++statistics_.reads_answered_here;
  // Segments are cut as if the worker had answered.
  predictor_.OnAnswered(lane);
  work_.SealLane(lane);
  return absl::OkStatus();
}

absl::Status CallRecorder::QueueBehind(absl::Span<const StoragePtr> storages,
                                       Work work, Admit admit) {
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(Enter());
  for (const StoragePtr& storage : storages) {
    work_.SealUsers(storage.get(), /*writers_only=*/true);
  }
  admit([&] { queue_->Push(std::move(work), /*needs_lease=*/true); });
  return absl::OkStatus();
}

absl::Status CallRecorder::QueueBehindAll(Work work, Admit admit) {
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(Enter());
  work_.SealAll();
  admit([&] { queue_->Push(std::move(work), /*needs_lease=*/true); });
  return absl::OkStatus();
}

absl::Status CallRecorder::Offer(uint32_t lane, RemoteStorage* storage,
                                 RemoteStorage* kept, const CopyNeeded& needed,
                                 const OfferWork* offer, Admit admit) {
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(Enter());
  work_.SealUsers(storage, /*writers_only=*/true);
  admit([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    work_.Create(lane, storage, /*needs_lease=*/true);
    if (kept == nullptr) {
      return queue_->Push(
          {lane, StoragePtr(storage), 0, CompleteOffer(storage, *offer)},
          /*needs_lease=*/true);
    }
    storage->unsent_uses_.fetch_add(1, std::memory_order_relaxed);
    queue_->Push({lane, StoragePtr(kept), 0,
                  CopyWork{work_.segments().StampWrite(kept),
                           StoragePtr(storage), storage->version_, needed}},
                 /*needs_lease=*/true);
    queue_->Push({lane, StoragePtr(kept), 0, CompleteOffer(kept, *offer)},
                 /*needs_lease=*/true);
  });
  return absl::OkStatus();
}

absl::Status CallRecorder::OfferAgain(RemoteStorage* kept,
                                      const OfferWork* offer, Admit admit) {
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(closed_);
  admit([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    queue_->PushFirst(
        {/*lane=*/0, StoragePtr(kept), 0, CompleteOffer(kept, *offer)});
  });
  return absl::OkStatus();
}

OfferWork CallRecorder::CompleteOffer(RemoteStorage* storage, OfferWork offer) {
  storage->unsent_uses_.fetch_add(1, std::memory_order_relaxed);
  offer.version = storage->version_;
  return offer;
}

void CallRecorder::Prefetch(uint32_t lane, RemoteStorage* storage,
                            const ReadPredictor::Prediction& prediction) {
  // The storage may be smaller than the one that the prediction was made from.
  const absl::StatusOr<uint64_t> extent = srg::ExtentBytes(prediction.view);
  if (!extent.ok() || *extent > storage->size_bytes()) return;
  auto wait = std::make_shared<ReadWait>(nullptr, prediction.bytes);
  AddMarks(wait.get());
  work_.Read(lane, storage, prediction.view, wait);
  prefetched_.Add(SegmentQueue::VersionAt(*storage), prediction.view,
                  std::move(wait));
}

absl::Status CallRecorder::Replay(
    uint32_t lane, const std::shared_ptr<const CapturedGraph>& captured_graph,
    absl::Span<RemoteStorage* const> given,
    const std::shared_ptr<const CapturedNumbers>& numbers,
    std::vector<StoragePtr>* outputs) {
  DJINN_RETURN_IF_ERROR(CheckReplay(owner_, *captured_graph, given));
  std::vector<uint64_t> made(captured_graph->made, 0);
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(Enter());
  // Output storages count from their creation, so they are created only once
  // the call is taken.
  for (const uint64_t bytes : captured_graph->output_bytes) {
    outputs->push_back(owner_->NewStorage(bytes));
  }
  work_.SealLane(lane);
  const uint64_t first_made =
      work_.segments().TakeStorageIds(captured_graph->made);
  const RunMode mode = CurrentRunMode();
  for (size_t part = 0; part < captured_graph->parts.size(); ++part) {
    ReplayWork work = work_.StampReplay(
        captured_graph, part, mode, given,
        [&](uint32_t index) { return captured_graph->kept[index].get(); },
        first_made, *outputs, &made);
    work.numbers = numbers;
    statistics_.calls += captured_graph->parts[part].graph.nodes.size();
    const size_t footprint = work.bindings.size() * sizeof(RunBinding);
    queue_->Push({lane, StoragePtr(), footprint, std::move(work)},
                 /*needs_lease=*/true);
    // A value that the program will read is requested before the parts that
    // follow.
    for (const CapturedPart::Slot& slot : captured_graph->parts[part].slots) {
      if (!slot.created || slot.output == CapturedPart::kNoOutput) continue;
      RemoteStorage* const output = (*outputs)[slot.output].get();
      const ReadPredictor::Prediction* const prediction = predictor_.OnOutput(
          lane, captured_graph->number, slot.output, output->id());
      if (prediction != nullptr) Prefetch(lane, output, *prediction);
    }
  }
  return absl::OkStatus();
}

absl::Status CallRecorder::ReplayShare(uint32_t lane, const Share& share,
                                       const ShareBinding& binding) {
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(Enter());
  work_.SealLane(lane);
  std::vector<uint64_t> made(share.captured_graph->made, 0);
  // The device divides rows in fast mode only, and checked the mode.
  RunMode mode = CurrentRunMode();
  mode.fast = true;
  ReplayWork work = work_.StampReplay(
      share.captured_graph, 0, mode, binding.given,
      [&](uint32_t index) { return binding.kept[index]; },
      work_.segments().TakeStorageIds(share.captured_graph->made),
      binding.outputs, &made);
  work.sized = share.graph;
  work.size = share.size;
  statistics_.calls += share.calls;
  const size_t footprint = work.bindings.size() * sizeof(RunBinding);
  queue_->Push({lane, StoragePtr(), footprint, std::move(work)},
               /*needs_lease=*/true);
  return absl::OkStatus();
}

bool CallRecorder::Seal(uint32_t lane) {
  MutexLock lock(&mu_);
  return work_.SealLane(lane);
}

void CallRecorder::SealAll() {
  MutexLock lock(&mu_);
  work_.SealAll();
}

bool CallRecorder::HasOpenSegments() const {
  MutexLock lock(&mu_);
  return work_.segments().HasOpenSegments();
}

void CallRecorder::Close(absl::Status reason) {
  MutexLock lock(&mu_);
  if (closed_.ok()) closed_ = std::move(reason);
}

void CallRecorder::Fail(absl::Status reason) {
  MutexLock lock(&mu_);
  closed_ = std::move(reason);
}

void CallRecorder::DropOpenSegments() {
  SealedSegments sealed;
  {
    MutexLock lock(&mu_);
    work_.segments().SealAll(&sealed);
  }
  for (Segment* const segment : sealed) segment->Clear();
}

bool CallRecorder::IsCreated(const RemoteStorage& storage) const {
  MutexLock lock(&mu_);
  return storage.created_;
}

uint64_t CallRecorder::VersionOf(const RemoteStorage& storage) const {
  MutexLock lock(&mu_);
  return storage.version_;
}

HostValuePtr CallRecorder::FindHostValue(const StorageAt& storage) {
  MutexLock lock(&mu_);
  if (storage.storage->version_ != storage.version) return nullptr;
  return host_values_.Find(SegmentQueue::VersionAt(*storage.storage));
}

void CallRecorder::KeepHostValue(const StorageAt& written,
                                 absl::Span<const StorageAt> operands,
                                 HostValuePtr value, bool readable) {
  MutexLock lock(&mu_);
  if (written.storage->version_ != written.version) return;
  for (const StorageAt& operand : operands) {
    if (operand.storage->version_ != operand.version) return;
  }
  host_values_.Keep(SegmentQueue::VersionAt(*written.storage), std::move(value),
                    readable);
}

void CallRecorder::ForgetHostValues() {
  MutexLock lock(&mu_);
  host_values_.Clear();
}

void CallRecorder::AddStatistics(Statistics* sum) const {
  MutexLock lock(&mu_);
  sum->calls += statistics_.calls;
  sum->synchronous_calls += statistics_.synchronous_calls;
  sum->reads += statistics_.reads;
  sum->reads_answered_here += statistics_.reads_answered_here;
}

}  // namespace djinn
