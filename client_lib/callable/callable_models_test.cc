#include "client_lib/callable/callable_models.h"

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "client_lib/session/testing/program.h"

namespace djinn::capture {
namespace {

constexpr uint32_t kLane = 3;

class CallableModelsTest : public DeviceTest {
 protected:
  CallableModelsTest() { models_.emplace("net"); }

  bool Admit(const std::vector<StoragePtr>& captured,
             const std::vector<StoragePtr>& all) {
    return models_->Admit(kLane, device_, captured, all);
  }
  bool Admit(const std::vector<StoragePtr>& all) { return Admit(all, all); }
  // Returns how often the worker was asked, or told to forget a model.
  int Asked() {
    EXPECT_TRUE(device_->Synchronize().ok());
    int count = 0;
    for (const v1::Ordered& message : cluster_.worker().seen().received) {
      count += message.has_register_model();
    }
    return count;
  }
  // Returns the number of storages of the worker's only model.
  int Known() {
    const auto models = cluster_.worker().models();
    EXPECT_EQ(models.size(), 1u);
    return models.empty() ? 0 : models.begin()->second.storages_size();
  }

  StoragePtr a_ = Uploaded(), b_ = Uploaded();
  std::optional<CallableModels> models_;
};

TEST_F(CallableModelsTest, KnownModelIsNotSentAgain) {
  EXPECT_TRUE(Admit({a_}));
  EXPECT_TRUE(Admit({a_}));
  EXPECT_EQ(Asked(), 1);
  EXPECT_EQ(cluster_.worker().models().begin()->second.name(), "net");
  EXPECT_TRUE(Admit({a_}, {a_, b_}));
  EXPECT_EQ(Asked(), 2);
  EXPECT_EQ(Known(), 2);
}

TEST_F(CallableModelsTest, CallableWithoutStoragesIsNoModel) {
  EXPECT_TRUE(Admit({}));
  EXPECT_EQ(Asked(), 0);
}

TEST_F(CallableModelsTest, RefusedModelIsRetriedAfter256Calls) {
  cluster_.worker().Set(&FakeScript::model_bytes, 10);
  for (int i = 0; i < 256; ++i) EXPECT_FALSE(Admit({a_, b_}));
  EXPECT_EQ(Asked(), 1);
  EXPECT_EQ(models_->refusal(),
            "MODEL_BYTES: a model: limit 10 bytes, used 0, asked 16 (worker , "
            "tenant , error 0)");
  cluster_.worker().Set(&FakeScript::model_bytes, 16);
  EXPECT_TRUE(Admit({a_, b_}));
  EXPECT_EQ(Asked(), 2);
  EXPECT_EQ(models_->refusal(), "");
}

TEST_F(CallableModelsTest, OtherStoragesAreAskedForAtOnce) {
  cluster_.worker().Set(&FakeScript::model_bytes, 10);
  EXPECT_FALSE(Admit({a_, b_}));
  EXPECT_TRUE(Admit({a_}));
  EXPECT_EQ(Asked(), 2);
  EXPECT_EQ(Known(), 1);
}

TEST_F(CallableModelsTest, AdmittedStoragesStayAdmitted) {
  cluster_.worker().Set(&FakeScript::model_bytes, 10);
  EXPECT_TRUE(Admit({a_}));
  // The budget has no room for the weights of the other call, but it still
  // holds those of the first call.
  EXPECT_FALSE(Admit({b_}, {a_, b_}));
  EXPECT_TRUE(Admit({a_}, {a_, b_}));
  EXPECT_EQ(Asked(), 2);
  EXPECT_EQ(Known(), 1);
}

TEST_F(CallableModelsTest, DestructionForgetsTheModel) {
  EXPECT_TRUE(Admit({a_}));
  models_.reset();
  EXPECT_TRUE(ReadByte(*device_, kLane, Uploaded()).ok());
  EXPECT_EQ(Asked(), 2);
  EXPECT_TRUE(cluster_.worker().models().empty());
}

TEST_F(CallableModelsTest, RetainForgetsUnusedDevices) {
  EXPECT_TRUE(Admit({a_}));
  models_->Retain({device_.get()});
  EXPECT_EQ(Known(), 1);
  models_->Retain({});
  EXPECT_TRUE(ReadByte(*device_, kLane, Uploaded()).ok());
  EXPECT_EQ(Asked(), 2);
  EXPECT_TRUE(cluster_.worker().models().empty());
  // A callable that is used on the device again asks again.
  EXPECT_TRUE(Admit({a_}));
  EXPECT_EQ(Known(), 1);
}

TEST_F(CallableModelsTest, ModelsHaveDistinctIds) {
  EXPECT_TRUE(Admit({a_}));
  CallableModels others("head");
  EXPECT_TRUE(others.Admit(kLane, device_, {a_}, {a_}));
  EXPECT_EQ(cluster_.worker().models().size(), 2u);
}

// A call does not wait for another thread's request.
TEST_F(CallableModelsTest, ConcurrentCallIsNotAdmittedAndDoesNotWait) {
  EXPECT_TRUE(device_->Synchronize().ok());
  cluster_.worker().Pause();
  std::thread asks([this] { EXPECT_TRUE(Admit({a_, b_})); });
  cluster_.worker().WaitWaiting(1);
  EXPECT_FALSE(Admit({a_, b_}));
  cluster_.worker().Resume();
  asks.join();
  EXPECT_TRUE(Admit({a_, b_}));
  EXPECT_EQ(Asked(), 1);
}

TEST_F(CallableModelsTest, ModelDroppedWhileAskingIsForgotten) {
  EXPECT_TRUE(device_->Synchronize().ok());
  cluster_.worker().Pause();
  std::thread asks([this] { EXPECT_FALSE(Admit({a_})); });
  cluster_.worker().WaitWaiting(1);
  models_->Retain({});
  cluster_.worker().Resume();
  asks.join();
  EXPECT_TRUE(ReadByte(*device_, kLane, Uploaded()).ok());
  EXPECT_TRUE(device_->Synchronize().ok());
  EXPECT_TRUE(cluster_.worker().models().empty());
}

// The call itself reports the failure of the device.
TEST_F(CallableModelsTest, LostWorkerIsNoRefusal) {
  cluster_.coordinator().EndLease("lease-0", "WORKER_LOST");
  EXPECT_TRUE(Admit({a_}));
  EXPECT_EQ(models_->refusal(), "");
}

}  // namespace
}  // namespace djinn::capture
