// Records how often the runs of a lease yielded between two nodes, for how
// long, and to which session the last time.
//
// Thread-safe.
#ifndef GPU_WORKER_LEASES_YIELDED_H_
#define GPU_WORKER_LEASES_YIELDED_H_

#include <string>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "djinn/v1/usage.pb.h"

namespace djinn::worker {

// The session whose turn preempted.
struct Preemptor {
  std::string tenant;
  std::string session_id;
};

class Yielded {
 public:
  // Records that a run stopped for `away`, until `now`, for `first` and maybe
  // other sessions. `reason` must never be freed.
  void Add(Preemptor first, const char* reason, absl::Duration away,
           absl::Duration now);

  // Fills `yielded`; returns false when no run ever yielded.
  bool Describe(absl::Duration now, v1::Yielded* yielded) const;

 private:
  mutable Mutex mu_;
  uint64_t count_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Duration time_ ABSL_GUARDED_BY(mu_);
  Preemptor last_ ABSL_GUARDED_BY(mu_);
  const char* last_reason_ ABSL_GUARDED_BY(mu_) = "";
  absl::Duration last_at_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_LEASES_YIELDED_H_
