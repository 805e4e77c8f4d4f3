// Writes a coordinator's state to its store, in the background.
//
// A thread asks for the whole state at intervals and writes what differs from
// the store, in one transaction. So no other thread waits for the disk, an
// entry that changes often is written once, and nothing piles up when the disk
// fails: the next write that succeeds catches up. A process that is killed
// loses what changed since the last write, a fraction of a second ago.
//
// Every write carries a fence, an entry that names the writer's term and that
// must be as this writer left it. So a writer that was superseded changes
// nothing any more, however late its write arrives, and knows that from then
// on.
//
// Thread-safe.
#ifndef COORDINATOR_PERSISTENCE_STATE_KEEPER_H_
#define COORDINATOR_PERSISTENCE_STATE_KEEPER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/metrics/duration_histogram.h"
#include "common/metrics/exposition.h"
#include "common/metrics/labelled_counter.h"
#include "coordinator/persistence/store.h"

namespace djinn::coordinator {

class StateKeeper {
 public:
  using State = std::map<std::string, std::string>;

  // The name of the lease that the store's only writer holds, and how long it
  // is held without being renewed.
  static constexpr char kLeader[] = "leader";
  static constexpr absl::Duration kTerm = absl::Seconds(15);

  // Becomes the store's only writer, as `owner`, until `term` after the last
  // renewal. `store` and `clock` must outlive the keeper. Returns the errors of
  // Store::Acquire() and Store::PutIf(), or Aborted (LEADERSHIP_LOST) when
  // another process has a later term already.
  static absl::StatusOr<std::unique_ptr<StateKeeper>> Open(
      Store* store, Clock* clock, const std::string& owner,
      absl::Duration term = kTerm);
  // Does what Stop() does.
  ~StateKeeper();

  // Returns what an earlier process wrote, or the errors of Store::Get().
  absl::StatusOr<State> Read();

  // Starts to write what `state` returns. The keeper's thread calls `state`
  // until Stop(). It calls `kept`, if there is one, each time that the store
  // has what `state` returned last.
  void Start(std::function<State()> state, std::function<void()> kept = {});
  // Writes a last time and ends the keeper's thread.
  void Stop();

  // Writes now. Returns the errors of Store::PutIf(), or Aborted
  // (LEADERSHIP_LOST) once lost() is true.
  absl::Status Write();

  // Returns why the last write failed; empty when it succeeded.
  std::string failure() const;
  // Returns whether another process has become the writer. Nothing is written
  // from then on.
  bool lost() const;
  // Returns a number that increases with every process that wrote to the store.
  uint64_t term() const { return term_; }
  // Adds the durations and results of writes to a scrape.
  void Collect(Exposition* out) const;

 private:
  StateKeeper(Store* store, Clock* clock, std::string owner,
              absl::Duration ttl);
  absl::Status Renew() ABSL_EXCLUSIVE_LOCKS_REQUIRED(writing_mu_);
  // Reads the store's entries into written_, and the fence. Returns Aborted
  // (LEADERSHIP_LOST) when the fence is another process's.
  absl::Status ReadStore() ABSL_EXCLUSIVE_LOCKS_REQUIRED(writing_mu_);
  absl::Status RaiseFence();
  std::string Fence() const;
  absl::Status Lose(absl::string_view why);
  void Run();
  void Note(const absl::Status& status);

  Store* const store_;
  Clock* const clock_;
  const std::string owner_;
  const absl::Duration ttl_;
  uint64_t term_ = 0;
  std::function<State()> state_;
  std::function<void()> kept_;

  // Held for a whole write.
  Mutex writing_mu_;
  // The state as the store has it.
  State written_ ABSL_GUARDED_BY(writing_mu_);
  absl::Time renew_at_ ABSL_GUARDED_BY(writing_mu_);
  // The version of the fence as this writer left it.
  uint64_t fence_ ABSL_GUARDED_BY(writing_mu_) = 0;

  mutable Mutex mu_;
  CondVar stopped_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::string failure_ ABSL_GUARDED_BY(mu_);
  bool lost_ ABSL_GUARDED_BY(mu_) = false;

  DurationHistogram durations_;
  LabelledCounter writes_{"djinn_store_writes_total",
                          "Writes of the coordinator's state.",
                          {"result"}};
  std::thread thread_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_PERSISTENCE_STATE_KEEPER_H_
