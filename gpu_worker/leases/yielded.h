// How often the runs of a lease yielded to others in their middle, for how
// long, and to whom the last time.
//
// Thread-safe.
#ifndef GPU_WORKER_LEASES_YIELDED_H_
#define GPU_WORKER_LEASES_YIELDED_H_

#include <string>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "djinn/v1/usage.pb.h"

namespace djinn::worker {

// Whose turn went first.
struct Preemptor {
  std::string tenant;
  std::string session_id;
};

class Yielded {
 public:
  // A run stood still for `away`, for `first` and maybe others, until `now`.
  // `reason` lives for ever.
  void Add(Preemptor first, const char* reason, absl::Duration away,
           absl::Duration now);

  // False when there is nothing to say.
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
