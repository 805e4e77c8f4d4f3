#include "gpu_worker/supervisor/limits.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/log/log.h"

namespace djinn::worker {
namespace {

// Orders that wait for an executor that does not read. An honest one reads
// within milliseconds.
constexpr size_t kMaxUnsentBytes = 2 * kMaxFrameBytes;
// Most messages of one executor in a burst, and how many it may send per
// second for ever. An honest one acknowledges each order, and sends some three
// more per second.
constexpr double kMaxMessages = 20'000;
constexpr double kMessagesPerSecond = 2'000;
// Bytes of one executor in a burst and per second, and what each lease adds to
// both. More wait in the socket. An honest one with full lists of contents and
// graphs has less in each heartbeat.
constexpr double kMaxBytes = 32 << 20;
constexpr double kBytesPerSecond = 4 << 20;
constexpr double kBytesPerLease = 1 << 10;
// Spans of one executor in a burst and per second: an honest one sends no more.
constexpr double kSpansPerSecond = 1'024;
// An executor is ended when it says nothing for longer.
constexpr absl::Duration kSilenceLimit = absl::Seconds(30);
// An executor is ended when it still has a lease so long after the supervisor
// told it to drop the lease, or after the lease's end.
constexpr absl::Duration kLeaseGrace = absl::Seconds(10);
// Threads of an honest executor. Each of its sessions has at most one that
// fetches a value; at most 64 serve connections over shared memory. The others
// are those of gRPC and of computing libraries, which go by the processors and
// by device.threads.
constexpr size_t kMaxThreads = 512;
constexpr size_t kMaxThreadsPerProcessor = 8;

// Returns what the executor's leases add to the bytes that it may send.
double BytesOf(const ExecutorRecord& executor) {
  return kBytesPerLease * static_cast<double>(executor.leases.size());
}

}  // namespace

void Age(absl::Duration passed, ExecutorRecord* executor) {
  executor->same_mark += passed;
  executor->silent += passed;
  if (executor->ready) executor->lived += passed;
  const double seconds = absl::ToDoubleSeconds(passed);
  executor->messages =
      std::max(0.0, executor->messages - kMessagesPerSecond * seconds);
  executor->bytes = std::max(
      0.0, executor->bytes - (kBytesPerSecond + BytesOf(*executor)) * seconds);
  executor->spans = std::max(0.0, executor->spans - kSpansPerSecond * seconds);
  executor->log.Age(passed);
}

absl::Status CountMessage(ExecutorRecord* executor) {
  if (++executor->messages > kMaxMessages) {
    return absl::ResourceExhaustedError("it sends too many messages");
  }
  return absl::OkStatus();
}

bool MayRead(const ExecutorRecord& executor) {
  return executor.bytes < kMaxBytes + BytesOf(executor);
}

bool TakeSpan(ExecutorRecord* executor) {
  if (executor->spans + 1 > kSpansPerSecond) return false;
  ++executor->spans;
  return true;
}

absl::Status CheckThreads(const ExecutorRecord& executor,
                          const SupervisorOptions& options, uint64_t threads) {
  const size_t most = kMaxThreads + options.computing_threads +
                      kMaxThreadsPerProcessor * options.processors +
                      executor.leases.size();
  if (threads <= most) return absl::OkStatus();
  return MakeError(absl::StatusCode::kResourceExhausted, "THREAD_LIMIT",
                   absl::StrCat("it has ", threads, " threads, at most ", most,
                                " are allowed"));
}

void NoteDrops(const v1::DesiredState& orders, ExecutorRecord* executor) {
  const absl::Duration latest = executor->lived + kLeaseGrace;
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

void CheckLeases(ExecutorRecord* executor) {
  std::erase_if(executor->leaving, [&](const auto& one) {
    return !executor->leases.contains(one.first);
  });
  for (const auto& [id, lease] : executor->leases) {
    // As the executor's own table of leases, which counts from the orders'
    // arrival there: all orders renew what the stream has listed.
    const absl::Duration renewed =
        lease.listed > 0 ? std::max(lease.given, executor->renewed)
                         : lease.given;
    absl::Duration latest = lease.valid == absl::ZeroDuration()
                                ? absl::InfiniteDuration()
                                : renewed + lease.valid + kLeaseGrace;
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

absl::Status Overdue(const ExecutorRecord& executor,
                     const SupervisorOptions& options, absl::Duration now) {
  if (executor.ending) return absl::CancelledError("no longer needed");
  if (executor.pid == 0) return absl::OkStatus();
  if (!executor.fault.ok()) return executor.fault;
  if (executor.unsent.size() > kMaxUnsentBytes) {
    return absl::ResourceExhaustedError("it does not read its orders");
  }
  const absl::Duration node_limit =
      std::min(options.node_limit, executor.node_limit);
  if (executor.mark != 0 && executor.same_mark > node_limit) {
    return MakeError(absl::StatusCode::kDeadlineExceeded, "NODE_LIMIT",
                     absl::StrCat("a node took longer than ",
                                  absl::FormatDuration(node_limit)));
  }
  if (executor.ready && executor.silent > kSilenceLimit) {
    return absl::DeadlineExceededError(absl::StrCat(
        "it has said nothing for ", absl::FormatDuration(kSilenceLimit)));
  }
  if (!executor.ready && now - executor.start > options.start_timeout) {
    return absl::DeadlineExceededError(
        absl::StrCat("it was not ready after ",
                     absl::FormatDuration(options.start_timeout)));
  }
  return absl::OkStatus();
}

}  // namespace djinn::worker
