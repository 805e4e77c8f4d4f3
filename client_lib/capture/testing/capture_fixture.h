// A test fixture with a session that records calls, without a worker.
#ifndef CLIENT_LIB_CAPTURE_TESTING_CAPTURE_FIXTURE_H_
#define CLIENT_LIB_CAPTURE_TESTING_CAPTURE_FIXTURE_H_

#include <torch/torch.h>

#include <memory>

#include "client_lib/capture/device/backend.h"
#include "client_lib/capture/device/operator_observer.h"
#include "client_lib/capture/device/process_session.h"
#include "client_lib/capture/registration/registration.h"
#include "client_lib/capture/testing/recording_session.h"
#include "gtest/gtest.h"

namespace djinn::capture {

class CaptureTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    RegisterBackend();
    RegisterOperators();
    RegisterCaptureScope();
  }
  void SetUp() override {
    session_ = std::make_shared<RecordingSession>();
    ASSERT_TRUE(SetSession(session_).ok());
    recorder_ = session_->Recorder(0);
  }
  void TearDown() override { TakeSession(); }

  at::Device device_{"remote_accelerator:0"};
  std::shared_ptr<RecordingSession> session_;
  std::shared_ptr<RecordingDevice> recorder_;
  at::Tensor Remote(at::IntArrayRef sizes) {
    return at::empty(sizes, at::TensorOptions(device_));
  }
};

// Expects the same metadata as on the CPU.
inline void ExpectSameMetadata(const at::Tensor& remote,
                               const at::Tensor& cpu) {
  EXPECT_EQ(remote.sizes(), cpu.sizes());
  EXPECT_EQ(remote.strides(), cpu.strides());
  EXPECT_EQ(remote.scalar_type(), cpu.scalar_type());
  EXPECT_EQ(remote.storage_offset(), cpu.storage_offset());
}

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_TESTING_CAPTURE_FIXTURE_H_
