// Elects one of several coordinators that share a store: the holder of the
// store's lease "leader".
//
// A thread acquires or renews the lease at intervals. If the store does not
// answer, the holder leads until its lease would have ended. Then nobody leads
// until the store answers again. Its own monotonic clock decides, from before
// the last renewal that succeeded. A machine that was suspended may therefore
// lead for a moment beside its successor; terms protect the store and every
// peer that knows the later one.
//
// Thread-safe.
#ifndef COORDINATOR_PERSISTENCE_ELECTION_H_
#define COORDINATOR_PERSISTENCE_ELECTION_H_

#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "coordinator/persistence/store.h"

namespace djinn::coordinator {

struct ElectionOptions {
  // Random and unique for the process.
  std::string id;
  // Address at which clients and workers reach this process. Other candidates
  // name it while this one leads.
  std::string address;
  absl::Duration lease = absl::Seconds(5);
};

class Election {
 public:
  struct View {
    // The term in which this process leads; 0 when it does not.
    uint64_t term = 0;
    // Address of the leader, this process included; empty when not known.
    std::string leader;
    // Why the store does not answer, or has not yet; empty when it does.
    std::string failure;
  };

  // `store` and `clock` must outlive the election.
  Election(Store* store, Clock* clock, ElectionOptions options);
  // Calls Stop().
  ~Election();
  Election(const Election&) = delete;
  Election& operator=(const Election&) = delete;

  // Has a thread call Step() at intervals, and `changed` after each.
  void Start(std::function<void()> changed);
  // Ends the thread, and the lease if this process holds it, so that another
  // candidate need not wait for its end. The process leads no longer.
  void Stop();

  // Gives the lease up, and does not stand for two lease times: this process
  // cannot lead, and another one may.
  void Resign();

  // Tries once to acquire the lease, or renews it when that is due.
  void Step();

  View view() const;
  // Returns the name under which this process holds the lease.
  const std::string& owner() const { return owner_; }

 private:
  // How long a candidate waits before it tries again.
  absl::Duration Interval() const;
  void Run(const std::function<void()>& changed);

  Store* const store_;
  Clock* const clock_;
  const ElectionOptions options_;
  const std::string owner_;

  mutable Mutex mu_;
  CondVar stopped_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  // The term of the lease that was acquired last, and when it ends and is to be
  // renewed, by the monotonic clock.
  uint64_t term_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Duration valid_until_ ABSL_GUARDED_BY(mu_);
  absl::Duration renew_at_ ABSL_GUARDED_BY(mu_);
  // When the process stands again after Resign().
  absl::Duration stands_at_ ABSL_GUARDED_BY(mu_);
  std::string leader_ ABSL_GUARDED_BY(mu_);
  std::string failure_ ABSL_GUARDED_BY(mu_) = "the store was not asked yet";
  std::thread thread_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_PERSISTENCE_ELECTION_H_
