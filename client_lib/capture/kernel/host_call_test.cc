// Tests the results that calls on known operands are given in this process.
#include "client_lib/capture/kernel/host_call.h"

#include <torch/torch.h>

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "client_lib/capture/device/remote_tensor.h"
#include "client_lib/capture/testing/capture_fixture.h"
#include "client_lib/capture/testing/recording_session.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::capture {
namespace {

using ::testing::ElementsAre;

// Accepts every value, without comparing versions.
class TrustingDevice final : public RecordingDevice {
 public:
  TrustingDevice() : RecordingDevice(0) {}
  uint64_t VersionOf(const RemoteStorage& storage) override {
    return versions_[&storage];
  }
  HostValuePtr FindHostValue(const StorageAt& storage) override {
    const auto found = values_.find(storage.storage);
    return found == values_.end() ? nullptr : found->second;
  }
  void KeepHostValue(const StorageAt& written,
                     absl::Span<const StorageAt> operands, HostValuePtr value,
                     bool readable) override {
    versions_[written.storage] = written.version;
    values_[written.storage] = std::move(value);
    operands_ = operands.size();
    readable_ = readable;
  }

  size_t operands_ = 0;
  bool readable_ = false;

 private:
  std::map<const RemoteStorage*, uint64_t> versions_;
  std::map<const RemoteStorage*, HostValuePtr> values_;
};

class HostCallTest : public CaptureTest {
 protected:
  const std::shared_ptr<TrustingDevice> device_ =
      std::make_shared<TrustingDevice>();

  at::Tensor New(at::IntArrayRef sizes, at::ScalarType type = at::kLong) {
    return NewRemoteTensor(device_, sizes,
                           c10::TensorType::contiguousStridesOf(sizes), type);
  }
  at::Tensor Uploaded(const at::Tensor& host) {
    at::Tensor remote = New(host.sizes(), host.scalar_type());
    std::optional<HostWrite> write =
        HostWrite::OfUpload(host, remote, device_.get());
    if (write.has_value()) std::move(*write).Store();
    return remote;
  }
  bool Call(const char* name, const char* overload,
            const std::vector<c10::IValue>& arguments,
            const at::Tensor& result) {
    // Stored values refer to the operator's info.
    const auto* const info = new OperatorInfo(
        c10::Dispatcher::singleton().findSchemaOrThrow(name, overload));
    infos_.emplace_back(info);
    std::optional<HostWrite> write =
        HostWrite::OfCall(*info, arguments, result, device_.get());
    if (!write.has_value()) return false;
    std::move(*write).Store();
    return true;
  }
  std::vector<int64_t> Longs(const at::Tensor& tensor) {
    const HostValuePtr value = device_->FindHostValue({OwnStorageOf(tensor)});
    const HostBytes bytes = value == nullptr ? nullptr : value->Bytes();
    if (bytes == nullptr) return {};
    std::vector<int64_t> elements(bytes->size() / sizeof(int64_t));
    std::memcpy(elements.data(), bytes->data(), bytes->size());
    return elements;
  }

 private:
  std::vector<std::unique_ptr<const OperatorInfo>> infos_;
};

TEST_F(HostCallTest, ComputesFromUploads) {
  const at::Tensor mask = Uploaded(torch::tensor({1, 2, 3, 4}, at::kLong));
  EXPECT_FALSE(device_->readable_);
  const at::Tensor sum = New({}), more = New({4}), twice = New({});
  EXPECT_TRUE(Call("aten::sum", "", {mask, c10::IValue()}, sum));
  EXPECT_TRUE(device_->readable_);
  EXPECT_TRUE(Call("aten::add", "Scalar", {mask, 5, 1}, more));
  EXPECT_TRUE(Call("aten::add", "Tensor", {sum, sum, 1}, twice));
  EXPECT_EQ(device_->operands_, 2u);
  EXPECT_THAT(Longs(sum), ElementsAre(10));
  EXPECT_THAT(Longs(more), ElementsAre(6, 7, 8, 9));
  EXPECT_THAT(Longs(twice), ElementsAre(20));
}

TEST_F(HostCallTest, FollowsViewsAndOverwrites) {
  const at::Tensor mask = Uploaded(torch::tensor({1, 2, 3, 4}, at::kLong));
  const at::Tensor part = mask.as_strided({2}, {2}, 1), copy = New({2});
  EXPECT_TRUE(Call("aten::copy_", "", {copy, part, false}, copy));
  EXPECT_THAT(Longs(copy), ElementsAre(2, 4));
  // The storage had no contents before, so zeros count as a write.
  EXPECT_EQ(device_->VersionOf(*OwnStorageOf(copy)), 2u);
  EXPECT_TRUE(Call("aten::fill_", "Scalar", {copy, 7}, copy));
  EXPECT_THAT(Longs(copy), ElementsAre(7, 7));
  EXPECT_EQ(device_->VersionOf(*OwnStorageOf(copy)), 3u);
}

TEST_F(HostCallTest, UnsuitableCallsAreNotComputedLocally) {
  const at::Tensor mask = Uploaded(torch::tensor({1, 2, 3, 4}, at::kLong));
  const at::Tensor unknown = New({4}), result = New({4});
  const std::vector<c10::IValue> sum = {mask.expand({1000, 4}), c10::IValue()};
  EXPECT_FALSE(Call("aten::add", "Tensor", {mask, unknown, 1}, result));
  EXPECT_FALSE(Call("aten::add", "Scalar", {mask, 1.5, 1}, result));
  EXPECT_FALSE(Call("aten::add", "Scalar", {mask, 1, 1}, New({4}, at::kFloat)));
  EXPECT_FALSE(Call("aten::sum", "", sum, New({})));
  const at::Tensor part = mask.as_strided({2}, {1}, 0);
  EXPECT_FALSE(Call("aten::fill_", "Scalar", {part, 7}, part));
  EXPECT_FALSE(
      Call("aten::copy_", "", {mask, mask.as_strided({4}, {0}), false}, mask));
  const at::Tensor reals = Uploaded(torch::ones({4}));
  EXPECT_FALSE(Call("aten::eq", "Scalar", {reals, 1}, New({4}, at::kBool)));
}

TEST_F(HostCallTest, ViewBeyondTheBytesYieldsNoValue) {
  const at::Tensor mask = Uploaded(torch::tensor({1, 2}, at::kLong));
  const at::Tensor sum = New({});
  EXPECT_TRUE(Call("aten::sum", "",
                   {mask.as_strided({2}, {1}, 0), c10::IValue()}, sum));
  EXPECT_THAT(Longs(sum), ElementsAre(3));
  at::Tensor beyond = mask.as_strided({2}, {1}, 0);
  beyond.unsafeGetTensorImpl()->set_sizes_and_strides(at::IntArrayRef({50}),
                                                      at::IntArrayRef({1}));
  const at::Tensor other = New({});
  Call("aten::sum", "", {beyond, c10::IValue()}, other);
  EXPECT_THAT(Longs(other), ElementsAre());
}

TEST_F(HostCallTest, ChainEndsAfter32Calls) {
  at::Tensor value = Uploaded(torch::tensor({1}, at::kLong));
  int calls = 0;
  for (; calls < 100; ++calls) {
    const at::Tensor next = New({1});
    if (!Call("aten::add", "Scalar", {value, 1, 1}, next)) break;
    value = next;
  }
  EXPECT_EQ(calls, 32);
  EXPECT_THAT(Longs(value), ElementsAre(33));
}

}  // namespace
}  // namespace djinn::capture
