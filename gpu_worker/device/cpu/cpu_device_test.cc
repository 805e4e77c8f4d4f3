#include "gpu_worker/device/cpu/cpu_device.h"

#include <complex>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/srg/graph.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

class CpuDeviceTest : public testing::Test {
 protected:
  CpuDeviceTest() {
    CpuDeviceOptions options;
    options.memory_bytes = uint64_t{64} << 20;
    options.threads = 1;
    device_ = MakeCpuDevice(options).value();
  }

  std::string Bytes(std::shared_ptr<Buffer> buffer) {
    return std::string(device_->HostBytes(std::move(buffer)).value().bytes);
  }

  template <typename Element>
  std::shared_ptr<Buffer> Upload(const std::vector<Element>& elements) {
    const absl::string_view bytes(
        reinterpret_cast<const char*>(elements.data()),
        elements.size() * sizeof(Element));
    std::shared_ptr<Buffer> buffer = device_->Allocate(bytes.size()).value();
    EXPECT_TRUE(device_->Write(buffer.get(), 0, bytes).ok());
    return buffer;
  }

  template <typename Element>
  static std::vector<Element> ElementsOf(absl::string_view bytes) {
    std::vector<Element> elements(bytes.size() / sizeof(Element));
    std::memcpy(elements.data(), bytes.data(), bytes.size());
    return elements;
  }

  static srg::TensorView View(srg::DataType type, srg::Dimensions sizes,
                              srg::Dimensions strides, int64_t offset = 0) {
    srg::TensorView view;
    view.data_type = type;
    view.sizes = std::move(sizes);
    view.strides = std::move(strides);
    view.storage_offset = offset;
    return view;
  }

  std::unique_ptr<Device> device_;
};

TEST_F(CpuDeviceTest, MemoryOfOthersIsABufferAsLongAsItIsUsed) {
  alignas(4096) static float memory[1024] = {1, 2, 3};
  auto owner = std::make_shared<int>(0);
  const std::weak_ptr<int> alive = owner;
  std::shared_ptr<Buffer> buffer =
      WrapHostMemory(memory, sizeof(memory), std::move(owner));
  EXPECT_EQ(buffer->size_bytes(), sizeof(memory));
  std::optional<SharedBytes> bytes = device_->HostBytes(buffer).value();
  EXPECT_EQ(static_cast<const void*>(bytes->bytes.data()), memory);
  const std::shared_ptr<Buffer> copy =
      device_->Clone(*buffer, 3 * sizeof(float)).value();
  EXPECT_EQ(ElementsOf<float>(Bytes(copy)), (std::vector<float>{1, 2, 3}));
  buffer = nullptr;
  EXPECT_FALSE(alive.expired());
  bytes = std::nullopt;
  EXPECT_TRUE(alive.expired());
}

TEST_F(CpuDeviceTest, TellsNameAndMemory) {
  EXPECT_EQ(device_->name(), "cpu");
  EXPECT_EQ(device_->memory_bytes(), uint64_t{64} << 20);
}

