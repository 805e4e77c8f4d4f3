#include "gpu_worker/device/cuda/testing/fake_accelerator.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

#include "ATen/CPUGeneratorImpl.h"
#include "c10/util/Exception.h"

namespace djinn::worker {
namespace {

constexpr size_t kStreams = 3;
static_assert(StreamId::kCompute == StreamId{0});
size_t Index(StreamId stream) { return static_cast<size_t>(stream); }

struct Event final : AcceleratorEvent {
  Event(size_t stream, uint64_t position)
      : stream(stream), position(position) {}
  const size_t stream;
  // The number of commands that were enqueued before the event.
  const uint64_t position;
};

}  // namespace

// Outlives all memory, because every allocation holds a reference.
struct FakeAccelerator::State {
  struct Task {
    std::function<void()> work;
    // Addresses in device memory that the task touches.
    std::vector<const void*> touched;
    // The event to wait for; set instead of `work`.
    std::shared_ptr<Event> behind;
    // The number of commands that the compute stream must have done before.
    uint64_t computed = 0;
  };
  struct Memory {
    uint64_t bytes = 0;
    size_t owner = 0;
    std::set<size_t> used_by;
  };

  // Executes the stream's commands before `position`.
  void RunUntil(size_t stream, uint64_t position)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    while (done[stream] < position) {
      Task task = std::move(tasks[stream].front());
      tasks[stream].pop_front();
      ++done[stream];
      if (task.behind != nullptr) {
        RunUntil(task.behind->stream, task.behind->position);
      } else {
        if (done[0] < task.computed) ++read_too_early;
        task.work();
      }
    }
  }
  uint64_t Asked(size_t stream) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return done[stream] + tasks[stream].size();
  }
  // Returns whether the compute stream may write the memory.
  bool IsComputed(const void* at) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    auto* const place = static_cast<char*>(const_cast<void*>(at));
    auto next = memory.upper_bound(place);
    // PyTorch's operators allocated memory that is not listed here.
    if (next == memory.begin()) return true;
    const auto& [start, held] = *std::prev(next);
    if (place >= start + held.bytes) return true;
    return held.owner == 0 || held.used_by.count(0) > 0;
  }
  bool Touches(const Task& task, const char* start, uint64_t bytes) const {
    return std::any_of(task.touched.begin(), task.touched.end(),
                       [&](const void* at) {
                         const auto* place = static_cast<const char*>(at);
                         return place >= start && place < start + bytes;
                       });
  }

  // Returns free memory of that size. Returns null if there is none, or none is
  // to be reused.
  char* TakeFree(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (!reuses) return nullptr;
    for (size_t i = graveyard.size(); i-- > 0;) {
      const auto [start, size] = graveyard[i];
      bool touched = size != bytes;
      for (const auto& stream : tasks) {
        for (const Task& task : stream) {
          touched = touched || Touches(task, start, size);
        }
      }
      if (touched) continue;
      graveyard.erase(graveyard.begin() + static_cast<ptrdiff_t>(i));
      return start;
    }
    return nullptr;
  }

  void Freed(char* start) {
    MutexLock lock(&mu);
    const Memory& freed = memory.at(start);
    for (size_t stream = 0; stream < kStreams; ++stream) {
      if (stream == freed.owner || freed.used_by.count(stream) > 0) continue;
      for (const Task& task : tasks[stream]) {
        if (Touches(task, start, freed.bytes)) {
          ++freed_too_early;
          break;
        }
      }
    }
    // Keeps the memory, because tasks may still touch it.
    graveyard.push_back({start, freed.bytes});
    memory.erase(start);
  }

  ~State() {
    for (const auto& [start, bytes] : graveyard) std::free(start);
  }

  mutable Mutex mu;
  std::array<std::deque<Task>, kStreams> tasks ABSL_GUARDED_BY(mu);
  std::array<uint64_t, kStreams> done ABSL_GUARDED_BY(mu) = {};
  std::map<char*, Memory> memory ABSL_GUARDED_BY(mu);
  std::vector<std::pair<char*, uint64_t>> graveyard ABSL_GUARDED_BY(mu);
  bool reuses ABSL_GUARDED_BY(mu) = false;
  uint64_t freed_too_early ABSL_GUARDED_BY(mu) = 0;
  uint64_t read_too_early ABSL_GUARDED_BY(mu) = 0;
  uint64_t waits ABSL_GUARDED_BY(mu) = 0;
  uint64_t pinned ABSL_GUARDED_BY(mu) = 0;
  absl::Status broken ABSL_GUARDED_BY(mu);
};

namespace {

// The context of the memory's deleter.
struct Lease {
  std::function<void()> freed;
};

void EndLease(void* context) {
  auto* const lease = static_cast<Lease*>(context);
  lease->freed();
  delete lease;
}

// Adds a task to the stream when the scope ends. The scope's operators were
// executed, but count as done only when the stream reaches that task.
struct FakeScope final : Accelerator::ComputeScope {
  explicit FakeScope(std::function<void()> ended) : ended(std::move(ended)) {}
  ~FakeScope() override { ended(); }
  const std::function<void()> ended;
};

}  // namespace

FakeAccelerator::FakeAccelerator() : state_(std::make_shared<State>()) {}
FakeAccelerator::~FakeAccelerator() = default;

