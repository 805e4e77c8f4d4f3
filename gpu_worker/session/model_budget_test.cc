// Tests models that clients register, and their tenant's budget of models.
#include <memory>
#include <string>
#include <vector>

#include "gpu_worker/testing/core_fixture.h"

namespace djinn::worker {
namespace {

class ModelBudgetTest : public WorkerCoreTest {
 protected:
  ModelBudgetTest() {
    limits_.set_memory_bytes(8 << 20);
    limits_.set_max_outstanding(64);
    limits_.set_max_outstanding_bytes(1 << 20);
  }
  // Sets the limits of the tenant's sessions from the next Open() on.
  void Limit(uint32_t max_models, uint64_t model_bytes) {
    limits_.set_max_models(max_models);
    limits_.set_model_bytes(model_bytes);
  }
  std::unique_ptr<TestClient> Open(const std::string& session = "s1") {
    v1::LeaseClaims lease = Lease(session, "t1");
    *lease.mutable_tenant_limits() = limits_;
    Grant(lease);
    std::unique_ptr<TestClient> client = Connect(HelloFor(session));
    client->WaitHello();
    return client;
  }
  v1::SessionUse Use() { return core_->Snapshot().sessions(0).use(); }
  // Returns the message with which the client's stream ends.
  static std::string Violation(TestClient* client) {
    return std::string(client->WaitClosed().message());
  }

