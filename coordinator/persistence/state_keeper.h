// Writes a coordinator's state to its store, in the background.
//
// A thread asks for the whole state at intervals and writes what differs from
// the store, in one transaction. So no other thread waits for the disk, an
// entry that changes often is written once, and nothing piles up when the disk
// fails: the next write that succeeds catches up. A process that is killed
// loses what changed since the last write, a fraction of a second ago.
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

#include "absl/status/statusor.h"
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

  // Becomes the store's only writer, as `owner`. `store` and `clock` must
  // outlive the keeper. Returns the errors of Store::Acquire().
  static absl::StatusOr<std::unique_ptr<StateKeeper>> Open(
      Store* store, Clock* clock, const std::string& owner);
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

  // Writes now. Returns the errors of Store::PutIf().
  absl::Status Write();

  // Returns why the last write failed; empty when it succeeded.
  std::string failure() const;
  // Returns a number that increases with every process that wrote to the store.
  uint64_t term() const { return term_; }
  // Adds the durations and results of writes to a scrape.
  void Collect(Exposition* out) const;

 private:
  StateKeeper(Store* store, Clock* clock, std::string owner);
  absl::Status Renew();
  void Run();
  void Note(const absl::Status& status);

  Store* const store_;
  Clock* const clock_;
  const std::string owner_;
  uint64_t term_ = 0;
  std::function<State()> state_;
  std::function<void()> kept_;

  // Held for a whole write.
  Mutex writing_mu_;
  // The state as the store has it.
  State written_ ABSL_GUARDED_BY(writing_mu_);
  absl::Time renew_at_ ABSL_GUARDED_BY(writing_mu_);

  mutable Mutex mu_;
  CondVar stopped_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::string failure_ ABSL_GUARDED_BY(mu_);

  DurationHistogram durations_;
  LabelledCounter writes_{"djinn_store_writes_total",
                          "Writes of the coordinator's state.",
                          {"result"}};
  std::thread thread_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_PERSISTENCE_STATE_KEEPER_H_
