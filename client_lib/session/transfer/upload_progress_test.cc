#include "client_lib/session/transfer/upload_progress.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "client_lib/session/testing/program.h"
#include "common/transport/stream.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using Reports = std::vector<std::pair<uint64_t, uint64_t>>;
constexpr uint64_t kMiB = 1 << 20;

class UploadProgressTest : public testing::Test {
 protected:
  UploadProgressTest()
      : session_(cluster_.Open()), device_(*session_->Device(0)) {
    WatchUploads([this](uint64_t done,
                        uint64_t total) { reports_.emplace_back(done, total); },
                 2 * kMiB);
  }
  ~UploadProgressTest() override { WatchUploads(nullptr, 0); }

  void Upload(const std::string& bytes) {
    const StoragePtr storage = device_->NewStorage(bytes.size());
    ASSERT_TRUE(device_->Upload(0, storage.get(), {bytes, nullptr}).ok());
  }

  Reports reports_;
  FakeCluster cluster_;
  const std::unique_ptr<Session> session_;
  const std::shared_ptr<VirtualDevice> device_;
};

TEST_F(UploadProgressTest, GrowsAndEndsWithTheWhole) {
  const uint64_t total = 3 * kMiB + 5;
  Upload(Pattern(total));
  Reports expected;
  for (uint64_t sent = 0; sent < total; sent += kBulkChunkBytes) {
    expected.emplace_back(sent, total);
  }
  expected.emplace_back(total, total);
  EXPECT_EQ(reports_, expected);
}

TEST_F(UploadProgressTest, SmallOnesAndUnwatchedOnesAreNotSaid) {
  Upload(Pattern(2 * kMiB - 1));
  EXPECT_EQ(reports_, Reports{});
  WatchUploads(nullptr, 0);
  Upload(Pattern(4 * kMiB));
  EXPECT_EQ(reports_, Reports{});
}

TEST_F(UploadProgressTest, UploadThatTheWorkerHoldsIsDoneAtOnce) {
  cluster_.worker().Set(&FakeScript::transfers, FakeScript::Transfers::kHeld);
  Upload(Pattern(4 * kMiB));
  EXPECT_EQ(reports_, (Reports{{4 * kMiB, 4 * kMiB}}));
}

TEST_F(UploadProgressTest, ARefusedOneNeverEnds) {
  cluster_.worker().Set(&FakeScript::transfers, FakeScript::Transfers::kRefuse);
  const std::string bytes = Pattern(4 * kMiB);
  const StoragePtr storage = device_->NewStorage(bytes.size());
  EXPECT_FALSE(device_->Upload(0, storage.get(), {bytes, nullptr}).ok());
  EXPECT_EQ(reports_, Reports{});
}

TEST(UploadReportsTest, AreFewAndNeverGoBack) {
  Reports reports;
  WatchUploads(
      [&](uint64_t done, uint64_t total) { reports.emplace_back(done, total); },
      0);
  UploadProgress progress(1000 * kMiB);
  for (int round = 0; round < 2; ++round) {
    for (uint64_t i = 0; i < 1000; ++i) progress.Sent(i * kMiB);
  }
  progress.Finish();
  WatchUploads(nullptr, 0);
  EXPECT_EQ(reports.size(), UploadProgress::kReports + 1);
  EXPECT_EQ(reports.back().first, 1000 * kMiB);
}

}  // namespace
}  // namespace djinn
