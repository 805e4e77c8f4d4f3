// Tests runs that say only how they differ from earlier ones, by place.
#include <memory>
#include <vector>

#include "common/srg/validate.h"
#include "gpu_worker/testing/core_fixture.h"

namespace djinn::worker {
namespace {

// Two parts of a program, each with an accumulator and an addend: 1 and 2, and
// 3 and 4.
class RememberedRunsTest : public WorkerCoreTest {
 protected:
  void SetUp() override {
    WorkerCoreTest::SetUp();
    client_ = Open();
    client_->InstallInline(1, FloatBytes({0, 0}));
    client_->InstallInline(2, FloatBytes({1, 2}));
    client_->InstallInline(3, FloatBytes({0, 0}));
    client_->InstallInline(4, FloatBytes({10, 20}));
    client_->Define(1, AddTo());
    client_->set_remember(true);
    client_->Run(1, {1, 2});
    client_->set_remember(false);
    // Storage 1 is at version 2 now.
  }
  v1::Ordered Repeat(uint32_t place, uint64_t version_sum) {
    v1::Ordered message;
    v1::Run* const run = message.mutable_run();
    run->set_graph_id(1);
    run->mutable_repeat()->set_place(place);
    run->mutable_repeat()->set_version_sum(version_sum);
    return message;
  }
  // Returns a repeat of place 0 with the other part's storages, whose
  // accumulator is at `version`.
  v1::Ordered OtherPart(uint64_t version) {
    v1::Ordered message = Repeat(0, 0);
    v1::Repeat* const repeat = message.mutable_run()->mutable_repeat();
    repeat->add_slot_gaps(0);
    repeat->add_storages(3);
    repeat->add_base_versions(version);
    repeat->add_slot_gaps(0);
    repeat->add_storages(1);
    repeat->add_base_versions(1);
    return message;
  }
  Floats Accumulated(uint64_t storage, uint64_t version) {
    client_->set_version(storage, version);
    return client_->Read(storage, 2);
  }
  std::string EndReason() { return ErrorReason(client_->WaitClosed()); }

  std::unique_ptr<TestClient> client_;
};

TEST_F(RememberedRunsTest, EachPartRepeatsItsOwn) {
  v1::Ordered other = OtherPart(1);
  other.mutable_run()->set_remember(true);
  client_->Send(other);
  client_->Send(Repeat(0, 2 + 1));
  client_->Send(Repeat(1, 2 + 1));
  client_->Send(Repeat(1, 3 + 1));
  client_->Send(Repeat(0, 3 + 1));
  EXPECT_EQ(Accumulated(1, 4), (Floats{3, 6}));
  EXPECT_EQ(Accumulated(3, 4), (Floats{30, 60}));
}

TEST_F(RememberedRunsTest, WithoutAPlaceOfItsOwnARepeatTakesTheOthers) {
  client_->Send(OtherPart(1));
  client_->Send(Repeat(0, 2 + 1));
  EXPECT_EQ(Accumulated(1, 2), (Floats{1, 2}));
  EXPECT_EQ(Accumulated(3, 3), (Floats{20, 40}));
}

TEST_F(RememberedRunsTest, ARunInFullIsRememberedAlone) {
  v1::Ordered other = OtherPart(1);
  other.mutable_run()->set_remember(true);
  client_->Send(other);
  client_->set_version(1, 2);
  client_->set_remember(true);
  client_->Run(1, {1, 2});
  client_->set_remember(false);
  client_->Send(Repeat(0, 3 + 1));
  EXPECT_EQ(Accumulated(1, 4), (Floats{3, 6}));
  client_->Send(Repeat(1, 2 + 1));
  EXPECT_EQ(EndReason(), "PROTOCOL_VIOLATION");
}

TEST_F(RememberedRunsTest, SoManyAndNoMore) {
  for (size_t places = 1; places < srg::kMaxRememberedRuns; ++places) {
    v1::Ordered another = Repeat(0, places + 1 + 1);
    another.mutable_run()->set_remember(true);
    client_->Send(another);
  }
  const uint64_t version = 1 + srg::kMaxRememberedRuns;
  EXPECT_EQ(Accumulated(1, version), (Floats{8, 16}));
  v1::Ordered another = Repeat(0, version + 1);
  another.mutable_run()->set_remember(true);
  client_->Send(another);
  EXPECT_EQ(EndReason(), "PROTOCOL_VIOLATION");
}

}  // namespace
}  // namespace djinn::worker
