// Tests granted windows, one session's and the tenant's share.
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gpu_worker/session/state/tenant_account.h"
#include "gpu_worker/testing/core_fixture.h"

namespace djinn::worker {
namespace {

TEST_F(WorkerCoreTest, AWindowThatIsExceededEndsTheStream) {
  std::unique_ptr<TestClient> client = Open();
  // The session is parked on a transfer that never arrives, so that nothing
  // completes.
  client->InstallTransfer(1, 1, std::string(2000, 'x'));
  for (int i = 0; i < 64; ++i) client->Create(10 + i, 8);
  EXPECT_EQ(ErrorReason(client->WaitClosed()), "WINDOW_EXCEEDED");
}

TEST_F(WorkerCoreTest, FreesThatSayMoreThanWhatTheyFreeEndTheStream) {
  std::unique_ptr<TestClient> client = Open();
  EXPECT_TRUE(client->WaitCompleted(client->Create(1, 8)));
  v1::Ordered message;
  message.mutable_free()->add_storages(1);
  message.GetReflection()->MutableUnknownFields(&message)->AddLengthDelimited(
      1000, std::string(100, 'x'));
  client->Send(std::move(message));
  EXPECT_EQ(ErrorReason(client->WaitClosed()), "WINDOW_EXCEEDED");
}

TEST_F(WorkerCoreTest, ARunOfARefusedGraphHasNoMoreBindingsThanAnyOther) {
  std::unique_ptr<TestClient> client = Open();
  srg::Graph refused = AddTo();
  refused.nodes[0].arguments.clear();
  client->Define(1, refused);
  v1::Ordered message;
  message.mutable_run()->set_graph_id(1);
  for (uint64_t id = 1; id <= 131073; ++id) {
    v1::Binding* const binding = message.mutable_run()->add_bindings();
    binding->set_storage(id);
    binding->set_writes(1);
  }
  client->Send(std::move(message));
  const absl::Status status = client->WaitClosed();
  EXPECT_EQ(ErrorReason(status), "PROTOCOL_VIOLATION");
  EXPECT_NE(status.message().find("131073 bindings"), std::string::npos)
      << status;
}

TEST_F(WorkerCoreTest, StoragesOfNoBytesAreCountedToo) {
  std::unique_ptr<TestClient> client = Open();
  srg::Graph refused = AddTo();
  refused.nodes[0].arguments.clear();
  client->Define(1, refused);
  constexpr uint64_t kEach = 65536;
  uint64_t created = 0;
  for (; created <= TenantAccount::kMaxStorages; created += kEach) {
    v1::Ordered message;
    message.mutable_run()->set_graph_id(1);
    for (uint64_t id = created + 1; id <= created + kEach; ++id) {
      v1::Binding* const binding = message.mutable_run()->add_bindings();
      binding->set_storage(id);
      binding->set_writes(1);
    }
    const uint64_t sequence = client->Send(std::move(message));
    if (created + kEach <= TenantAccount::kMaxStorages) {
      ASSERT_TRUE(client->WaitCompleted(sequence));
    }
  }
  EXPECT_EQ(ErrorReason(client->WaitClosed()), "TOO_MANY_STORAGES");
  // All of the session's storages are freed, so another session has the whole
  // limit.
  std::unique_ptr<TestClient> other = Open("s2");
  EXPECT_TRUE(other->WaitCompleted(other->Create(1, 8)));
}

TEST_F(WorkerCoreTest, TheWindowGrowsWithWhatIsCompleted) {
  std::unique_ptr<TestClient> client = Open();
  EXPECT_EQ(client->window().messages(), 64u);
  EXPECT_EQ(client->window().bytes(), uint64_t{1} << 20);
  EXPECT_TRUE(client->WaitCompleted(client->Create(1, 8)));
  EXPECT_EQ(client->window().messages(), 65u);
  // Free is exempt from the window.
  EXPECT_TRUE(client->WaitCompleted(client->Free({1})));
  EXPECT_EQ(client->window().messages(), 65u);
}

TEST_F(WorkerCoreTest, AttachedSessionsShareTheTenantsWindow) {
  v1::LeaseClaims lease = Lease("s1", "t1");
  lease.mutable_tenant_limits()->set_memory_bytes(6 << 20);
  lease.mutable_tenant_limits()->set_max_outstanding(10);
  lease.mutable_tenant_limits()->set_max_outstanding_bytes(1 << 20);
  Grant(lease);
  std::unique_ptr<TestClient> a = Connect(HelloFor("s1"));
  EXPECT_TRUE(WaitUntil([&] { return a->window().messages() == 10; }));
  lease.set_lease_id("lease-s2");
  lease.set_session_id("s2");
  Grant(lease);
  std::unique_ptr<TestClient> b = Connect(HelloFor("s2"));
  EXPECT_TRUE(WaitUntil([&] { return b->window().messages() == 5; }));
  // The first session's window never shrinks, and grows again when it is due.
  for (uint64_t i = 1; i <= 6; ++i) {
    EXPECT_TRUE(a->WaitCompleted(a->Create(i, 8)));
  }
  EXPECT_TRUE(WaitUntil([&] { return a->window().messages() == 11; }));
  // The tenant's sessions share its memory as well.
  EXPECT_TRUE(a->WaitCompleted(a->Create(10, 4 << 20)));
  b->Create(1, 4 << 20);
  const v1::ErrorDetail error = b->ReadError(1);
  EXPECT_EQ(error.reason(), "TENANT_MEMORY");
  EXPECT_NE(error.message().find("limit 6291456"), std::string::npos);
  a->Free({10});
  EXPECT_TRUE(a->WaitCompleted(8));
  EXPECT_TRUE(b->WaitCompleted(b->Create(2, 4 << 20)));
}

}  // namespace
}  // namespace djinn::worker
