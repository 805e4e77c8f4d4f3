// Writes a coordinator's state to its store, in the background.
//
// A thread asks for the whole state now and then and writes what differs from
// the store, in one transaction: nobody waits for the disk, what changes often
// is written once, and nothing piles up when the disk fails: the next write
// that succeeds catches up. A process that is killed loses what changed since
// the last write, a fraction of a second ago.
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

  // Becomes the store's only writer, as `owner`. `store` and `clock` outlive
  // the keeper. Errors: as Store::Acquire().
  static absl::StatusOr<std::unique_ptr<StateKeeper>> Open(
      Store* store, Clock* clock, const std::string& owner);
  // As Stop().
  ~StateKeeper();

  // What an earlier process wrote. Errors: as Store::Get().
  absl::StatusOr<State> Read();

  // Starts to write what `state` returns, which is called by the keeper's
  // thread until Stop(). `kept`, if there is one, is called each time that the
  // store has what `state` returned last.
  void Start(std::function<State()> state, std::function<void()> kept = {});
  // Writes a last time.
  void Stop();

  // Writes now. Errors: as Store::PutIf().
  absl::Status Write();

  // Why the last write failed; empty when it did not.
  std::string failure() const;
  // Grows with every process that wrote to the store.
  uint64_t term() const { return term_; }
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
  // As the store has it.
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
