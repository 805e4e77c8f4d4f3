// What a session holds on the worker that it leaves, on its way here: first the
// list of it all, as OfferState() makes it, then one value after the other. The
// caller fetches them.
//
// Not thread-safe: belongs to whoever executes the session. An error ends it:
// DATA_LOSS (PROTOCOL_VIOLATION, CONTENT_MISMATCH) where the other worker is to
// blame, and RESOURCE_EXHAUSTED. What was placed by then is the caller's to
// drop.
#ifndef GPU_WORKER_SESSION_STATE_STATE_ARRIVAL_H_
#define GPU_WORKER_SESSION_STATE_STATE_ARRIVAL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "djinn/v1/execution.pb.h"
#include "djinn/v1/session_state.pb.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/session/base/session_environment.h"
#include "gpu_worker/session/state/models.h"
#include "gpu_worker/store/ledger.h"
#include "gpu_worker/store/storage_memory.h"
#include "gpu_worker/store/storage_table.h"

namespace djinn::worker {

class StateArrival {
 public:
  // What is filled: a session's, with nothing in them.
  struct Into {
    StorageTable* storages = nullptr;
    Models* models = nullptr;
    SessionQuota* quota = nullptr;
    StorageMemory* memory = nullptr;
  };
  // What to fetch next; nothing when all is here.
  using Next = absl::StatusOr<std::optional<v1::Pull>>;

  // `source` names the list, which takes 0 bytes when there is none.
  // `environment` and what is filled outlive it.
  StateArrival(const SessionEnvironment* environment, std::string tenant,
               Into into, v1::Pull source);

  // Once, before anything is fetched.
  Next Begin();
  // `buffer` is what was to be fetched last. `reservation` paid for its way
  // here; null when it was here before.
  Next Take(std::shared_ptr<Buffer> buffer, Reservation* reservation);

  // Of values that came, and of those that were here.
  uint64_t moved_bytes() const { return moved_bytes_; }
  uint64_t held_bytes() const { return held_bytes_; }

 private:
  absl::Status TakeList(std::shared_ptr<Buffer> buffer);
  absl::Status TakeValue(std::shared_ptr<Buffer> buffer,
                         Reservation* reservation);
  // Places what need not be fetched, up to what has to be, or to the end.
  Next Place();
  absl::Status PlaceModels();
  // True when its value has to be fetched.
  absl::StatusOr<bool> PlaceStorage(const v1::StorageState& state);
  absl::StatusOr<bool> PlaceOffered(const v1::StorageState& state,
                                    Storage* storage);

  const SessionEnvironment& environment_;
  const std::string tenant_;
  const Into into_;
  // What does not change from one fetch to the next.
  const v1::Pull source_;
  // Of the list while it is fetched.
  QuotaShare list_;
  // Unset while it is fetched itself.
  std::optional<v1::SessionState> state_;
  // The storage that is fetched, or placed next.
  int next_ = 0;
  std::vector<RootError> errors_;
  // When the fetch began.
  absl::Duration started_;
  uint64_t moved_bytes_ = 0;
  uint64_t held_bytes_ = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_STATE_STATE_ARRIVAL_H_
