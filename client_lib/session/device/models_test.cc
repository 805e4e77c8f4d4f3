// Tests resident models: what the worker learns of the storages that registered
// callables capture, and when.
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client_lib/session/testing/program.h"
#include "common/base/error.h"
#include "common/base/patience.h"

namespace djinn {
namespace {

constexpr uint32_t kLane = 3;

class ModelsTest : public DeviceTest {
 protected:
  absl::Status Register(uint64_t id, std::vector<StoragePtr> storages,
                        const std::string& name = "net") {
    return device_->RegisterModel(kLane, id, name, std::move(storages));
  }
  // Returns the models after everything was executed.
  std::map<uint64_t, v1::RegisterModel> Models(int worker = 0) {
    EXPECT_TRUE(device_->Synchronize().ok());
    return cluster_.worker(worker).models();
  }
  // Makes other calls, whose messages carry releases and forgotten models.
  void GoOn() { EXPECT_TRUE(ReadByte(*device_, kLane, Uploaded()).ok()); }
  int MessagesOf(v1::Ordered::ActionCase action) {
    int count = 0;
    for (const v1::Ordered& message : cluster_.worker().seen().received) {
      count += message.action_case() == action;
    }
    return count;
  }
};

TEST_F(ModelsTest, TheWorkerIsToldBeforeTheCallReturns) {
  const StoragePtr a = Uploaded(), b = Uploaded();
  EXPECT_TRUE(Register(5, {a, b}).ok());
  const auto models = cluster_.worker().models();
  ASSERT_EQ(models.size(), 1u);
  const v1::RegisterModel& model = models.at(5);
  EXPECT_EQ(model.name(), "net");
  ASSERT_EQ(model.storages_size(), 2);
  EXPECT_EQ(model.storages(0), a->id());
  EXPECT_EQ(model.storages(1), b->id());
}

// The storage is in another lane's open segment.
TEST_F(ModelsTest, UnsentStorageIsSentBeforeItsModel) {
  const StoragePtr made = device_->NewStorage(4);
  EXPECT_TRUE(Record(*device_, 9, MakeCall(1, {{made, kCreates}})).ok());
  EXPECT_TRUE(Register(1, {made}).ok());
  EXPECT_EQ(cluster_.worker().models().at(1).storages(0), made->id());
}

TEST_F(ModelsTest, ARefusalNamesItsReason) {
  cluster_.worker().Set(&FakeScript::model_bytes, 10);
  const StoragePtr a = Uploaded(), b = Uploaded();
  const absl::Status refused = Register(1, {a, b});
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrorReason(refused), "MODEL_BYTES");
  // A refusal is no root error.
  EXPECT_TRUE(session_->RootErrors().empty());
  EXPECT_TRUE(Register(1, {a}).ok());
  EXPECT_EQ(session_->statistics().root_errors, 0u);
}

TEST_F(ModelsTest, AForgottenOneIsGoneWithTheNextCalls) {
  const StoragePtr a = Uploaded();
  EXPECT_TRUE(Register(1, {a}).ok());
  EXPECT_TRUE(Register(2, {a}).ok());
  device_->ForgetModel(1);
  GoOn();
  const auto models = Models();
  EXPECT_EQ(models.size(), 1u);
  EXPECT_EQ(models.count(2), 1u);
}

// The program drops a storage after the call and before the message is sent.
TEST_F(ModelsTest, AStorageThatIsGoneMeanwhileIsLeftOut) {
  const StoragePtr a = Uploaded();
  {
    const StoragePtr b = Uploaded();
    GoOn();
    Drop(b);
    GoOn();
    EXPECT_EQ(MessagesOf(v1::Ordered::kFree), 1);
    EXPECT_TRUE(Register(1, {a, b}).ok());
  }
  ASSERT_EQ(Models().at(1).storages_size(), 1);
  EXPECT_EQ(Models().at(1).storages(0), a->id());
}

TEST_F(ModelsTest, ModelOfReleasedStoragesIsNotRegistered) {
  const StoragePtr a = Uploaded();
  EXPECT_TRUE(Register(1, {a}).ok());
  Drop(a);
  GoOn();
  EXPECT_TRUE(Register(1, {a}).ok());
  EXPECT_TRUE(Models().empty());
}

TEST_F(ModelsTest, NamesAreShortAndPlain) {
  const StoragePtr a = Uploaded();
  EXPECT_TRUE(Register(1, {a}, std::string(300, 'x')).ok());
  EXPECT_TRUE(Register(2, {a}, "n\xff\nt").ok());
  EXPECT_EQ(Models().at(1).name(), std::string(256, 'x'));
  EXPECT_EQ(Models().at(2).name(), "n??t");
}

TEST_F(ModelsTest, AnAnswerThatWasCutOffComesWithTheNextStream) {
  const StoragePtr a = Uploaded();
  GoOn();
  EXPECT_TRUE(device_->Synchronize().ok());
  cluster_.worker().CutAt(FakeScript::Cut::kBeforeOut,
                          cluster_.worker().seen().outgoing + 1);
  EXPECT_TRUE(Register(1, {a}).ok());
  EXPECT_EQ(cluster_.worker().seen().resumes, 1);
  EXPECT_EQ(Models().size(), 1u);
}

TEST_F(ModelsTest, AnotherWorkerKnowsThemAndForgetsThem) {
  const StoragePtr a = Uploaded();
  EXPECT_TRUE(Register(1, {a}).ok());
  EXPECT_FALSE(cluster_.coordinator().Migrate("lease-0", 1, 10).has_failure());
  EXPECT_EQ(Models(1).size(), 1u);
  device_->ForgetModel(1);
  GoOn();
  EXPECT_TRUE(Models(1).empty());
}

// The registering thread has given up, so the message that is sent at last must
// leave nothing behind.
TEST(QueuedModelTest, OneThatWaitsToBeToldIsForgotten) {
  v1::SessionLimits limits = FakeWorker::DefaultLimits();
  limits.set_max_outstanding(2);
  FakeCluster cluster(limits);
  FakeWorker& worker = cluster.worker();
  const std::unique_ptr<Session> session = cluster.Open();
  const std::shared_ptr<VirtualDevice> device = *session->Device(0);
  ASSERT_TRUE(ReadByte(*device, kLane, device->NewStorage(4)).ok());
  ASSERT_TRUE(device->Synchronize().ok());
  worker.Pause();
  std::vector<StoragePtr> storages;
  for (uint32_t lane = 0; lane < 8; ++lane) {
    storages.push_back(device->NewStorage(4));
    ASSERT_TRUE(
        Record(*device, lane, MakeCall(lane + 1, {{storages.back(), kCreates}}))
            .ok());
  }
  std::thread registering([&] {
    EXPECT_TRUE(device->RegisterModel(kLane, 1, "net", storages).ok());
  });
  // Waits for the first of the calls, which are sent with what waits behind
  // them.
  worker.WaitWaiting(2);
  device->ForgetModel(1);
  worker.Resume();
  registering.join();
  ASSERT_TRUE(device->Synchronize().ok());
  EXPECT_TRUE(worker.models().empty());
  storages.clear();
  EXPECT_TRUE(session->Close(absl::Seconds(5)).ok());
}

TEST_F(ModelsTest, ALostWorkerIsTheAnswer) {
  const StoragePtr a = Uploaded();
  GoOn();
  cluster_.worker().Pause();
  cluster_.coordinator().EndLease("lease-0", "WORKER_LOST");
  EXPECT_EQ(ErrorReason(Register(1, {a})), "WORKER_LOST");
  device_->ForgetModel(1);
}

TEST_F(ModelsTest, MultiWorkerDeviceRegistersNoModels) {
  v1::SessionLimits limits = FakeWorker::DefaultLimits();
  limits.set_memory_bytes(250'000);
  FakeCluster small(limits);
  small.coordinator().LetSpan(2);
  const std::unique_ptr<Session> session = small.Open();
  device_ = *session->Device(0);
  const auto upload = [this] {
    StoragePtr storage = device_->NewStorage(100'000);
    const auto bytes = std::make_shared<std::string>(Pattern(100'000));
    EXPECT_TRUE(device_->Upload(kLane, storage.get(), {*bytes, bytes}).ok());
    return storage;
  };
  const StoragePtr a = upload(), b = upload();
  EXPECT_TRUE(Register(1, {a, b}).ok());
  // The storage has no room on the first worker.
  const StoragePtr c = upload();
  ASSERT_EQ(small.worker(1).live_storages().size(), 1u);
  EXPECT_TRUE(Register(2, {a, b, c}).ok());
  device_->ForgetModel(1);
  GoOn();
  EXPECT_TRUE(device_->Synchronize().ok());
  // The sender of the first worker sends the message on its own time.
  for (Patience patience; !small.worker(0).models().empty();) patience.Yield();
  EXPECT_TRUE(small.worker(1).models().empty());
}

}  // namespace
}  // namespace djinn