TEST_F(CpuDeviceTest, NegativeThreadsAreRefused) {
  CpuDeviceOptions options;
  options.threads = -1;
  EXPECT_EQ(MakeCpuDevice(options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(CpuDeviceTest, MemoryIsZeroed) {
  for (int i = 0; i < 10; ++i) {
    std::shared_ptr<Buffer> buffer = device_->Allocate(1000).value();
    EXPECT_EQ(Bytes(buffer), std::string(1000, '\0'));
    ASSERT_TRUE(device_->Write(buffer.get(), 0, std::string(1000, 'x')).ok());
  }
}

TEST_F(CpuDeviceTest, EmptyBuffers) {
  std::shared_ptr<Buffer> buffer = device_->Allocate(0).value();
  EXPECT_EQ(buffer->size_bytes(), 0u);
  EXPECT_TRUE(device_->Write(buffer.get(), 0, "").ok());
  EXPECT_EQ(Bytes(buffer), "");
  EXPECT_EQ(device_->Clone(*buffer, 3).value()->size_bytes(), 3u);
  EXPECT_EQ(
      device_->ReadView(buffer, View(srg::DataType::kFloat32, {0, 3}, {3, 1}))
          .value()
          .bytes,
      "");
}

TEST_F(CpuDeviceTest, WritesLandInsideOnly) {
  std::shared_ptr<Buffer> buffer = device_->Allocate(6).value();
  ASSERT_TRUE(device_->Write(buffer.get(), 2, "abc").ok());
  EXPECT_EQ(Bytes(buffer), std::string("\0\0abc\0", 6));
  EXPECT_FALSE(device_->Write(buffer.get(), 4, "abc").ok());
  EXPECT_FALSE(device_->Write(buffer.get(), UINT64_MAX, "a").ok());
  EXPECT_EQ(Bytes(buffer), std::string("\0\0abc\0", 6));
}

TEST_F(CpuDeviceTest, ClonesKeepThePrefix) {
  std::shared_ptr<Buffer> buffer = device_->Allocate(4).value();
  ASSERT_TRUE(device_->Write(buffer.get(), 0, "abcd").ok());
  EXPECT_EQ(Bytes(device_->Clone(*buffer, 2).value()), "ab");
  EXPECT_EQ(Bytes(device_->Clone(*buffer, 4).value()), "abcd");
  EXPECT_EQ(Bytes(device_->Clone(*buffer, 6).value()),
            std::string("abcd\0\0", 6));
}

TEST_F(CpuDeviceTest, AllocationBeyondTheLimitIsRefused) {
  for (const uint64_t bytes :
       {uint64_t{65} << 20, uint64_t{1} << 45, UINT64_MAX}) {
    const absl::Status status = device_->Allocate(bytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << bytes;
    EXPECT_EQ(ErrorReason(status), "OUT_OF_MEMORY");
  }
  // Both together exceed the limit; freed memory does not count any more.
  for (int i = 0; i < 10; ++i) {
    const auto first = device_->Allocate(uint64_t{40} << 20);
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_FALSE(device_->Allocate(uint64_t{40} << 20).ok());
  }
}

TEST_F(CpuDeviceTest, ContiguousViewsAreNotCopied) {
  std::shared_ptr<Buffer> buffer = Upload<float>({0, 1, 2, 3, 4, 5});
  const char* const start = device_->HostBytes(buffer).value().bytes.data();
  const SharedBytes bytes =
      device_
          ->ReadView(buffer, View(srg::DataType::kFloat32, {2, 2}, {2, 1}, 1))
          .value();
  EXPECT_EQ(bytes.bytes.data(), start + 4);
  EXPECT_EQ(ElementsOf<float>(bytes.bytes), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(buffer.use_count(), 2);
}

TEST_F(CpuDeviceTest, StridedViewsAreGathered) {
  std::shared_ptr<Buffer> buffer = Upload<float>({0, 1, 2, 3, 4, 5});
  const SharedBytes transposed =
      device_->ReadView(buffer, View(srg::DataType::kFloat32, {3, 2}, {1, 3}))
          .value();
  EXPECT_EQ(ElementsOf<float>(transposed.bytes),
            (std::vector<float>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(buffer.use_count(), 1);
  const SharedBytes repeated =
      device_->ReadView(buffer, View(srg::DataType::kFloat32, {3}, {0}, 4))
          .value();
  EXPECT_EQ(ElementsOf<float>(repeated.bytes), (std::vector<float>{4, 4, 4}));
  // Reads the last bytes of the buffer as another type.
  const SharedBytes raw =
      device_->ReadView(buffer, View(srg::DataType::kUint8, {2}, {1}, 22))
          .value();
  EXPECT_EQ(raw.bytes.size(), 2u);
}

TEST_F(CpuDeviceTest, LazyBitsAreResolved) {
  std::shared_ptr<Buffer> buffer =
      Upload<std::complex<float>>({{1, 2}, {3, -4}});
  srg::TensorView view = View(srg::DataType::kComplex64, {2}, {1});
  view.conjugate = true;
  EXPECT_EQ(ElementsOf<std::complex<float>>(
                device_->ReadView(buffer, view).value().bytes),
            (std::vector<std::complex<float>>{{1, -2}, {3, 4}}));
  srg::TensorView imaginary = View(srg::DataType::kFloat32, {2}, {2}, 1);
  imaginary.negative = true;
  EXPECT_EQ(
      ElementsOf<float>(device_->ReadView(buffer, imaginary).value().bytes),
      (std::vector<float>{-2, 4}));
  // Conjugation needs complex elements.
  view.data_type = srg::DataType::kFloat32;
  EXPECT_EQ(ErrorReason(device_->ReadView(buffer, view).status()),
            "INVALID_VIEW");
}

TEST_F(CpuDeviceTest, ViewsOutsideAreRefused) {
  std::shared_ptr<Buffer> buffer = device_->Allocate(16).value();
  EXPECT_EQ(
      ErrorReason(
          device_->ReadView(buffer, View(srg::DataType::kFloat32, {4}, {1}, 1))
              .status()),
      "INVALID_VIEW");
  // The view repeats one element more often than memory could hold.
  const absl::Status status =
      device_
          ->ReadView(buffer, View(srg::DataType::kFloat32,
                                  {int64_t{1} << 30, 1 << 10}, {0, 0}))
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

}  // namespace
}  // namespace djinn::worker