  v1::TenantLimits limits_;
};

TEST_F(ModelBudgetTest, HasWhatItsStoragesHaveTogether) {
  const std::unique_ptr<TestClient> client = Open();
  client->Create(1, 1000);
  client->Create(2, 24);
  const v1::ModelRegistered registered =
      client->RegisterModel(1, {1, 2}, "net");
  EXPECT_FALSE(registered.has_refused());
  EXPECT_EQ(registered.size_bytes(), 1024u);
  const v1::SessionUse use = Use();
  EXPECT_EQ(use.model_count(), 1u);
  EXPECT_EQ(use.model_bytes(), 1024u);
  EXPECT_EQ(use.models(0).name(), "net");
  EXPECT_EQ(use.models(0).size_bytes(), 1024u);
}

TEST_F(ModelBudgetTest, FreedStorageCountsNoMore) {
  const std::unique_ptr<TestClient> client = Open();
  client->Create(1, 1000);
  client->Create(2, 24);
  client->Create(3, 4);
  client->RegisterModel(1, {1, 2}, "net");
  client->RegisterModel(2, {2, 3}, "head");
  EXPECT_EQ(Use().model_bytes(), 1052u);
  client->Free({2});
  client->Read(3, 1);
  EXPECT_EQ(Use().model_bytes(), 1004u);
  // The model is registered again with another storage, so its earlier storages
  // no longer count.
  client->RegisterModel(1, {3}, "net");
  client->Free({1});
  client->Read(3, 1);
  EXPECT_EQ(Use().model_bytes(), 8u);
  EXPECT_EQ(Use().model_count(), 2u);
}

TEST_F(ModelBudgetTest, StoragesThatShareBytesCountInFull) {
  const std::unique_ptr<TestClient> client = Open();
  const std::string bytes(2000, 'x');
  client->InstallTransfer(1, 1, bytes);
  client->WaitDecision(1);
  client->SendBytes(1, bytes);
  client->InstallTransfer(2, 2, bytes);
  EXPECT_EQ(client->RegisterModel(1, {1, 2}).size_bytes(), 4000u);
  EXPECT_EQ(core_->Snapshot().memory().content_bytes(), 2000u);
}

TEST_F(ModelBudgetTest, ARefusedOneLeavesTheSessionAsItWas) {
  Limit(1, 500);
  const std::unique_ptr<TestClient> client = Open();
  client->InstallInline(1, FloatBytes({1, 2}));
  client->Create(2, 1000);
  const v1::ModelRegistered large = client->RegisterModel(1, {1, 2}, "net");
  EXPECT_EQ(large.size_bytes(), 1008u);
  EXPECT_EQ(large.refused().reason(), "MODEL_BYTES");
  EXPECT_EQ(large.refused().code(),
            static_cast<int>(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(large.refused().message(),
            "what the model net keeps using: limit 500 bytes, used 0, asked "
            "1008");
  EXPECT_FALSE(client->RegisterModel(1, {1}).has_refused());
  EXPECT_EQ(client->RegisterModel(2, {1}).refused().reason(), "MAX_MODELS");
  EXPECT_EQ(client->Read(1, 2), (Floats{1, 2}));
  EXPECT_EQ(Use().model_count(), 1u);
  EXPECT_EQ(Use().model_bytes(), 8u);
  EXPECT_EQ(Use().refused_models(), 2u);
  // A refusal is not a root error: it makes nothing unusable.
  for (const v1::ControlResponse& response : client->responses()) {
    EXPECT_FALSE(response.has_poisoned());
  }
  const std::string text = Metrics();
  const auto has = [&](const std::string& line) {
    return text.find(line + "\n") != std::string::npos;
  };
  EXPECT_TRUE(
      has("djinn_rejections_total{tenant=\"t1\",reason=\"MODEL_BYTES\"} 1"));
  EXPECT_TRUE(
      has("djinn_rejections_total{tenant=\"t1\",reason=\"MAX_MODELS\"} 1"));
  EXPECT_TRUE(has("djinn_worker_models{tenant=\"t1\"} 1"));
  EXPECT_TRUE(has("djinn_worker_model_bytes{tenant=\"t1\"} 8"));
}

TEST_F(ModelBudgetTest, TheTenantsSessionsShareTheBudget) {
  Limit(2, 1 << 20);
  const std::unique_ptr<TestClient> a = Open("s1");
  const std::unique_ptr<TestClient> b = Open("s2");
  a->Create(1, 8);
  b->Create(1, 8);
  EXPECT_FALSE(a->RegisterModel(1, {1}).has_refused());
  EXPECT_FALSE(b->RegisterModel(1, {1}).has_refused());
  EXPECT_TRUE(b->RegisterModel(2, {1}).has_refused());
  // Without storages the model is dropped, without an answer.
  EXPECT_TRUE(a->WaitCompleted(a->SendModel(1, {})));
  EXPECT_FALSE(b->RegisterModel(2, {1}).has_refused());
}

TEST_F(ModelBudgetTest, ASessionThatEndsGivesItsPartBack) {
  Limit(1, 1 << 20);
  std::unique_ptr<TestClient> a = Open("s1");
  const std::unique_ptr<TestClient> b = Open("s2");
  a->Create(1, 8);
  b->Create(1, 8);
  EXPECT_FALSE(a->RegisterModel(1, {1}).has_refused());
  EXPECT_TRUE(b->RegisterModel(1, {1}).has_refused());
  a.reset();
  EXPECT_TRUE(WaitMemory(8));
  // The ledger may be updated a moment before the account.
  EXPECT_TRUE(
      WaitUntil([&] { return !b->RegisterModel(1, {1}).has_refused(); }));
}

TEST_F(ModelBudgetTest, ACancelledSessionHasNone) {
  const std::unique_ptr<TestClient> client = Open();
  client->Create(1, 8);
  client->RegisterModel(1, {1});
  client->SendCancel();
  client->WaitFor(
      [](const v1::ControlResponse& r) { return r.has_cancelled(); });
  EXPECT_EQ(Use().model_count(), 0u);
}

TEST_F(ModelBudgetTest, NewLimitsHoldWithTheNextRevision) {
  const std::unique_ptr<TestClient> client = Open();
  client->Create(1, 800);
  EXPECT_FALSE(client->RegisterModel(1, {1}).has_refused());
  v1::LeaseClaims lease = Lease("s1", "t1");
  Limit(1, 100);
  *lease.mutable_tenant_limits() = limits_;
  Grant(lease);
  EXPECT_EQ(client->RegisterModel(1, {1}).refused().reason(), "MODEL_BYTES");
  EXPECT_EQ(Use().model_bytes(), 800u);
}

TEST_F(ModelBudgetTest, AnAnswerThatWasLostComesAgain) {
  const std::unique_ptr<TestClient> client = Open();
  client->KeepSilent();
  client->Create(1, 8);
  client->RegisterModel(1, {1});
  Break(client.get());
  Resume(client.get());
  EXPECT_EQ(client->RegisterModel(1, {1}).size_bytes(), 8u);
  EXPECT_EQ(client->repeated(), 1);
  EXPECT_EQ(Use().model_count(), 1u);
}

TEST_F(ModelBudgetTest, MalformedModelEndsTheSession) {
  const auto violation = [this](auto send) {
    const std::unique_ptr<TestClient> client = Open();
    client->Create(1, 8);
    send(client.get());
    const std::string what = Violation(client.get());
    EXPECT_TRUE(WaitMemory(0));
    return what;
  };
  EXPECT_EQ(violation([](TestClient* c) { c->SendModel(0, {1}); }), "model 0");
  EXPECT_EQ(violation([](TestClient* c) { c->SendModel(3, {1, 2}); }),
            "model 3 uses storage 2, which does not exist");
  EXPECT_EQ(violation([](TestClient* c) { c->SendModel(3, {1, 1}); }),
            "model 3 uses storage 1 twice");
  EXPECT_EQ(violation([](TestClient* c) {
              c->SendModel(3, {1}, std::string(257, 'x'));
            }),
            "a model's name of 257 bytes, at most 256 are allowed");
  EXPECT_EQ(violation([](TestClient* c) {
              c->Free({1});
              c->SendModel(3, {1});
            }),
            "model 3 uses storage 1, which does not exist");
}

}  // namespace
}  // namespace djinn::worker
