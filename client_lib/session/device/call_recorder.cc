#include "client_lib/session/device/call_recorder.h"

#include "absl/base/optimization.h"
#include "client_lib/session/model/debug_flags.h"
#include "client_lib/session/model/execution_flag.h"
#include "client_lib/session/stream/worker_greeting.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace djinn {
namespace {

using Source = RecordingPart::Slot::Source;

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
absl::Status CheckReplay(const VirtualDevice* owner, const Recording& recording,
                         absl::Span<RemoteStorage* const> given) {
  if (given.size() != recording.given) {
    return MakeError(absl::StatusCode::kInternal, "GIVEN_STORAGES",
                     "a recording is given another number of storages");
  }
  for (const RemoteStorage* const storage : given) {
    if (storage->device().get() != owner) {
      return Stale(
          "an argument is on another virtual device, or of a session "
          "that was closed");
    }
  }
  for (const StoragePtr& storage : recording.kept) {
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
    : owner_(owner), queue_(queue), window_(window) {
  MutexLock lock(&mu_);
  segments_.NumberStoragesFrom(first_storage_id);
}

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
  return closed_;
}

absl::StatusOr<CallRecorder::Due> CallRecorder::Record(uint32_t lane,
                                                       Call* call) {
  SealedSegments sealed;
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(Enter());
  DJINN_RETURN_IF_ERROR(segments_.Check(call, owner_));
  const Segment* const segment =
      segments_.Record(lane, call, &sealed, ThisThread());
  ++statistics_.calls;
  const ReadPredictor::Prediction* const prediction =
      predictor_.OnCall(*segment);
  if (ABSL_PREDICT_TRUE(prediction == nullptr)) {
    if (ABSL_PREDICT_TRUE(sealed.empty())) return Due::kNothing;
    QueueSegments(sealed);
    return Due::kWake;
  }
  const absl::Span<const Touch> touches = segment->touches_of_last_call();
  RemoteStorage* const storage = touches[prediction->touch].storage.get();
  segments_.SealWriters(lane, storage, &sealed);
  QueueSegments(sealed);
  Prefetch(lane, storage, *prediction);
  return Due::kSend;
}

absl::Status CallRecorder::RecordAndWait(uint32_t lane, Call* call,
                                         std::shared_ptr<MetadataWait> wait) {
  SealedSegments sealed;
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(Enter());
  DJINN_RETURN_IF_ERROR(segments_.Check(call, owner_));
  segments_.Record(lane, call, &sealed, ThisThread());
  segments_.SealLane(lane, &sealed);
  // The call's own segment is the last of those sealed here.
  sealed.back()->wants_metadata = true;
  ++statistics_.calls;
  ++statistics_.synchronous_calls;
  QueueSegments(sealed, std::move(wait));
  return absl::OkStatus();
}

absl::Status CallRecorder::WriteWith(uint32_t lane, RemoteStorage* storage,
                                     uint64_t* base_version, bool needs_lease,
                                     absl::FunctionRef<Work::Action()> action) {
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(Enter());
  SealUsers(storage, /*writers_only=*/false);
  *base_version = segments_.StampWrite(storage);
  queue_->Push({lane, StoragePtr(storage), 0, action()}, needs_lease);
  return absl::OkStatus();
}

absl::Status CallRecorder::Resize(uint32_t lane, RemoteStorage* storage,
                                  uint64_t size_bytes) {
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(Enter());
  storage->set_size_bytes(size_bytes);
  if (!storage->born_) return absl::OkStatus();
  SealUsers(storage, /*writers_only=*/false);
  queue_->Push({lane, StoragePtr(storage), 0,
                CreateWork{segments_.StampWrite(storage), size_bytes}},
               /*needs_lease=*/false);
  return absl::OkStatus();
}

absl::Status CallRecorder::Install(uint32_t lane, RemoteStorage* storage,
                                   InstallWork install, bool* quiet) {
  const bool copied = install.wait == nullptr;
  const bool eager = install.eager;
  const size_t footprint = install.copy.size();
  SealedSegments sealed;
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(Enter());
  segments_.SealUsers(storage, /*writers_only=*/false, &sealed);
  QueueSegments(sealed);
  install.base_version = segments_.StampWrite(storage);
  queue_->Push({lane, StoragePtr(storage), footprint, std::move(install)},
               /*needs_lease=*/!copied);
  // A small upload by itself can wait until something uses it, unless a thread
  // waits for the room that it takes.
  const WorkQueue::Size size = queue_->size();
  *quiet = copied && !eager && size.works < kQuietMessages &&
           size.bytes < kQuietBytes && sealed.empty() && !queue_->full();
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
  if (auto prefetched = prefetched_.Take(VersionAt(*storage), view)) {
    *wait = std::move(prefetched);
    prepare(wait->get());
  } else {
    SealUsers(storage, /*writers_only=*/true);
    prepare(wait->get());
    QueueRead(lane, storage, view, *wait);
  }
  // Calls that the value does not depend on follow the read. A training step's
  // loss thus returns before the calls recorded after it execute.
  SealLane(lane);
  return absl::OkStatus();
}

absl::Status CallRecorder::ReadQuietly(uint32_t lane, RemoteStorage* storage,
                                       const srg::TensorView& view,
                                       const std::shared_ptr<ReadWait>& wait) {
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(Enter());
  SealUsers(storage, /*writers_only=*/true);
  QueueRead(lane, storage, view, wait);
  return absl::OkStatus();
}

HostValuePtr CallRecorder::FindReadable(const RemoteStorage& storage) {
  MutexLock lock(&mu_);
  return host_values_.FindReadable(VersionAt(storage));
}

absl::Status CallRecorder::NoteAnswered(uint32_t lane) {
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(Enter());
  ++statistics_.reads;
  ++statistics_.reads_answered_here;
  // Segments are cut as if the worker had answered.
  predictor_.OnAnswered(lane);
  SealLane(lane);
  return absl::OkStatus();
}

absl::Status CallRecorder::QueueBehind(absl::Span<const StoragePtr> storages,
                                       Work work, Admit admit) {
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(Enter());
  for (const StoragePtr& storage : storages) {
    SealUsers(storage.get(), /*writers_only=*/true);
  }
  admit([&] { queue_->Push(std::move(work), /*needs_lease=*/true); });
  return absl::OkStatus();
}

absl::Status CallRecorder::QueueBehindAll(Work work, Admit admit) {
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(Enter());
  SealedSegments sealed;
  segments_.SealAll(&sealed);
  QueueSegments(sealed);
  admit([&] { queue_->Push(std::move(work), /*needs_lease=*/true); });
  return absl::OkStatus();
}

absl::Status CallRecorder::Offer(uint32_t lane, RemoteStorage* storage,
                                 OfferWork offer, Admit admit) {
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(Enter());
  SealUsers(storage, /*writers_only=*/true);
  admit([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    QueueBirth(lane, storage, /*needs_lease=*/true);
    storage->unsent_uses_.fetch_add(1, std::memory_order_relaxed);
    offer.version = storage->version_;
    queue_->Push({lane, StoragePtr(storage), 0, std::move(offer)},
                 /*needs_lease=*/true);
  });
  return absl::OkStatus();
}

void CallRecorder::QueueSegments(const SealedSegments& sealed,
                                 std::shared_ptr<MetadataWait> metadata) {
  if (sealed.empty()) return;
  for (Segment* const cleared : queue_->TakeCleared()) {
    segments_.Recycle(cleared);
  }
  for (Segment* segment : sealed) {
    Work work{segment->lane(), StoragePtr(), segment->footprint_bytes(),
              RunWork{segment, nullptr}};
    if (segment == sealed.back()) {
      std::get<RunWork>(work.action).metadata = std::move(metadata);
    }
    queue_->Push(std::move(work), /*needs_lease=*/true);
  }
}

void CallRecorder::SealUsers(RemoteStorage* storage, bool writers_only) {
  SealedSegments sealed;
  segments_.SealUsers(storage, writers_only, &sealed);
  QueueSegments(sealed);
}

void CallRecorder::QueueBirth(uint32_t lane, RemoteStorage* storage,
                              bool needs_lease) {
  if (storage->born_) return;
  const uint64_t size = storage->size_bytes();
  queue_->Push({lane, StoragePtr(storage), 0,
                CreateWork{segments_.StampWrite(storage), size}},
               needs_lease);
}

void CallRecorder::QueueRead(uint32_t lane, RemoteStorage* storage,
                             const srg::TensorView& view,
                             const std::shared_ptr<ReadWait>& wait) {
  QueueBirth(lane, storage, /*needs_lease=*/true);
  storage->unsent_uses_.fetch_add(1, std::memory_order_relaxed);
  queue_->Push(
      {lane, StoragePtr(storage), 0, ReadWork{storage->version_, view, wait}},
      /*needs_lease=*/true);
}

void CallRecorder::Prefetch(uint32_t lane, RemoteStorage* storage,
                            const ReadPredictor::Prediction& prediction) {
  // The storage may be smaller than the one that the prediction was made from.
  const absl::StatusOr<uint64_t> extent = srg::ExtentBytes(prediction.view);
  if (!extent.ok() || *extent > storage->size_bytes()) return;
  auto wait = std::make_shared<ReadWait>(nullptr, prediction.bytes);
  AddMarks(wait.get());
  QueueRead(lane, storage, prediction.view, wait);
  prefetched_.Add(VersionAt(*storage), prediction.view, std::move(wait));
}

absl::Status CallRecorder::Replay(
    uint32_t lane, const std::shared_ptr<const Recording>& recording,
    absl::Span<RemoteStorage* const> given, std::vector<StoragePtr>* outputs) {
  DJINN_RETURN_IF_ERROR(CheckReplay(owner_, *recording, given));
  std::vector<uint64_t> made(recording->made, 0);
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(Enter());
  // Output storages count from their creation, so they are created only once
  // the call is taken.
  for (const uint64_t bytes : recording->output_bytes) {
    outputs->push_back(owner_->NewStorage(bytes));
  }
  SealLane(lane);
  const uint64_t first_made = segments_.TakeStorageIds(recording->made);
  const bool fast = FastExecution();
  for (size_t part = 0; part < recording->parts.size(); ++part) {
    ReplayWork work = StampReplay(
        recording, part, fast, given,
        [&](uint32_t index) { return recording->kept[index].get(); },
        first_made, *outputs, &made);
    statistics_.calls += recording->parts[part].graph.nodes.size();
    const size_t footprint = work.bindings.size() * sizeof(RunEncoder::Binding);
    queue_->Push({lane, StoragePtr(), footprint, std::move(work)},
                 /*needs_lease=*/true);
    // A value that the program will read is requested before the parts that
    // follow.
    for (const RecordingPart::Slot& slot : recording->parts[part].slots) {
      if (!slot.born || slot.output == RecordingPart::kNoOutput) continue;
      RemoteStorage* const output = (*outputs)[slot.output].get();
      const ReadPredictor::Prediction* const prediction = predictor_.OnOutput(
          lane, recording->number, slot.output, output->id());
      if (prediction != nullptr) Prefetch(lane, output, *prediction);
    }
  }
  return absl::OkStatus();
}

absl::Status CallRecorder::ReplayShare(uint32_t lane, const Share& share,
                                       const ShareBinding& binding) {
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(Enter());
  SealLane(lane);
  std::vector<uint64_t> made(share.recording->made, 0);
  // The device divides rows in fast mode only, and checked the mode.
  ReplayWork work = StampReplay(
      share.recording, 0, /*fast=*/true, binding.given,
      [&](uint32_t index) { return binding.kept[index]; },
      segments_.TakeStorageIds(share.recording->made), binding.outputs, &made);
  work.sized = share.graph;
  work.size = share.size;
  statistics_.calls += share.calls;
  const size_t footprint = work.bindings.size() * sizeof(RunEncoder::Binding);
  queue_->Push({lane, StoragePtr(), footprint, std::move(work)},
               /*needs_lease=*/true);
  return absl::OkStatus();
}

ReplayWork CallRecorder::StampReplay(
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
      SealUsers(storage, /*writers_only=*/slot.writes == 0);
      QueueBirth(0, storage, /*needs_lease=*/false);
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

bool CallRecorder::Seal(uint32_t lane) {
  MutexLock lock(&mu_);
  return SealLane(lane);
}

bool CallRecorder::SealLane(uint32_t lane) {
  SealedSegments sealed;
  segments_.SealLane(lane, &sealed);
  QueueSegments(sealed);
  return !sealed.empty();
}

void CallRecorder::SealAll() {
  MutexLock lock(&mu_);
  SealedSegments sealed;
  segments_.SealAll(&sealed);
  QueueSegments(sealed);
}

bool CallRecorder::HasOpenSegments() const {
  MutexLock lock(&mu_);
  return segments_.HasOpenSegments();
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
    segments_.SealAll(&sealed);
  }
  for (Segment* const segment : sealed) segment->Clear();
}

bool CallRecorder::IsBorn(const RemoteStorage& storage) const {
  MutexLock lock(&mu_);
  return storage.born_;
}

uint64_t CallRecorder::VersionOf(const RemoteStorage& storage) const {
  MutexLock lock(&mu_);
  return storage.version_;
}

HostValuePtr CallRecorder::FindHostValue(const StorageAt& storage) {
  MutexLock lock(&mu_);
  if (storage.storage->version_ != storage.version) return nullptr;
  return host_values_.Find(VersionAt(*storage.storage));
}

void CallRecorder::KeepHostValue(const StorageAt& written,
                                 absl::Span<const StorageAt> operands,
                                 HostValuePtr value, bool readable) {
  MutexLock lock(&mu_);
  if (written.storage->version_ != written.version) return;
  for (const StorageAt& operand : operands) {
    if (operand.storage->version_ != operand.version) return;
  }
  host_values_.Keep(VersionAt(*written.storage), std::move(value), readable);
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
