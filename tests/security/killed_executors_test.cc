// Tests that the death of an executor at any moment is felt by its own tenant
// alone: eight sessions of four tenants compute while executors are killed.
//
// DJINN_KILLS is the number of deaths; the seed is fixed.
#include <signal.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/security/raw_client.h"
#include "tests/security/walls.h"

namespace djinn {
namespace {

constexpr int kTenants = 4;
constexpr int kSessions = 8;
// A tenant's second death in succession costs it a second, and so on, so a
// cluster sees few of each.
constexpr int kKillsPerCluster = 6;

int Kills() {
  const char* const text = std::getenv("DJINN_KILLS");
  int kills = kKillsPerCluster;
  EXPECT_TRUE(text == nullptr || absl::SimpleAtoi(text, &kills));
  return kills;
}

class KilledExecutors {
 public:
  KilledExecutors() : walls_("{mode: process, executors: 5}", 1, kTenants) {
    for (int i = 0; i < kSessions; ++i) Open(i);
  }

  // Kills the tenant's executor while `runs` more runs of each session are
  // under way. Expects that the sessions of others have every value.
  void Kill(int tenant, int runs) {
    const pid_t pid =
        walls_.PidAt(clients_[static_cast<size_t>(tenant)]->address());
    ASSERT_GT(pid, 0);
    std::vector<std::vector<uint64_t>> storages(kSessions);
    for (int run = 0; run < runs; ++run) {
      for (size_t i = 0; i < kSessions; ++i) {
        const uint64_t storage = ++last_id_;
        clients_[i]->Send(RunOf(1, 1, 1, storage));
        storages[i].push_back(storage);
      }
    }
    ASSERT_EQ(kill(pid, SIGKILL), 0);
    for (size_t i = 0; i < kSessions; ++i) {
      if (TenantOf(static_cast<int>(i)) == tenant) continue;
      for (const uint64_t storage : storages[i]) {
        EXPECT_EQ(clients_[i]->ValueOf(storage, 1), FloatBytes({2, 4, 6, 8}))
            << "session " << i;
        clients_[i]->Send(Free({storage}));
      }
      EXPECT_TRUE(clients_[i]->Works()) << "session " << i;
      EXPECT_FALSE(clients_[i]->control().ended()) << "session " << i;
    }
    for (int i = 0; i < kSessions; ++i) {
      if (TenantOf(i) != tenant) continue;
      RawClient& client = *clients_[static_cast<size_t>(i)];
      EXPECT_FALSE(client.control().WaitEnd().ok());
      EXPECT_EQ(client.session().WaitLeaseEnd(), "EXECUTOR_LOST");
      clients_[static_cast<size_t>(i)].reset();
      Open(i);
    }
    EXPECT_TRUE(walls_.worker().Running());
  }

 private:
  static int TenantOf(int session) { return session % kTenants; }
  void Open(int session) {
    clients_.resize(kSessions);
    clients_[static_cast<size_t>(session)] = std::make_unique<RawClient>(
        walls_, absl::StrCat("attacker", TenantOf(session)));
  }

  Walls walls_;
  std::vector<std::unique_ptr<RawClient>> clients_;
  uint64_t last_id_ = 1'000'000;
};

TEST(KilledExecutorsTest, SessionsOfOtherTenantsHaveEveryValue) {
  std::mt19937 random(36);  // NOLINT: the same moments each time.
  int left = Kills();
  while (left > 0) {
    KilledExecutors cluster;
    for (int i = 0; i < kKillsPerCluster && left > 0; ++i, --left) {
      cluster.Kill(i % kTenants, static_cast<int>(random() % 24));
      if (testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace djinn
