// The terms that a policy weighs for one worker, as PlacementTerms in
// placement.proto.
#ifndef SCHEDULER_PLACEMENT_TERMS_H_
#define SCHEDULER_PLACEMENT_TERMS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "scheduler/placement/fleet.h"
#include "scheduler/placement/work.h"
#include "scheduler/semantics/cost/roofline.h"

namespace djinn::scheduler {

// A placement request: one virtual device of a session that needs a worker.
struct Request {
  // Bytes that the session is about to upload.
  uint64_t asked_bytes = 0;
  // The part of these bytes that workers may already hold.
  struct State {
    StateKey key = 0;
    uint64_t bytes = 0;
  };
  std::vector<State> state;
  // The session's work; null when unknown. Must outlive the decision.
  const Work* work = nullptr;
  // The phase of most of the work.
  semantics::Phase phase = semantics::Phase::kUnspecified;
  // Requirements: each is a kind of device or a capability.
  std::vector<std::string> required;
  // The bits that the session's values have; empty when any worker will do.
  std::string numerics;
  // Number of leases of the session, by worker.
  absl::flat_hash_map<std::string, uint32_t> session_leases;
  // Workers that the session's client, or those of others, lately could not
  // reach.
  absl::flat_hash_set<std::string> unreached;
  // Returns why a worker cannot take this session now regardless of its room,
  // such as "has to forget the session first"; empty when it can. May be unset.
  std::function<std::string(const std::string& worker_id)> barred;
  // Workers that are reserved for other requests, with a human-readable reason.
  // This request does not get them.
  absl::flat_hash_map<std::string, absl::string_view> kept_for_others;
  // The worker that is reserved for this request, and a human-readable reason.
  // Empty when there is none.
  std::string kept_for_this;
  absl::string_view kept_because;
  // Returns the measured bytes per second from the present holder of the state
  // to the worker; 0 when unmeasured. Unset when the state comes from a client;
  // then the speed of client uploads counts.
  std::function<double(const std::string& worker_id)> measured_link;
};

struct Terms {
  double queue_seconds = 0;
  uint64_t missing_bytes = 0;
  double transfer_seconds = 0;
  // Speed of the link behind transfer_seconds: measured or configured. 0 when
  // neither is known and a typical link is assumed.
  double link_bytes_per_second = 0;
  bool link_measured = false;
  double compute_seconds = 0;
  double compute_factor = 1;
  double cost = 0;
  double load = 0;

  // Returns how long the request occupies the worker.
  double occupied_seconds() const { return transfer_seconds + compute_seconds; }
  // Returns the time until the request is finished.
  double finish_seconds() const { return queue_seconds + occupied_seconds(); }
};

// Computes the terms of a worker that holds `held_bytes` of the asked bytes.
Terms ComputeTerms(const Request& request, const WorkerFacts& worker,
                   uint64_t held_bytes, const semantics::CostFactors& factors);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_TERMS_H_
