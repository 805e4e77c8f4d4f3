// A placement request: one virtual device of a session that needs a worker.
#ifndef SCHEDULER_PLACEMENT_REQUEST_H_
#define SCHEDULER_PLACEMENT_REQUEST_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "scheduler/placement/fleet.h"
#include "scheduler/placement/work.h"

namespace djinn::scheduler {

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
  // Number of leases of the session, by worker.
  absl::flat_hash_map<std::string, uint32_t> session_leases;
  // Workers that the session's client recently could not reach.
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

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_REQUEST_H_
