// Tests messages that arrive in one.
#include <memory>
#include <string>
#include <vector>

#include "gpu_worker/testing/core_fixture.h"

namespace djinn::worker {
namespace {

TEST_F(WorkerCoreTest, FollowingMessagesAreExecutedInOrder) {
  std::unique_ptr<TestClient> client = Open();
  client->Hold();
  client->InstallInline(1, FloatBytes({1, 2}));
  client->InstallInline(2, FloatBytes({3, 4}));
  client->Define(1, AddTo());
  client->Run(1, {1, 2});
  client->Run(1, {1, 2});
  const uint64_t read = client->SendRead(1, FakeGraph::View(0, 2));
  client->Release();
  EXPECT_EQ(FloatsOf(client->WaitRead(read).value()), Floats({7, 10}));
}

TEST_F(WorkerCoreTest, ARunIsNotReportedApartFromTheReadThatFollowsIt) {
  std::unique_ptr<TestClient> client = Open();
  client->InstallInline(1, FloatBytes({1, 2}));
  client->InstallInline(2, FloatBytes({3, 4}));
  EXPECT_TRUE(client->WaitCompleted(client->Define(1, AddTo())));
  const size_t before = client->responses().size();
  for (int i = 1; i <= 20; ++i) {
    client->Hold();
    client->Run(1, {1, 2});
    const uint64_t read = client->SendRead(1, FakeGraph::View(0, 2));
    client->Release();
    EXPECT_EQ(FloatsOf(client->WaitRead(read).value())[0], 1.0f + 3 * i);
    EXPECT_EQ(client->responses().size(), before + i);
  }
}

TEST_F(WorkerCoreTest, HeldMessagesCountForTheWindow) {
  std::unique_ptr<TestClient> client = Open();
  client->Hold();
  // The session is parked on a transfer that never arrives, so that nothing
  // completes.
  client->InstallTransfer(1, 1, std::string(2000, 'x'));
  for (int i = 0; i < 64; ++i) client->Create(10 + i, 8);
  client->Release();
  EXPECT_EQ(ErrorReason(client->WaitClosed()), "WINDOW_EXCEEDED");
}

TEST_F(WorkerCoreTest, NothingFollowsWhatFollowsNorAHello) {
  std::unique_ptr<TestClient> client = Open();
  v1::ControlRequest nested;
  nested.mutable_ordered()->set_sequence(1);
  nested.mutable_ordered()->mutable_create_storage()->set_storage(1);
  nested.mutable_ordered()->mutable_create_storage()->set_size_bytes(8);
  v1::ControlRequest request;
  request.set_acknowledged_reply(0);
  *request.mutable_ordered() = nested.ordered();
  nested.mutable_ordered()->set_sequence(2);
  *nested.add_following() = request;
  *request.add_following() = nested;
  client->SendAny(request);
  EXPECT_EQ(ErrorReason(client->WaitClosed()), "PROTOCOL_VIOLATION");

  Grant(Lease("s2", "t1"));
  InProcessPair pair = MakeInProcessPair();
  core_->Attach(std::move(pair.worker));
  TestClient other(std::move(pair.client));
  v1::ControlRequest hello;
  *hello.mutable_hello() = HelloFor("s2");
  *hello.add_following() = nested;
  other.SendAny(hello);
  const absl::Status status = other.WaitClosed();
  EXPECT_EQ(ErrorReason(status), "PROTOCOL_VIOLATION");
  EXPECT_NE(status.message().find("a hello by itself"), std::string::npos);
}

}  // namespace
}  // namespace djinn::worker
