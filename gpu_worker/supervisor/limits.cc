// Implements the bounds on what an executor takes besides its turns: threads,
// and leases beyond their end.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/log/log.h"
#include "gpu_worker/supervisor/executor_record.h"
#include "gpu_worker/supervisor/supervisor.h"

namespace djinn::worker {
namespace {

constexpr absl::Duration kMeasureInterval = absl::Milliseconds(100);
constexpr absl::Duration kLeaseInterval = absl::Seconds(1);
// Threads of an honest executor. Each of its sessions has at most one that
// fetches a value; at most 64 serve connections over shared memory. The others
// are those of gRPC and of computing libraries, which go by the processors and
// by device.threads.
constexpr size_t kMaxThreads = 512;
constexpr size_t kMaxThreadsPerProcessor = 8;

}  // namespace

void Supervisor::Measure() {
  const absl::Duration now = clock_->Monotonic();
  if (now - last_measured_ < kMeasureInterval) return;
  last_measured_ = now;
  std::vector<std::pair<std::shared_ptr<Executor>, std::optional<uint64_t>>>
      readings;
  {
    MutexLock lock(&mu_);
    if (now >= next_lease_check_) {
      next_lease_check_ = now + kLeaseInterval;
      CheckLeases();
    }
    for (const auto& [number, executor] : executors_) {
      if (executor->pid != 0) readings.emplace_back(executor, std::nullopt);
    }
  }
  for (auto& [executor, threads] : readings) {
    threads = launcher_->ThreadsOf(executor->pid);
  }
  MutexLock lock(&mu_);
  for (const auto& [executor, threads] : readings) {
    const size_t most = kMaxThreads + options_.computing_threads +
                        kMaxThreadsPerProcessor * options_.processors +
                        executor->leases.size();
    if (threads.value_or(0) <= most || !executor->fault.ok()) continue;
    executor->fault =
        MakeError(absl::StatusCode::kResourceExhausted, "THREAD_LIMIT",
                  absl::StrCat("it has ", *threads, " threads, at most ", most,
                               " are allowed"));
  }
}

void Supervisor::NoteDrops(const v1::DesiredState& orders,
                           Executor* executor) const {
  const absl::Duration latest = executor->lived + options_.lease_grace;
  for (const std::string& id : orders.drop_lease_ids()) {
    executor->leaving.try_emplace(id, latest);
  }
  for (const std::string& session_id : orders.drop_session_ids()) {
    for (const auto& [id, lease] : executor->leases) {
      if (lease.session_id != session_id) continue;
      executor->leaving.try_emplace(id, latest);
    }
  }
}

void Supervisor::CheckLeases() {
  for (const auto& [number, executor] : executors_) {
    std::erase_if(executor->leaving, [&executor = executor](const auto& one) {
      return !executor->leases.contains(one.first);
    });
    for (const auto& [id, lease] : executor->leases) {
      // As the executor's own table of leases, which counts from the orders'
      // arrival there: all orders renew what the stream has listed.
      const absl::Duration renewed =
          lease.listed > 0 ? std::max(lease.given, executor->renewed)
                           : lease.given;
      absl::Duration latest =
          lease.valid == absl::ZeroDuration()
              ? absl::InfiniteDuration()
              : renewed + lease.valid + options_.lease_grace;
      const auto dropped = executor->leaving.find(id);
      if (dropped != executor->leaving.end()) {
        latest = std::min(latest, dropped->second);
      }
      if (executor->lived <= latest || executor->report.ended().contains(id) ||
          !executor->fault.ok()) {
        continue;
      }
      executor->kept_lease = id;
      executor->fault =
          MakeError(absl::StatusCode::kDeadlineExceeded, "LEASE_KEPT",
                    absl::StrCat("it still has lease ", log::ShortId(id),
                                 ", which it had to end"));
    }
  }
}

}  // namespace djinn::worker