c10::Storage FakeAccelerator::Allocate(uint64_t bytes, StreamId stream) {
  TORCH_CHECK_WITH(OutOfMemoryError, bytes <= memory_bytes(),
                   "out of memory: asked ", bytes);
  char* start;
  {
    MutexLock lock(&state_->mu);
    start = state_->TakeFree(bytes);
    if (start == nullptr) {
      start = static_cast<char*>(std::malloc(std::max<uint64_t>(bytes, 1)));
    }
    state_->memory[start] = {bytes, Index(stream), {}};
  }
  // Fills the memory with garbage, as an earlier owner would leave it.
  std::memset(start, 0xa5, bytes);
  auto* const lease =
      new Lease{[state = state_, start] { state->Freed(start); }};
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(bytes),
      c10::DataPtr(start, lease, &EndLease, device()), /*allocator=*/nullptr,
      /*resizable=*/false));
}

void FakeAccelerator::UsedBy(const c10::Storage& storage, StreamId stream) {
  MutexLock lock(&state_->mu);
  auto* const start = static_cast<char*>(storage.mutable_data());
  const auto found = state_->memory.find(start);
  if (found != state_->memory.end()) {
    found->second.used_by.insert(Index(stream));
  }
}

std::shared_ptr<char> FakeAccelerator::AllocatePinned(uint64_t bytes) {
  MutexLock lock(&state_->mu);
  ++state_->pinned;
  return std::shared_ptr<char>(static_cast<char*>(std::malloc(bytes)),
                               &std::free);
}

void FakeAccelerator::Copy(void* to, const void* from, uint64_t bytes,
                           StreamId stream) {
  MutexLock lock(&state_->mu);
  State::Task task{[=] { std::memcpy(to, from, bytes); }, {to, from}, nullptr};
  if (stream == StreamId::kCopyOut && state_->IsComputed(from)) {
    task.computed = state_->Asked(Index(StreamId::kCompute));
  }
  state_->tasks[Index(stream)].push_back(std::move(task));
}

void FakeAccelerator::Zero(void* to, uint64_t bytes, StreamId stream) {
  MutexLock lock(&state_->mu);
  state_->tasks[Index(stream)].push_back(
      {[=] { std::memset(to, 0, bytes); }, {to}, nullptr});
}

EventPtr FakeAccelerator::Record(StreamId stream) {
  MutexLock lock(&state_->mu);
  return std::make_shared<Event>(Index(stream), state_->Asked(Index(stream)));
}

void FakeAccelerator::Wait(StreamId stream, const EventPtr& event) {
  MutexLock lock(&state_->mu);
  ++state_->waits;
  state_->tasks[Index(stream)].push_back(
      {nullptr, {}, std::static_pointer_cast<Event>(event)});
}

bool FakeAccelerator::HasCome(const EventPtr& event) {
  MutexLock lock(&state_->mu);
  const auto& point = static_cast<const Event&>(*event);
  return state_->done[point.stream] >= point.position;
}

absl::Status FakeAccelerator::Await(const EventPtr& event) {
  MutexLock lock(&state_->mu);
  if (!state_->broken.ok()) return state_->broken;
  const auto& point = static_cast<const Event&>(*event);
  state_->RunUntil(point.stream, point.position);
  return absl::OkStatus();
}

absl::Status FakeAccelerator::Health() {
  MutexLock lock(&state_->mu);
  return state_->broken;
}

std::unique_ptr<Accelerator::ComputeScope> FakeAccelerator::EnterCompute() {
  MutexLock lock(&state_->mu);
  const size_t compute = Index(StreamId::kCompute);
  state_->RunUntil(compute, state_->Asked(compute));
  return std::make_unique<FakeScope>([state = state_] {
    MutexLock ended(&state->mu);
    state->tasks[Index(StreamId::kCompute)].push_back({[] {}, {}, nullptr});
  });
}

const at::Generator& FakeAccelerator::ThreadGenerator() {
  thread_local const at::Generator own = at::detail::createCPUGenerator();
  return own;
}

at::Generator FakeAccelerator::DefaultGenerator() {
  return at::detail::getDefaultCPUGenerator();
}

absl::Status FakeAccelerator::CheckGenerator(absl::string_view state) {
  return state.empty() ? absl::InvalidArgumentError("no state")
                       : absl::OkStatus();
}

void FakeAccelerator::ReuseMemory() {
  MutexLock lock(&state_->mu);
  state_->reuses = true;
}

void FakeAccelerator::Break(absl::Status status) {
  MutexLock lock(&state_->mu);
  state_->broken = std::move(status);
}

size_t FakeAccelerator::pending(StreamId stream) const {
  MutexLock lock(&state_->mu);
  return state_->tasks[Index(stream)].size();
}

uint64_t FakeAccelerator::waits() const {
  MutexLock lock(&state_->mu);
  return state_->waits;
}

uint64_t FakeAccelerator::pinned_blocks() const {
  MutexLock lock(&state_->mu);
  return state_->pinned;
}

uint64_t FakeAccelerator::read_too_early() const {
  MutexLock lock(&state_->mu);
  return state_->read_too_early;
}

uint64_t FakeAccelerator::freed_too_early() const {
  MutexLock lock(&state_->mu);
  return state_->freed_too_early;
}

}  // namespace djinn::worker
