#include "client_lib/capture/device/process_session.h"

#include <memory>

#include "absl/status/status.h"
#include "client_lib/capture/testing/recording_session.h"
#include "common/base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::capture {
namespace {

using ::testing::HasSubstr;

class ProcessSessionTest : public testing::Test {
 protected:
  void TearDown() override {
    TakeSession();
    SetDefaultSessionFactory(nullptr);
  }
};

TEST_F(ProcessSessionTest, OneSessionIsOpenAtATime) {
  const auto first = std::make_shared<RecordingSession>();
  EXPECT_EQ(CurrentSession(), nullptr);
  EXPECT_EQ(SetSession(first), absl::OkStatus());
  const absl::Status second = SetSession(std::make_shared<RecordingSession>());
  EXPECT_EQ(second.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ErrorReason(second), "SESSION_OPEN");
  EXPECT_EQ(CurrentSession(), first);
  EXPECT_EQ(TakeSession(), first);
  EXPECT_EQ(TakeSession(), nullptr);
}

TEST_F(ProcessSessionTest, DeviceWithoutSessionOrFactoryIsAnError) {
  const absl::Status status = DeviceOfProcess(0).status();
  EXPECT_EQ(ErrorReason(status), "NO_SESSION");
  EXPECT_THAT(status.message(), HasSubstr("djinn::Connect()"));
}

TEST_F(ProcessSessionTest, FirstUseOpensTheDefaultSessionOnce) {
  int opened = 0;
  SetDefaultSessionFactory([&opened] {
    ++opened;
    return std::make_shared<RecordingSession>();
  });
  const auto device = DeviceOfProcess(3);
  ASSERT_EQ(device.status(), absl::OkStatus());
  EXPECT_EQ((*device)->index(), 3);
  EXPECT_EQ(DeviceOfProcess(0).status(), absl::OkStatus());
  EXPECT_EQ(opened, 1);
}

TEST_F(ProcessSessionTest, FailureOfTheFactoryIsReturnedEachTime) {
  int attempts = 0;
  SetDefaultSessionFactory(
      [&attempts]() -> absl::StatusOr<std::shared_ptr<Session>> {
        ++attempts;
        return absl::UnavailableError("away");
      });
  for (int i = 1; i <= 2; ++i) {
    EXPECT_EQ(DeviceOfProcess(0).status(), absl::UnavailableError("away"));
    EXPECT_EQ(attempts, i);
  }
  EXPECT_EQ(CurrentSession(), nullptr);
}

}  // namespace
}  // namespace djinn::capture
