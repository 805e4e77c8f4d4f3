#include "scheduler/placement/placement.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/error.h"

namespace djinn::scheduler {
namespace {

std::string Bytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
  if (bytes < 1000) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes) / 1000;
  size_t unit = 0;
  for (; value >= 999.95 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string Count(uint32_t count, const char* noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

uint64_t MissingBytes(uint64_t asked_bytes, const WorkerSnapshot& worker) {
  return asked_bytes - std::min(asked_bytes, worker.held_bytes);
}

std::string Explain(uint64_t asked_bytes, size_t candidates,
                    const WorkerSnapshot& worker) {
  std::string reason;
  if (worker.held_bytes > 0) {
    reason = absl::StrCat("holds ", Bytes(worker.held_bytes), " of ",
                          Bytes(asked_bytes), " asked");
  } else {
    reason = candidates == 1 ? "the only candidate"
                             : absl::StrCat("cheapest of ", candidates);
  }
  absl::StrAppend(&reason, "; ", Count(worker.queued_runs, "queued run"), ", ",
                  Count(worker.leases, "lease"));
  if (worker.session_leases > 0) {
    absl::StrAppend(&reason, ", shared with this session's other devices");
  }
  return reason;
}

}  // namespace

absl::StatusOr<Placement> Place(uint64_t asked_bytes,
                                absl::Span<const WorkerSnapshot> workers,
                                const PlacementWeights& weights) {
  if (workers.empty()) {
    return MakeError(absl::StatusCode::kUnavailable, "NO_WORKER",
                     "no worker can be reached");
  }
  std::vector<const WorkerSnapshot*> candidates;
  uint64_t most_available = 0;
  uint64_t largest = 0;
  for (const WorkerSnapshot& worker : workers) {
    most_available = std::max(most_available, worker.available_bytes);
    largest = std::max(largest, worker.memory_bytes);
    if (MissingBytes(asked_bytes, worker) <= worker.available_bytes) {
      candidates.push_back(&worker);
    }
  }
  if (candidates.empty() && asked_bytes > largest) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, "TOO_LARGE",
        absl::StrCat("no worker is large enough: asked ", Bytes(asked_bytes),
                     ", the largest has ", Bytes(largest)),
        {{"asked", absl::StrCat(asked_bytes)},
         {"limit", absl::StrCat(largest)}});
  }
  if (candidates.empty()) {
    return MakeError(
        absl::StatusCode::kResourceExhausted, "NO_CAPACITY",
        absl::StrCat("no worker has the memory: asked ", Bytes(asked_bytes),
                     ", at most ", Bytes(most_available), " available"),
        {{"asked", absl::StrCat(asked_bytes)},
         {"limit", absl::StrCat(most_available)}});
  }
  const auto unshared = [](const WorkerSnapshot* worker) {
    return worker->session_leases == 0;
  };
  if (std::any_of(candidates.begin(), candidates.end(), unshared)) {
    candidates.erase(
        std::stable_partition(candidates.begin(), candidates.end(), unshared),
        candidates.end());
  }
  const auto rank = [&](const WorkerSnapshot* worker) {
    const double cost =
        static_cast<double>(MissingBytes(asked_bytes, *worker)) *
            weights.per_missing_byte +
        worker->queued_runs * weights.per_queued_run +
        worker->leases * weights.per_lease;
    return std::make_tuple(cost, ~worker->available_bytes,
                           std::cref(worker->worker_id));
  };
  const WorkerSnapshot& best = **std::min_element(
      candidates.begin(), candidates.end(),
      [&](const auto* a, const auto* b) { return rank(a) < rank(b); });
  return Placement{best.worker_id,
                   Explain(asked_bytes, candidates.size(), best)};
}

}  // namespace djinn::scheduler
