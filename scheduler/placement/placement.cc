#include "scheduler/placement/placement.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/error.h"
#include "scheduler/placement/filters.h"

namespace djinn::scheduler {
namespace {

std::string Count(uint64_t count, const char* noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

Considered Consider(const Request& request,
                    const CandidateWalk::Candidate& candidate,
                    const Policy& policy,
                    const semantics::CostFactors& factors) {
  const WorkerFacts& facts = candidate.member->facts;
  Considered out;
  out.worker_id = facts.id;
  out.available_bytes = facts.available_bytes;
  if (!candidate.member->held.empty()) {
    for (const Request::State& piece : request.state) {
      if (candidate.member->held.contains(piece.key)) {
        out.held_bytes += piece.bytes;
      }
    }
  }
  out.holder = out.held_bytes > 0;
  // The request may ask for less than the pieces together, when it may not hold
  // them all.
  out.held_bytes = std::min(out.held_bytes, request.asked_bytes);
  out.terms = ComputeTerms(request, facts, out.held_bytes, factors);
  out.score = policy.Score(out.terms);
  if (std::optional<Drop> drop = Filter(request, facts, out.terms)) {
    out.dropped_by = drop->filter;
    out.drop_reason = std::move(drop->reason);
  }
  return out;
}

// Drops the workers that are in `which`, as long as others are left.
template <typename Workers>
void Avoid(const Workers& which, absl::string_view filter,
           absl::string_view reason, std::vector<Considered>* considered) {
  if (which.empty()) return;
  if (std::none_of(considered->begin(), considered->end(),
                   [&](const Considered& worker) {
                     return worker.dropped_by.empty() &&
                            !which.contains(worker.worker_id);
                   })) {
    return;
  }
  for (Considered& worker : *considered) {
    if (!worker.dropped_by.empty() || !which.contains(worker.worker_id)) {
      continue;
    }
    worker.dropped_by = filter;
    worker.drop_reason = std::string(reason);
  }
}

// Returns the workers whose bits differ from those of the session's values.
absl::flat_hash_set<std::string> OfOtherNumerics(
    const Request& request, const Fleet& fleet,
    const std::vector<Considered>& considered) {
  absl::flat_hash_set<std::string> others;
  if (request.numerics.empty()) return others;
  for (const Considered& worker : considered) {
    const std::string& numerics = fleet.Find(worker.worker_id)->facts.numerics;
    if (!numerics.empty() && numerics != request.numerics) {
      others.insert(worker.worker_id);
    }
  }
  return others;
}

bool Better(const Considered& a, const Considered& b) {
  const auto rank = [](const Considered& worker) {
    return std::make_tuple(
        !worker.dropped_by.empty(), worker.score, worker.terms.finish_seconds(),
        ~worker.available_bytes, std::cref(worker.worker_id));
  };
  return rank(a) < rank(b);
}

std::string Explain(const Request& request, const Considered& best,
                    const WorkerFacts& facts, size_t candidates,
                    absl::string_view policy) {
  std::string reason;
  if (best.held_bytes > 0) {
    reason = absl::StrCat("holds ", DescribeBytes(best.held_bytes), " of ",
                          DescribeBytes(request.asked_bytes), " asked");
  } else if (candidates == 1) {
    reason = "the only candidate";
  } else {
    reason = absl::StrCat("best of ", candidates, " by ", policy);
  }
  absl::StrAppend(&reason, "; ", Count(facts.queued_runs, "queued run"), ", ",
                  Count(facts.leases, "lease"));
  if (request.session_leases.contains(best.worker_id)) {
    absl::StrAppend(&reason, ", shared with this session's other devices");
  }
  return reason;
}

void ExplainKept(Decision* decision) {
  const auto kept = std::find_if(
      decision->considered.begin(), decision->considered.end(),
      [](const Considered& worker) { return worker.dropped_by == "kept"; });
  decision->obstacle =
      MakeError(absl::StatusCode::kUnavailable, "WAITS_IN_LINE",
                absl::StrCat("worker ", kept->worker_id,
                             ", which has the memory, ", kept->drop_reason),
                {{"worker", kept->worker_id}});
  decision->unblocked_by =
      "the end of the reservation, or memory on another worker";
}

void ExplainLackOfMemory(const Request& request, const Fleet& fleet,
                         Decision* decision) {
  const Considered* nearest = nullptr;
  const Considered* kept = nullptr;
  uint64_t shortage = std::numeric_limits<uint64_t>::max();
  for (const Considered& worker : decision->considered) {
    if (worker.dropped_by != "memory") continue;
    const uint64_t lacks = worker.terms.missing_bytes - worker.available_bytes;
    if (worker.worker_id == request.kept_for_this) {
      kept = &worker;
    }
    if (lacks < shortage) {
      shortage = lacks;
      nearest = &worker;
    }
  }
  if (request.asked_bytes > fleet.largest_memory()) {
    decision->obstacle = MakeError(
        absl::StatusCode::kFailedPrecondition, "TOO_LARGE",
        absl::StrCat("no worker is large enough: asked ",
                     DescribeBytes(request.asked_bytes), ", the largest has ",
                     DescribeBytes(fleet.largest_memory())),
        {{"asked", absl::StrCat(request.asked_bytes)},
         {"limit", absl::StrCat(fleet.largest_memory())}});
    decision->unblocked_by =
        "a worker with more memory, or asking for less at a time";
    return;
  }
  // Clients see this error, and may not learn how much memory others use.
  // Operators see `unblocked_by`.
  decision->obstacle =
      MakeError(absl::StatusCode::kResourceExhausted, "NO_CAPACITY",
                absl::StrCat("no worker has the memory: asked ",
                             DescribeBytes(request.asked_bytes)),
                {{"asked", absl::StrCat(request.asked_bytes)}});
  if (kept != nullptr) nearest = kept;
  decision->unblocked_by = absl::StrCat(
      DescribeBytes(nearest->terms.missing_bytes - nearest->available_bytes),
      " more on ", nearest->worker_id,
      kept == nullptr
          ? ""
          : absl::StrCat(", which is kept for it ", request.kept_because));
}

void ExplainFailure(const Request& request, const Fleet& fleet,
                    Decision* decision) {
  if (decision->considered.empty()) {
    decision->obstacle = MakeError(absl::StatusCode::kUnavailable, "NO_WORKER",
                                   "no worker can be reached");
    decision->unblocked_by = "a worker that joins";
    return;
  }
  std::map<absl::string_view, size_t> drops;
  std::map<std::string, size_t> reasons;
  for (const Considered& worker : decision->considered) {
    ++drops[worker.dropped_by];
    ++reasons[worker.drop_reason];
  }
  if (drops.contains("kept")) return ExplainKept(decision);
  if (drops.contains("memory")) {
    ExplainLackOfMemory(request, fleet, decision);
    return;
  }
  std::vector<std::string> parts;
  for (const auto& [reason, count] : reasons) {
    parts.push_back(absl::StrCat(count, " ", reason));
  }
  decision->obstacle = MakeError(
      absl::StatusCode::kUnavailable, "NO_SUITABLE_WORKER",
      absl::StrCat("none of ", Count(decision->considered.size(), "worker"),
                   " is fit: ", absl::StrJoin(parts, ", ")));
  std::vector<absl::string_view> cures;
  if (drops.contains("session")) cures.push_back("a report of these workers");
  if (drops.contains("cordon")) cures.push_back("uncordoning a worker");
  if (drops.contains("failure")) {
    cures.push_back("repairing or resetting a failing device");
  }
  if (drops.contains("capability")) {
    cures.push_back("a worker with the capabilities");
  }
  if (drops.contains("phase")) cures.push_back("a worker for the phase");
  decision->unblocked_by = absl::StrJoin(cures, ", or ");
}

}  // namespace

Decision Place(const Request& request, const Fleet& fleet, const Policy& policy,
               const semantics::CostFactors& factors, Randomness* random,
               const PlacementOptions& options) {
  Decision decision;
  decision.policy = policy.name();
  decision.asked_bytes = request.asked_bytes;
  decision.phase = request.phase;
  decision.worker_count = fleet.size();
  CandidateWalk walk(&fleet, request, random);
  const size_t worth_looking = walk.WorthLooking(options.draws);
  size_t passed = 0;
  while (decision.considered.size() < worth_looking ||
         (passed == 0 && decision.considered.size() < kMaxLookedAt)) {
    const CandidateWalk::Candidate candidate = walk.Next();
    if (candidate.member == nullptr) break;
    decision.considered.push_back(
        Consider(request, candidate, policy, factors));
    passed += decision.considered.back().dropped_by.empty();
  }
  decision.looked_at = decision.considered.size();
  Avoid(OfOtherNumerics(request, fleet, decision.considered), "numerics",
        "computes other bits than the worker that the session lost",
        &decision.considered);
  Avoid(request.unreached, "reach", "was lately not reached by clients",
        &decision.considered);
  // Two virtual devices of a session get different workers when there are two.
  Avoid(request.session_leases, "spread", "has another device of this session",
        &decision.considered);
  std::sort(decision.considered.begin(), decision.considered.end(), Better);
  if (passed == 0) {
    ExplainFailure(request, fleet, &decision);
    return decision;
  }
  const Considered& best = decision.considered.front();
  decision.worker_id = best.worker_id;
  const size_t candidates = std::count_if(
      decision.considered.begin(), decision.considered.end(),
      [](const Considered& worker) { return worker.dropped_by.empty(); });
  decision.reason = Explain(request, best, fleet.Find(best.worker_id)->facts,
                            candidates, policy.name());
  return decision;
}

}  // namespace djinn::scheduler
