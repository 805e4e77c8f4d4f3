// The profile of a session, from the message that requests it until another one
// ends it. Threads that receive note when messages arrive, and the executor
// measures what it does.
//
// Thread-safe.
#ifndef GPU_WORKER_SESSION_OBSERVE_PROFILING_H_
#define GPU_WORKER_SESSION_OBSERVE_PROFILING_H_

#include <atomic>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/optimization.h"
#include "common/base/mutex.h"
#include "gpu_worker/session/observe/session_profile.h"

namespace djinn::worker {

class Profiling {
 public:
  // Announces a profile that will start: it includes messages that arrive from
  // here on.
  void Expect(std::shared_ptr<SessionProfile> profile) {
    MutexLock lock(&mu_);
    receiving_ = std::move(profile);
    profiled_.store(true, std::memory_order_relaxed);
  }
  // Returns the profile that was expected last, which starts now.
  std::shared_ptr<SessionProfile> Start() {
    MutexLock lock(&mu_);
    return receiving_;
  }
  // Ends the profile, unless the next one is expected already.
  void End(const std::shared_ptr<SessionProfile>& profile) {
    MutexLock lock(&mu_);
    if (receiving_ != profile) return;
    receiving_ = nullptr;
    profiled_.store(false, std::memory_order_relaxed);
  }
  // Returns the mark of a message that arrives now, if the session is profiled.
  std::optional<SessionProfile::Mark> MarkArrival() const {
    if (ABSL_PREDICT_TRUE(!profiled_.load(std::memory_order_relaxed))) {
      return std::nullopt;
    }
    std::shared_ptr<const SessionProfile> profile;
    {
      MutexLock lock(&mu_);
      profile = receiving_;
    }
    if (profile == nullptr) return std::nullopt;
    return profile->Note();
  }

 private:
  mutable Mutex mu_;
  // The profile that will start next, or the one that has.
  std::shared_ptr<SessionProfile> receiving_ ABSL_GUARDED_BY(mu_);
  // True while there is one.
  std::atomic<bool> profiled_{false};
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_OBSERVE_PROFILING_H_
