// Shares one device among sessions: the runnable session that used the least
// time goes next, one ordered message at a time.
//
// A session that comes back from idling starts at the current virtual time, so
// that idling earns nothing. Sessions with equal time take turns.
//
// Pure logic: not thread-safe, reads no clock.
#ifndef GPU_WORKER_QUEUE_FAIR_QUEUE_H_
#define GPU_WORKER_QUEUE_FAIR_QUEUE_H_

#include <cstdint>
#include <set>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"

namespace djinn::worker {

class FairQueue {
 public:
  void Join(uint64_t key);
  // Also while the session runs; its Done() is then without effect.
  void Leave(uint64_t key);

  // The session has work. Without effect when it is waiting already; while it
  // runs, it will wait again after Done(). Unknown keys are ignored.
  void MakeRunnable(uint64_t key);

  bool empty() const { return waiting_.empty(); }
  // Takes the next session, which now runs. Not empty.
  uint64_t Take();
  // The session ran for `used` and has more work, or not.
  void Done(uint64_t key, absl::Duration used, bool more);

 private:
  enum class State { kIdle, kWaiting, kRunning, kRunningAgain };
  struct Member {
    State state = State::kIdle;
    absl::Duration virtual_time;
    uint64_t turn = 0;
  };
  using Position = std::tuple<absl::Duration, uint64_t, uint64_t>;

  void Wait(uint64_t key, Member* member);

  absl::flat_hash_map<uint64_t, Member> members_;
  // (virtual time, turn, key) of the waiting members.
  std::set<Position> waiting_;
  // Virtual time of the last session taken.
  absl::Duration now_;
  uint64_t next_turn_ = 1;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_QUEUE_FAIR_QUEUE_H_
