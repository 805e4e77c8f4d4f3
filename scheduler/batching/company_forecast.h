// Who is about to come: for whom runs that may share a step should wait.
//
// A program that generates goes round in a loop: it reads what its last run
// made, and comes with the next one. So a session whose runs followed one
// another alike is expected where the next one began every time, at the
// products that it shares there (its place), as long after the turn of its last
// run as it took lately. To wait for it delays whoever waits; to miss it costs
// one more passage through all that a step shares, which is what the place is
// worth. Nobody waits longer than that, which is the ski-rental bound: the
// device idles for no more than what it would do twice otherwise.
//
// Nobody is expected who was irregular or is too slow for what the place is
// worth; and who has not come in time is not expected any more, until it
// comes. Nothing but a run puts that off: a session's other turns, which may
// cost it next to nothing, are part of its pause. A session that is alone waits
// for nobody.
//
// Pure logic: reads no clock, not thread-safe.
#ifndef SCHEDULER_BATCHING_COMPANY_FORECAST_H_
#define SCHEDULER_BATCHING_COMPANY_FORECAST_H_

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

class CompanyForecast {
 public:
  // What those have in common who share a step.
  using Place = uint64_t;

  // A session that went on from a place to the same one kRegular times in
  // succession is expected there again, after the longest of its last kKept
  // pauses, kLateness times as long, and kSlack.
  static constexpr size_t kRegular = 2;
  static constexpr size_t kKept = 4;
  static constexpr double kLateness = 1.25;
  static constexpr absl::Duration kSlack = absl::Microseconds(200);
  // Places that a session is remembered to have gone on from.
  static constexpr size_t kPlacesOfSession = 8;
  // A place is worth the least of what so many steps took last: one of many
  // rows takes far longer than a step would that nobody joins.
  static constexpr size_t kWorths = 8;
  // Whose worth is known; beyond that all are forgotten.
  static constexpr size_t kPlaces = 4096;
  // Sessions that are looked at to see how long to wait.
  static constexpr size_t kLooks = 256;

  // A run of the session begins at the place, and has been there since `at`.
  void Came(uint64_t key, Place place, absl::Duration at);
  // The session's turn is over. Of no effect for one without such a run.
  void Ended(uint64_t key, absl::Duration now);
  // The session is gone.
  void Forget(uint64_t key);
  // What the runs of a step that began there took for what they share.
  void NoteWorth(Place place, absl::Duration took);

  // Where the session's next run begins; nothing when it is not regular.
  std::optional<Place> NextOf(uint64_t key) const;

  // By when everybody who is worth it will have come to the place, of those for
  // whom `may_come` holds, which it does not for who has come; `now` or earlier
  // when there is nobody. The device might have gone on at `since`.
  absl::Duration WaitUntil(Place place, absl::Duration since,
                           absl::Duration now,
                           absl::FunctionRef<bool(uint64_t)> may_come);

 private:
  // From one place to the next.
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
    // Of its last run.
    Place place = 0;
    // When the turn of its last run ended; nothing while that goes on.
    std::optional<absl::Duration> ended;
    // By when it comes, where it is expected.
    absl::Duration due;
  };

  static const Passage* FindRegular(const Session& session);
  static Passage* FindOrAdd(Session* session, Place from);
  // Not expected any more.
  void Dismiss(uint64_t key, const Session& session);

  absl::flat_hash_map<uint64_t, Session> sessions_;
  // By the place where they are expected.
  absl::flat_hash_map<Place, absl::flat_hash_set<uint64_t>> expected_;
  absl::flat_hash_map<Place, Worth> worth_;
};

}  // namespace djinn::scheduler

#endif  // SCHEDULER_BATCHING_COMPANY_FORECAST_H_
