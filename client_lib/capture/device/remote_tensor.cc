#include "client_lib/capture/device/remote_tensor.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "client_lib/capture/device/backend.h"
#include "client_lib/capture/device/custom_autocast.h"
#include "client_lib/capture/device/lane.h"
#include "client_lib/capture/device/memory_counter.h"
#include "client_lib/capture/device/process_session.h"
#include "client_lib/capture/device/shape_only.h"
#include "client_lib/capture/device/throw_status.h"
#include "client_lib/session/model/address_space.h"
#include "client_lib/session/model/fork_guard.h"
#include "common/torch/data_type.h"

namespace djinn::capture {
namespace {

// Address space that is reserved and never backed by memory.
constexpr size_t kReservedBytes = size_t{1} << 45;
// The part at the end for storages that get no address range of their own.
constexpr size_t kLooseBytes = size_t{1} << 40;
constexpr size_t kRangeBytes = kReservedBytes - kLooseBytes;

char* FirstAddress() {
  static char* const base = [] {
    void* reserved = mmap(nullptr, kReservedBytes, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK(reserved != MAP_FAILED,
                "cannot reserve 32 TiB of address space for remote storages: "
                "raise the limit on virtual memory (ulimit -v)");
    return static_cast<char*>(reserved);
  }();
  return base;
}

AddressSpace& Ranges() {
  // Never destroyed, because tensors may be destroyed at exit.
  static AddressSpace* const ranges = new AddressSpace(kRangeBytes);
  return *ranges;
}

// Addresses repeat after 2^31 calls.
void* LooseAddress() {
  static std::atomic<size_t> used{0};
  const size_t at =
      used.fetch_add(AddressSpace::kGranularity, std::memory_order_relaxed);
  return FirstAddress() + kRangeBytes + at % kLooseBytes;
}

// Returns an address for the storage that no other live storage has. A storage
// larger than the address space gets a loose address, which others may share;
// it fails when its bytes are needed. A forked child uses only loose addresses,
// because the lock may be held for ever.
void* AddressFor(RemoteStorage* storage, size_t bytes) {
  // This may throw. It therefore precedes taking a range, which would have to
  // be released.
  char* const first = FirstAddress();
  AddressRange& range = storage->address_range();
  return !IsForkedChild() && Ranges().Take(bytes, &range)
             ? first + range.begin()
             : LooseAddress();
}

void DropHandle(void* context) {
  // This may run on any thread, with any lock held, and during exit.
  auto* storage = static_cast<RemoteStorage*>(context);
  MemoryCounter::Of(storage->device()->index()).Released(storage->size_bytes());
  if (!IsForkedChild()) Ranges().Release(&storage->address_range());
  storage->device()->MarkDead(storage);
  storage->DropReference();
}

void DropNothing(void*) {}

// PyTorch passes negative sizes on, as large unsigned ones.
void CheckStorageSize(uint64_t bytes) {
  TORCH_CHECK(std::in_range<int64_t>(bytes), "Storage size ",
              static_cast<int64_t>(bytes), " is negative or too large");
}

c10::DataPtr MakeDataPtr(StoragePtr storage, size_t bytes) {
  CastNewOperators();
  const c10::Device device(
      c10::DeviceType::PrivateUse1,
      static_cast<c10::DeviceIndex>(storage->device()->index()));
  void* const address = AddressFor(storage.get(), bytes);
  MemoryCounter::Of(storage->device()->index()).Created(storage->size_bytes());
  return c10::DataPtr(address, storage.release(), &DropHandle, device);
}

class ZeroMemoryAllocator : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    CheckStorageSize(bytes);
    if (ShapeOnlyScope::Active()) return ShapeOnlyPointer(CurrentDeviceIndex());
    const std::shared_ptr<VirtualDevice> device =
        ValueOrThrow(DeviceOfProcess(CurrentDeviceIndex()));
    return MakeDataPtr(device->NewStorage(bytes), bytes);
  }

  static c10::DataPtr ShapeOnlyPointer(int index) {
    return c10::DataPtr(LooseAddress(), nullptr, &DropNothing,
                        c10::Device(c10::DeviceType::PrivateUse1,
                                    static_cast<c10::DeviceIndex>(index)));
  }

  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }

  void copy_data(void*, const void*, std::size_t) const override {
    TORCH_CHECK(false, "remote storages cannot be copied by address");
  }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(
      c10::DeviceIndex index) override {
    return CounterOf(index).Statistics();
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    const MemoryCounter& counter = CounterOf(index);
    const std::shared_ptr<VirtualDevice> device =
        ValueOrThrow(DeviceOfProcess(index));
    const uint64_t total = ValueOrThrow(device->Placement()).memory_bytes;
    return {total - std::min(total, counter.LiveBytes()), total};
  }
  void resetAccumulatedStats(c10::DeviceIndex index) override {
    CounterOf(index).ResetTotals();
  }
  void resetPeakStats(c10::DeviceIndex index) override {
    CounterOf(index).ResetPeaks();
  }

