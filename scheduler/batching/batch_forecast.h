// Predicts which sessions are about to arrive with runs that could join a
// batch, and how long a run should wait for them.
//
// A generating program loops: it reads the result of its last run and sends the
// next one. A session whose runs followed each other regularly is expected at
// the products that it shares (its place). It is due when as much time has
// passed since its last turn as its recent pauses took. Waiting delays the
// sessions that wait; missing an arrival costs one more pass over the shared
// weights, which is the worth of the place.
// The wait never exceeds that worth (the ski-rental bound): the device idles no
// longer than the extra pass would take.
//
// A session is not expected when it was irregular, or when its pauses exceed
// the worth of the place. A session that did not arrive in time is not expected
// until it arrives again. Only a run moves the expected time; a session's other
// turns count as part of its pause. A session that is alone does not wait.
//
// Pure logic: reads no clock, not thread-safe.
#ifndef SCHEDULER_BATCHING_BATCH_FORECAST_H_
#define SCHEDULER_BATCHING_BATCH_FORECAST_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

namespace djinn::scheduler {

class BatchForecast {
 public:
  // Names the products that the sessions of a batch share.
  using Place = uint64_t;

  // A session that went from one place to the same next place kRegular times in
  // a row is expected there again. Its arrival is due after kLateness times the
  // longest of its last kKept pauses, plus kSlack.
  static constexpr size_t kRegular = 2;
  static constexpr size_t kKept = 4;
  static constexpr double kLateness = 1.25;
  static constexpr absl::Duration kSlack = absl::Microseconds(200);
  // Number of places per session whose successors are remembered.
  static constexpr size_t kPlacesOfSession = 8;
  // The worth of a place is the least of its last kWorths step times, because a
  // step of many rows takes far longer than one that no other session joins.
  static constexpr size_t kWorths = 8;
  // Most places whose worth is kept; beyond that, all are forgotten.
  static constexpr size_t kPlaces = 4096;
  // Most sessions that WaitUntil() looks at.
  static constexpr size_t kLooks = 256;

  // Notes that a run of the session arrived at the place at time `at`.
  void Came(uint64_t key, Place place, absl::Duration at);
  // Notes that the session's turn ended. Does nothing without a noted run.
  void Ended(uint64_t key, absl::Duration now);
  // Forgets the session.
  void Forget(uint64_t key);
  // Notes how long the shared products of a step at the place took.
  void NoteWorth(Place place, absl::Duration took);

  // Returns the place where the session's next run begins; nothing when the
  // session is irregular.
  std::optional<Place> NextOf(uint64_t key) const;

  // Returns the time by which all sessions that are worth waiting for will have
  // arrived at the place, among those for which `may_come` holds; it must not
  // hold for sessions that have arrived. Returns `now` or earlier when there is
  // none. `since` is the time from which the device could have continued.
  absl::Duration WaitUntil(Place place, absl::Duration since,
                           absl::Duration now,
                           absl::FunctionRef<bool(uint64_t)> may_come);

 private:
  // A session's repeated move from one place to the next.
  struct Passage {
    Place from = 0;
    Place to = 0;
    size_t count = 0;  // in succession
    std::array<absl::Duration, kKept> pauses = {};

    absl::Duration LongestPause() const;
  };
  struct Worth {
    size_t count = 0;
    std::array<absl::Duration, kWorths> took = {};

    absl::Duration Least() const;
  };
  struct Session {
    absl::InlinedVector<Passage, 2> passages;
    // Place of its last run.
    Place place = 0;
    // End of the turn of its last run; nothing while the turn lasts.
    std::optional<absl::Duration> ended;
    // Time by which it arrives, where it is expected.
    absl::Duration due;
  };

  static const Passage* FindRegular(const Session& session);
  static Passage* FindOrAdd(Session* session, Place from);
  // Stops expecting the session.
  void Dismiss(uint64_t key, const Session& session);

  absl::flat_hash_map<uint64_t, Session> sessions_;
  // Expected sessions by place.
  absl::flat_hash_map<Place, absl::flat_hash_set<uint64_t>> expected_;
  absl::flat_hash_map<Place, Worth> worth_;
};

}  // namespace djinn::scheduler

#endif  // SCHEDULER_BATCHING_BATCH_FORECAST_H_
