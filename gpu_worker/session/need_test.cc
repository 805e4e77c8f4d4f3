// Tests graphs whose plans were evicted, and graphs that are forgotten.
#include <memory>
#include <string>
#include <vector>

#include "gpu_worker/testing/core_fixture.h"

namespace djinn::worker {
namespace {

class NeedTest : public WorkerCoreTest {
 protected:
  NeedTest() {
    WorkerCoreOptions options;
    options.graph_cache.max_plans = 1;
    Start(options);
    other_ = Fill();
    client_ = Open();
    client_->Define(1, AddTo());
    client_->Define(2, other_);
    client_->InstallInline(1, FloatBytes({1, 2}));
    client_->InstallInline(2, FloatBytes({10, 20}));
  }

  int Needs() {
    int count = 0;
    for (const v1::ControlResponse& response : client_->responses()) {
      count += response.has_need();
    }
    return count;
  }
  bool WaitNeeds(int count) {
    return WaitUntil([&] { return Needs() >= count; });
  }

  srg::Graph other_;
  std::unique_ptr<TestClient> client_;
};

TEST_F(NeedTest, ARunWaitsForItsGraphAndGoesOn) {
  client_->Run(1, {1, 2});
  EXPECT_TRUE(WaitNeeds(1));
  // Other sessions go on.
  std::unique_ptr<TestClient> bystander = Open("s2", "t2");
  EXPECT_TRUE(bystander->WaitCompleted(bystander->Create(1, 8)));
  client_->Supply(1, AddTo());
  EXPECT_EQ(client_->Read(1, 2), (Floats{11, 22}));
  client_->Run(2, {1}, {5});
  EXPECT_TRUE(WaitNeeds(2));
  client_->Supply(2, other_);
  EXPECT_EQ(client_->Read(1, 2), (Floats{5, 5}));
}

TEST_F(NeedTest, AskedAgainAfterAResume) {
  client_->Run(1, {1, 2});
  EXPECT_TRUE(WaitNeeds(1));
  Break(client_.get());
  Resume(client_.get());
  EXPECT_TRUE(WaitNeeds(2));
  client_->Supply(1, AddTo());
  client_->Supply(1, AddTo());  // answers both questions
  EXPECT_EQ(client_->Read(1, 2), (Floats{11, 22}));
}

TEST_F(NeedTest, AnotherGraphIsAViolation) {
  client_->Run(1, {1, 2});
  EXPECT_TRUE(WaitNeeds(1));
  client_->Supply(1, other_);
  EXPECT_EQ(ErrorReason(client_->WaitClosed()), "PROTOCOL_VIOLATION");
  EXPECT_TRUE(WaitMemory(0));
}

TEST_F(NeedTest, UnrequestedGraphIsAViolation) {
  client_->Supply(2, other_);
  EXPECT_EQ(ErrorReason(client_->WaitClosed()), "PROTOCOL_VIOLATION");
}

TEST_F(NeedTest, AnAnswerThatDoesNotComeEndsTheSession) {
  client_->Run(1, {1, 2});
  EXPECT_TRUE(WaitNeeds(1));
  clock_.Advance(absl::Seconds(31));
  EXPECT_EQ(ErrorReason(client_->WaitClosed()), "NEED_TIMEOUT");
  EXPECT_TRUE(WaitMemory(0));
}

TEST_F(NeedTest, ForgottenGraphsMakeRoomAndMayNotBeRun) {
  std::vector<uint64_t> last;
  for (uint64_t id = 3; id < 20; ++id) {
    // The session may have four graphs at a time.
    client_->Define(id, other_, {id - 2});
  }
  client_->Run(19, {1}, {5});
  EXPECT_EQ(client_->Read(1, 2), (Floats{5, 5}));
  client_->Run(7, {1}, {5});
  EXPECT_EQ(ErrorReason(client_->WaitClosed()), "PROTOCOL_VIOLATION");
}

TEST_F(NeedTest, ForgettingWhatIsNotDefinedIsAViolation) {
  client_->Define(3, other_, {9});
  EXPECT_EQ(ErrorReason(client_->WaitClosed()), "PROTOCOL_VIOLATION");
}

}  // namespace
}  // namespace djinn::worker