 private:
  static MemoryCounter& CounterOf(c10::DeviceIndex index) {
    CheckDeviceIndex(index);
    return MemoryCounter::Of(index);
  }
};

// Gives the storage another address, in a range of `bytes`. Its contents stay
// on the worker.
void Move(size_t bytes, c10::StorageImpl* storage) {
  c10::DataPtr& pointer = storage->_mutable_data_ptr_no_checks();
  auto* const remote = static_cast<RemoteStorage*>(pointer.get_context());
  if (!IsForkedChild()) Ranges().Release(&remote->address_range());
  void* const address = AddressFor(remote, bytes);
  pointer = c10::DataPtr(address, pointer.release_context(), &DropHandle,
                         pointer.device());
}

uint64_t ExtentOf(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                  c10::ScalarType data_type) {
  srg::TensorView view;
  const std::optional<srg::DataType> type = DataTypeFromTorch(data_type);
  TORCH_CHECK(type.has_value(), "dtype ", data_type,
              " is not supported on remote devices");
  view.data_type = *type;
  view.sizes.assign(sizes.begin(), sizes.end());
  view.strides.assign(strides.begin(), strides.end());
  return ValueOrThrow(srg::ExtentBytes(view));
}

}  // namespace

int CurrentDeviceIndex() {
  return c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1)
      .getDevice()
      .index();
}

c10::Allocator* RemoteAllocator() {
  static ZeroMemoryAllocator* const allocator = new ZeroMemoryAllocator;
  return allocator;
}

RemoteStorage* StorageOf(const c10::Storage& storage) {
  // A sparse tensor has none.
  if (!storage) return nullptr;
  const c10::DataPtr& pointer = storage.data_ptr();
  // PyTorch's pointers into other storages have contexts of their own.
  if (pointer.get_deleter() != &DropHandle) return nullptr;
  return static_cast<RemoteStorage*>(pointer.get_context());
}

RemoteStorage* StorageOf(const at::Tensor& tensor) {
  return StorageOf(tensor.unsafeGetTensorImpl()->unsafe_storage());
}

RemoteStorage* OwnStorageOf(const at::Tensor& tensor) {
  RemoteStorage* const storage = StorageOf(tensor);
  TORCH_CHECK(
      storage != nullptr, "a tensor on ", tensor.device(),
      " was made from an address or of a slice of a storage, and remote "
      "memory has no usable address: for torch.save(), use its default format, "
      "or move the tensor to the CPU first");
  return storage;
}

c10::Storage WrapStorage(StoragePtr storage, uint64_t size_bytes) {
  return c10::Storage(c10::Storage::use_byte_size_t(), size_bytes,
                      MakeDataPtr(std::move(storage), size_bytes),
                      RemoteAllocator(), /*resizable=*/true);
}

at::Tensor NewRemoteTensor(const std::shared_ptr<VirtualDevice>& device,
                           c10::IntArrayRef sizes, c10::IntArrayRef strides,
                           c10::ScalarType data_type) {
  const uint64_t bytes = ExtentOf(sizes, strides, data_type);
  c10::Storage storage =
      ShapeOnlyScope::Active()
          ? c10::Storage(
                c10::Storage::use_byte_size_t(), bytes,
                ZeroMemoryAllocator::ShapeOnlyPointer(CurrentDeviceIndex()),
                RemoteAllocator(), /*resizable=*/true)
          : WrapStorage(device->NewStorage(bytes), bytes);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(data_type));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

void ResizeStorage(const c10::Storage& storage, uint64_t size_bytes) {
  CheckStorageSize(size_bytes);
  RemoteStorage* const remote = StorageOf(storage);
  if (remote != nullptr) {
    const uint64_t before = remote->size_bytes();
    ThrowIfError(remote->device()->Resize(CurrentLane(), remote, size_bytes));
    MemoryCounter::Of(remote->device()->index()).Resized(before, size_bytes);
    if (size_bytes >= remote->address_range().size_bytes()) {
      Move(size_bytes, storage.unsafeGetStorageImpl());
    }
  }
  storage.unsafeGetStorageImpl()->set_nbytes(size_bytes);
}

srg::DataType DataTypeOf(const at::Tensor& tensor) {
  const std::optional<srg::DataType> type =
      DataTypeFromTorch(tensor.scalar_type());
  TORCH_CHECK(type.has_value(), "dtype ", tensor.scalar_type(),
              " is not supported on remote devices");
  return *type;
}

srg::TensorView ViewOf(const at::Tensor& tensor) {
  srg::TensorView view;
  view.data_type = DataTypeOf(tensor);
  view.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  view.strides.assign(tensor.strides().begin(), tensor.strides().end());
  view.storage_offset = tensor.storage_offset();
  view.conjugate = tensor.is_conj();
  view.negative = tensor.is_neg();
  return view;
}

}  // namespace djinn::capture
