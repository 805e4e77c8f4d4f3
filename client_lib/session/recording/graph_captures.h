// Holds the graphs that a virtual device is capturing, at most one per lane. A
// lane's graph stays here whichever worker takes the lane's calls.
//
// Thread-safe. Only the `is_born` callback of Add() runs under its lock.
#ifndef CLIENT_LIB_SESSION_RECORDING_GRAPH_CAPTURES_H_
#define CLIENT_LIB_SESSION_RECORDING_GRAPH_CAPTURES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/base/optimization.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client_lib/session/recording/recording.h"
#include "common/base/mutex.h"

namespace djinn {

// Error reason: only a device with a single worker supports the operation.
inline constexpr char kSpansWorkers[] = "SPANS_WORKERS";

class GraphCaptures {
 public:
  // Starts to capture the lane's calls. Returns FailedPrecondition
  // (ALREADY_RECORDING) if that is under way.
  absl::Status Start(uint32_t lane);
  // Ends the lane's capture. Returns null if there is none.
  std::unique_ptr<Recorder> Take(uint32_t lane);

  // Returns whether any lane is being captured. It is a hint that costs a call
  // one load.
  bool any() const { return count_.load(std::memory_order_relaxed) > 0; }

  // Adds a call that a worker is about to take. `is_born` is as for
  // Recorder::Add().
  void Add(uint32_t lane, const Call& call,
           absl::FunctionRef<bool(RemoteStorage*)> is_born);
  // Removes the last call, because no worker took it.
  void Retract(uint32_t lane);

  // Refuses the lane's capture, because the lane did something that cannot be
  // executed again. The first refusal counts.
  void Refuse(uint32_t lane, absl::string_view reason, absl::string_view what) {
    if (ABSL_PREDICT_FALSE(any())) RefuseOne(lane, reason, what);
  }
  void RefuseAll(absl::string_view reason, absl::string_view what);
  // Returns the refusal, or OK if the lane is not captured.
  absl::Status Refusal(uint32_t lane) const;

 private:
  void RefuseOne(uint32_t lane, absl::string_view reason,
                 absl::string_view what);

  std::atomic<size_t> count_{0};
  mutable Mutex mu_;
  absl::flat_hash_map<uint32_t, std::unique_ptr<Recorder>> by_lane_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_RECORDING_GRAPH_CAPTURES_H_
