// The graphs that a virtual device is capturing, one for each lane that asked
// for it. Whichever worker takes a lane's calls, its graph is here.
//
// Thread-safe. Calls nothing with its lock held but the `is_born` of Add().
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

// Why a device does not do what one with a single worker would.
inline constexpr char kSpansWorkers[] = "SPANS_WORKERS";

class GraphCaptures {
 public:
  // FailedPrecondition (ALREADY_RECORDING) if the lane's calls are captured.
  absl::Status Start(uint32_t lane);
  // Ends the lane's capture. Null if there is none.
  std::unique_ptr<Recorder> Take(uint32_t lane);

  // Whether any lane is captured; a hint for calls, which look for free.
  bool any() const { return count_.load(std::memory_order_relaxed) > 0; }

  // Adds a call that a worker is about to take. `is_born` as Recorder::Add().
  void Add(uint32_t lane, const Call& call,
           absl::FunctionRef<bool(RemoteStorage*)> is_born);
  // Takes the last call back: no worker took it.
  void Retract(uint32_t lane);

  // The lane did what cannot be executed again. The first refusal counts.
  void Refuse(uint32_t lane, absl::string_view reason, absl::string_view what) {
    if (ABSL_PREDICT_FALSE(any())) RefuseOne(lane, reason, what);
  }
  void RefuseAll(absl::string_view reason, absl::string_view what);
  // OK if the lane is not captured.
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
