#include "gpu_worker/device/cpu/packed_objects.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <list>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/torch/packed_weights.h"

namespace djinn::worker {
namespace {

// Says of what an object was made: its parts' buffers with their states, views
// and layout.
using Key = std::vector<int64_t>;

}  // namespace

struct PackedObjects::State {
  mutable Mutex mu;
  SpareMemory* spare ABSL_GUARDED_BY(mu) = nullptr;
  // The most recently used object first.
  std::list<std::pair<OfBuffer*, std::shared_ptr<const Object>>> used
      ABSL_GUARDED_BY(mu);
  std::atomic<uint64_t> bytes{0};
};

// An object, and the memory that is reserved for it. `object` is destroyed
// first.
struct PackedObjects::Object {
  Object(std::shared_ptr<State> state, uint64_t bytes)
      : state(std::move(state)), bytes(bytes) {
    this->state->bytes += bytes;
  }
  ~Object() { state->bytes -= bytes; }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  const std::shared_ptr<State> state;
  const uint64_t bytes;
  std::shared_ptr<void> spare;
  Key key;
  c10::IValue object;
};

// The objects of one buffer, in the order of their making, guarded by the
// state's mutex; and a number that stands for the buffer's bytes. Objects are
// destroyed without the lock.
class PackedObjects::OfBuffer final : public DerivedFromBytes {
 public:
  using Entry =
      std::list<std::pair<OfBuffer*, std::shared_ptr<const Object>>>::iterator;

  explicit OfBuffer(std::shared_ptr<State> state) : state_(std::move(state)) {}
  ~OfBuffer() override { Clear(); }

  void Invalidate() override {
    bytes_number_ = NextNumber();
    Clear();
  }

  static OfBuffer* For(const TorchBuffer& buffer,
                       const std::shared_ptr<State>& state) {
    DerivedFromBytes* derived = buffer.derived(kPackedObjects);
    if (derived == nullptr) {
      derived =
          buffer.SetDerived(std::make_unique<OfBuffer>(state), kPackedObjects);
    }
    return static_cast<OfBuffer*>(derived);
  }

  // Returns a number that no other buffer has, nor this one with other bytes.
  int64_t bytes_number() const { return bytes_number_; }

  std::vector<Entry> entries;

 private:
  static int64_t NextNumber() {
    static std::atomic<int64_t> next{0};
    return ++next;
  }

  void Clear() {
    std::vector<std::shared_ptr<const Object>> gone;
    MutexLock lock(&state_->mu);
    for (const Entry& entry : entries) {
      gone.push_back(std::move(entry->second));
      state_->used.erase(entry);
    }
    entries.clear();
  }

  const std::shared_ptr<State> state_;
  // Only the buffer's sole holder changes it.
  int64_t bytes_number_ = NextNumber();
};

PackedObjects::PackedObjects(uint64_t max_bytes)
    : max_bytes_(max_bytes), state_(std::make_shared<State>()) {}

PackedObjects::~PackedObjects() = default;

void PackedObjects::SetSpareMemory(SpareMemory* spare) {
  // The previous source reserved the objects' memory.
  Release(std::numeric_limits<uint64_t>::max());
  MutexLock lock(&state_->mu);
  state_->spare = spare;
}

uint64_t PackedObjects::Release(uint64_t bytes) {
  std::vector<std::shared_ptr<const Object>> gone;
  uint64_t released = 0;
  MutexLock lock(&state_->mu);
  while (released < bytes && !state_->used.empty()) {
    const OfBuffer::Entry last = std::prev(state_->used.end());
    std::vector<OfBuffer::Entry>& entries = last->first->entries;
    entries.erase(absl::c_find(entries, last));
    released += last->second->bytes;
    gone.push_back(std::move(last->second));
    state_->used.erase(last);
  }
  return released;
}

uint64_t PackedObjects::bytes() const { return state_->bytes; }

bool PackedObjects::Reserve(Object* object, const std::string& tenant) {
  if (object->bytes > max_bytes_) return false;
  const uint64_t taken = state_->bytes;
  if (taken > max_bytes_ && Release(taken - max_bytes_) < taken - max_bytes_) {
    return false;
  }
  SpareMemory* spare;
  {
    MutexLock lock(&state_->mu);
    spare = state_->spare;
  }
  if (spare == nullptr) return true;
  object->spare = spare->Reserve(tenant, object->bytes);
  if (object->spare == nullptr && Release(object->bytes) > 0) {
    object->spare = spare->Reserve(tenant, object->bytes);
  }
  return object->spare != nullptr;
}

const TorchBuffer* PackedObjects::ForCall::BufferOf(
    const at::Tensor& tensor) const {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  const c10::StorageImpl* const impl = tensor.storage().unsafeGetStorageImpl();
  for (const uint32_t slot : operand_slots_) {
    const auto* const buffer =
        static_cast<const TorchBuffer*>(input_.slots[slot].get());
    if (buffer != nullptr && buffer->IsOver(impl)) return buffer;
  }
  return nullptr;
}

c10::IValue PackedObjects::ForCall::Get(const c10::Type& type,
                                        at::TensorList tensors,
                                        c10::IntArrayRef layout) {
  static const std::string& kNobody = *new std::string;
  const std::shared_ptr<State>& state = objects_.state_;
  OfBuffer* first = nullptr;
  Key key = {reinterpret_cast<int64_t>(&type),
             static_cast<int64_t>(layout.size())};
  key.insert(key.end(), layout.begin(), layout.end());
  for (const at::Tensor& tensor : tensors) {
    const TorchBuffer* const buffer = BufferOf(tensor);
    if (buffer == nullptr) return PackAgain(type, tensors, layout);
    OfBuffer* const of_buffer = OfBuffer::For(*buffer, state);
    if (first == nullptr) first = of_buffer;
    key.insert(key.end(), {of_buffer->bytes_number(),
                           static_cast<int64_t>(tensor.scalar_type()),
                           tensor.is_conj() ? 1 : 0, tensor.is_neg() ? 1 : 0,
                           tensor.storage_offset(), tensor.dim()});
    key.insert(key.end(), tensor.sizes().begin(), tensor.sizes().end());
    key.insert(key.end(), tensor.strides().begin(), tensor.strides().end());
  }
  if (first == nullptr) return PackAgain(type, tensors, layout);
  {
    MutexLock lock(&state->mu);
    const auto found =
        absl::c_find_if(first->entries, [&](const OfBuffer::Entry& entry) {
          return entry->second->key == key;
        });
    if (found != first->entries.end()) {
      state->used.splice(state->used.begin(), state->used, *found);
      return (*found)->second->object;
    }
  }
  uint64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += tensor.nbytes();
  // An object holds its parts, and its weight once more as the kernel reads it.
  const auto object = std::make_shared<Object>(state, 2 * bytes);
  const bool keeps = objects_.Reserve(
      object.get(), input_.tenant != nullptr ? *input_.tenant : kNobody);
  object->object = PackAgain(type, tensors, layout);
  if (!keeps) return object->object;
  object->key = std::move(key);
  std::shared_ptr<const Object> gone;
  MutexLock lock(&state->mu);
  if (first->entries.size() == kMaxOfBuffer) {
    const OfBuffer::Entry oldest = first->entries.front();
    gone = std::move(oldest->second);
    state->used.erase(oldest);
    first->entries.erase(first->entries.begin());
  }
  state->used.emplace_front(first, object);
  first->entries.push_back(state->used.begin());
  return object->object;
}

}  // namespace djinn::worker
