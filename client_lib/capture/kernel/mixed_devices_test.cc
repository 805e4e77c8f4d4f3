// Tests operands on several devices, and copies between devices.
#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "client_lib/capture/testing/capture_fixture.h"
#include "client_lib/capture/testing/recording_session.h"
#include "djinn/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::capture {
namespace {

using ::testing::IsEmpty;

using MixedDevicesTest = CaptureTest;

TEST_F(MixedDevicesTest, OperandsOnSeveralDevicesThrow) {
  const c10::InferenceMode inference;
  at::Tensor a = Remote({2, 3});
  const auto refused = [](const char* text, auto call) {
    try {
      call();
      ADD_FAILURE() << "accepted; expected " << text;
    } catch (const c10::Error& error) {
      EXPECT_STREQ(error.what_without_backtrace(), text);
    }
  };
  const at::Tensor here = at::ones({2, 3});
  refused(
      "Expected all tensors to be on the same device, but found at least two "
      "devices, remote_accelerator:0 and cpu!",
      [&] { at::add(a, here); });
  refused(
      "Expected all tensors to be on the same device, but found at least two "
      "devices, cpu and remote_accelerator:0!",
      [&] { at::add(here, a); });
  refused(
      "Expected all tensors to be on the same device, but got mat2 is on cpu, "
      "different from other tensors on remote_accelerator:0 (when checking "
      "argument in method wrapper_remote_accelerator_mm)",
      [&] { at::mm(a, here.t()); });
  at::Tensor number = at::ones({});
  EXPECT_THROW(at::add_out(number, a[0][0], 1), c10::Error);  // written operand
  EXPECT_NO_THROW(at::add(a, at::ones({})));  // a 0-dimensional CPU tensor
  EXPECT_NO_THROW(a.mul(3));
  at::Tensor other =
      at::empty({2, 3}, at::TensorOptions("remote_accelerator:1"));
  EXPECT_THROW(at::add(a, other), c10::Error);
}

TEST_F(MixedDevicesTest, CopyBetweenDevicesSendsWholeStorages) {
  const c10::InferenceMode inference;
  const std::shared_ptr<RecordingDevice> other = session_->Recorder(1);
  const at::Device there("remote_accelerator:1");
  const auto recorded =
      [&](const char* what, const std::vector<std::string>& here,
          uint64_t copied, const std::vector<std::string>& at_other) {
        EXPECT_EQ(recorder_->TakeNames(), here) << what;
        EXPECT_EQ(other->copies().back(), copied) << what;
        EXPECT_EQ(other->TakeNames(), at_other) << what;
      };
  const at::Tensor x = Remote({4, 6});
  ExpectSameMetadata(x.to(there), x);
  recorded("as it is", {}, 96, {});
  x.t().to(there);
  recorded("transposed as it is", {}, 96, {});
  ExpectSameMetadata(x.slice(1, 0, 2).to(there), at::zeros({4, 2}));
  recorded("laid out here", {"aten::copy_"}, 32, {});
  at::zeros({3, 4, 6}, there).select(0, 1).copy_(x);
  recorded("into a part", {}, 96, {"aten::zeros", "aten::copy_"});
  x.to(there, at::kDouble);
  recorded("converted there", {}, 96, {"aten::copy_"});
  at::empty({4, 6}, there).copy_(Remote({6}));
  recorded("grown there", {}, 24, {"aten::copy_"});
  // No bytes go through this process.
  EXPECT_THAT(recorder_->reads(), IsEmpty());
  EXPECT_THAT(other->uploads(), IsEmpty());
  EXPECT_EQ(Remote({0, 3}).to(there).device(), there);
  EXPECT_EQ(other->copies().back(), 24u);
}

TEST_F(MixedDevicesTest, StrictSessionRefusesCopiesBetweenDevices) {
  const c10::InferenceMode inference;
  const at::Device there("remote_accelerator:1");
  const at::Tensor x = Remote({2});
  const auto text = [](auto call) -> std::string {
    try {
      call();
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "nothing thrown";
  };
  const std::string two =
      "Expected all tensors to be on the same device, but found at least two "
      "devices, remote_accelerator:0 and ";
  session_->BeStrict("");
  EXPECT_EQ(text([&] { x.to(there); }), two + "remote_accelerator:1!");
  session_->BeStrict("See the handbook.");
  EXPECT_EQ(text([&] { x.to(there); }),
            two + "remote_accelerator:1! See the handbook.");
  EXPECT_EQ(text([&] { at::add(x, at::ones({2})); }),
            two + "cpu! See the handbook.");
  EXPECT_EQ(text([&] { x.to(at::kCPU); }), "nothing thrown");
  session_->BeStrict(std::nullopt);
  EXPECT_EQ(text([&] { x.to(there); }), "nothing thrown");
}

}  // namespace
}  // namespace djinn::capture
