// Opens 10,000 idle sessions over 8 workers. Prints, for each thousand, the
// time that they took and the memory that a session keeps. The workers are
// simulated in this process, without gRPC.
//
// usage: open_sessions_benchmark [SESSIONS]
#include <malloc.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/lease/lease_verifier.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/requests.h"
#include "coordinator/cluster/sessions.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/waker.h"
#include "coordinator/testing/testing.h"

namespace djinn::coordinator {
namespace {

constexpr int kWorkers = 8;
// Sessions opened per second of the cluster's time.
constexpr int kOpensPerSecond = 1000;

class NoWaker : public Waker {
 public:
  void Wake() override {}
};

// A worker that applies its desired state, acknowledges it at once, and reports
// the leases that have changed when Report() is called.
class PlayedWorker {
 public:
  PlayedWorker(ClusterState* cluster, int index)
      : cluster_(*cluster), report_(TestWorker(absl::StrCat("w", index))) {
    report_.set_memory_bytes(uint64_t{1} << 40);
    report_.set_free_bytes(uint64_t{1} << 40);
    id_ = *workers::Join(cluster_, report_, std::make_shared<NoWaker>());
    report_.set_complete(false);
    acknowledgement_.set_worker_id(report_.worker_id());
    acknowledgement_.set_incarnation(report_.incarnation());
    acknowledgement_.set_acknowledgement(true);
  }

  void Apply() {
    while (true) {
      const auto desired = workers::NextDesiredState(cluster_, id_);
      if (!desired.ok() || !desired->has_value()) return;
      ++messages_;
      leases_ += (*desired)->leases_size();
      for (const v1::SignedLease& lease : (*desired)->leases()) {
        *report_.add_sessions()->mutable_lease() = lease;
      }
      acknowledgement_.set_applied_revision((*desired)->revision());
      (void)workers::Report(cluster_, id_, acknowledgement_);
    }
  }
  void Report() {
    report_.set_applied_revision(acknowledgement_.applied_revision());
    (void)workers::Report(cluster_, id_, report_);
    report_.clear_sessions();
  }

  size_t messages() const { return messages_; }
  size_t leases() const { return leases_; }

 private:
  ClusterState& cluster_;
  v1::WorkerState report_;
  v1::WorkerState acknowledgement_;
  StreamId id_;
  size_t messages_ = 0;
  size_t leases_ = 0;
};

size_t AllocatedBytes() { return mallinfo2().uordblks; }

void Run(int count) {
  Config config = TestConfig();
  config.tenants[0].max_sessions = count;
  Tenants tenants(config.tenants);
  FakeClock clock;
  const std::unique_ptr<ClusterState> cluster =
      MakeCluster(&config, &tenants, &clock, RandomSource::Real());
  const auto tenant = tenants.Find("red");
  std::vector<std::unique_ptr<PlayedWorker>> workers;
  for (int i = 0; i < kWorkers; ++i) {
    workers.push_back(std::make_unique<PlayedWorker>(cluster.get(), i));
  }
  std::printf("%9s %12s %14s %10s %10s %14s\n", "sessions", "seconds",
              "us/session", "messages", "leases", "bytes/session");
  const size_t before = AllocatedBytes();
  absl::Time start = absl::Now();
  int granted = 0;
  for (int i = 1; i <= count; ++i) {
    const StreamId session = *sessions::Attach(*cluster, *tenant, TestOpen(),
                                               std::make_shared<NoWaker>());
    (void)requests::Request(*cluster, session, TestLeaseRequest(0));
    for (const auto& worker : workers) worker->Apply();
    while (true) {
      const auto response = sessions::NextResponse(*cluster, session);
      if (!response.ok() || !response->has_value()) break;
      granted += (*response)->has_granted();
    }
    clock.Advance(absl::Seconds(1) / kOpensPerSecond);
    // The intervals at which workers report changes, and the coordinator ticks.
    if (i % 20 == 0) {
      for (const auto& worker : workers) worker->Report();
    }
    if (i % 200 == 0) Tick(*cluster);
    if (i % 1000 == 0 || i == count) {
      const absl::Duration took = absl::Now() - start;
      size_t messages = 0, leases = 0;
      for (const auto& worker : workers) {
        messages += worker->messages();
        leases += worker->leases();
      }
      std::printf("%9d %12.3f %14.1f %10zu %10zu %14zu\n", i,
                  absl::ToDoubleSeconds(took),
                  absl::ToDoubleMicroseconds(took) / 1000, messages, leases,
                  (AllocatedBytes() - before) / i);
      start = absl::Now();
    }
  }
  std::printf("granted: %d\n", granted);
}

}  // namespace
}  // namespace djinn::coordinator

int main(int argc, char** argv) {
  int count = 10'000;
  if (argc > 1 && !absl::SimpleAtoi(argv[1], &count)) return 2;
  djinn::coordinator::Run(count);
  return 0;
}
