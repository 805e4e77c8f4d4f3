// What is to be placed: one virtual device of a session.
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
  // What the session is about to upload.
  uint64_t asked_bytes = 0;
  // Of that, what may be somewhere already.
  struct State {
    StateKey key = 0;
    uint64_t bytes = 0;
  };
  std::vector<State> state;
  // What the session does; null when nothing is known. Outlives the decision.
  const Work* work = nullptr;
  // Of most of it.
  semantics::Phase phase = semantics::Phase::kUnspecified;
  // What a worker must have: its device's kind, or a capability.
  std::vector<std::string> required;
  // Leases that the session has, by worker.
  absl::flat_hash_map<std::string, uint32_t> session_leases;
  // Workers that the session's client could not reach lately.
  absl::flat_hash_set<std::string> unreached;
  // Why a worker cannot take this session now, whatever it has: "has to forget
  // the session first"; empty when it can. May be unset.
  std::function<std::string(const std::string& worker_id)> barred;
  // Workers that are kept for others in line, and why, for people: "is kept for
  // the first in line". This request does not get them.
  absl::flat_hash_map<std::string, absl::string_view> kept_for_others;
  // The worker that is kept for this one, which is looked at, and why: "as the
  // first in line". Empty: none.
  std::string kept_for_this;
  absl::string_view kept_because;
  // Bytes per second that the worker saw of what came to it from where the
  // state is now; 0 when nothing did. Unset when the state comes from a client:
  // then what clients' uploads moved counts.
  std::function<double(const std::string& worker_id)> measured_link;
};

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_REQUEST_H_
