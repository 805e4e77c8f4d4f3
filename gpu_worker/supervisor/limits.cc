// Implements the bounds on what an executor takes besides its turns: threads,
// processors, and leases beyond their end.
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
// are those of gRPC and of computing libraries, which go by the processors.
constexpr size_t kMaxThreads = 512;
constexpr size_t kMaxThreadsPerProcessor = 8;
constexpr absl::Duration kPauseLogInterval = absl::Minutes(1);

}  // namespace

void Supervisor::Measure() {
  const absl::Duration now = clock_->Monotonic();
  const absl::Duration passed = now - last_measured_;
  if (passed < kMeasureInterval) return;
  last_measured_ = now;
  struct Reading {
    std::shared_ptr<Executor> executor;
    std::optional<ProcessUse> use;
    Arbiter::Turns turns;
  };
  std::vector<Reading> readings;
  ProcessorShare::Round round{
      .passed = passed,
      .processors = static_cast<double>(options_.processors),
      .sharers = 0};
  {
    MutexLock lock(&mu_);
    if (now >= next_lease_check_) {
      next_lease_check_ = now + kLeaseInterval;
      CheckLeases();
    }
    for (const auto& [number, executor] : executors_) {
      if (executor->pid == 0) continue;
      readings.push_back({executor, std::nullopt, {}});
      if (!executor->tenant.empty()) ++round.sharers;
    }
  }
  for (Reading& reading : readings) {
    reading.use = launcher_->UseOf(reading.executor->pid);
    reading.turns = arbiter_->TurnsOf(reading.executor->number);
  }
  std::vector<std::pair<pid_t, bool>> changes;
  {
    MutexLock lock(&mu_);
    for (const Reading& reading : readings) {
      if (!reading.use.has_value()) continue;
      Executor& executor = *reading.executor;
      const size_t most = kMaxThreads +
                          kMaxThreadsPerProcessor * options_.processors +
                          executor.leases.size();
      if (reading.use->threads > most && executor.fault.ok()) {
        executor.fault =
            MakeError(absl::StatusCode::kResourceExhausted, "THREAD_LIMIT",
                      absl::StrCat("it has ", reading.use->threads,
                                   " threads, at most ", most, " are allowed"));
      }
      const auto before = std::exchange(executor.use, reading.use);
      round.held =
          reading.turns.held - std::exchange(executor.held, reading.turns.held);
      round.cpu = before.has_value() ? reading.use->cpu - before->cpu
                                     : absl::ZeroDuration();
      round.others_compute = reading.turns.others_compute;
      // The spare one runs no code of a tenant.
      const bool paused =
          !executor.tenant.empty() && executor.share.Note(round);
      if (std::exchange(executor.paused, paused) == paused) continue;
      changes.emplace_back(executor.pid, paused);
      if (!paused) continue;
      ++tenants_[executor.tenant].pauses;
      if (now < executor.next_pause_log) continue;
      executor.next_pause_log = now + kPauseLogInterval;
      log::Warning(
          "executor is paused now and then: outside of its turns, it uses more "
          "than its part of the processors while others compute",
          {{"tenant", executor.tenant}, {"number", executor.number}});
    }
  }
  for (const auto& [pid, paused] : changes) launcher_->SetPaused(pid, paused);
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
      if (lease.valid == absl::ZeroDuration()) continue;
      // As the executor's own table of leases, which counts from the orders'
      // arrival there: all orders renew what the stream has listed.
      const absl::Duration renewed =
          lease.listed > 0 ? std::max(lease.given, executor->renewed)
                           : lease.given;
      if (executor->lived <= renewed + lease.valid) continue;
      executor->leaving.try_emplace(id, executor->lived + options_.lease_grace);
    }
    for (const auto& [id, latest] : executor->leaving) {
      if (executor->lived <= latest || executor->report.ended().contains(id) ||
          !executor->fault.ok()) {
        continue;
      }
      executor->fault =
          MakeError(absl::StatusCode::kDeadlineExceeded, "LEASE_KEPT",
                    absl::StrCat("it still has lease ", log::ShortId(id),
                                 ", which it had to end"));
    }
  }
}

}  // namespace djinn::worker
