// Receives the state of a session that migrates here from another worker: first
// the list that OfferState() made, then one value after the other. The caller
// fetches them.
//
// Not thread-safe: the thread that executes the session owns it. An error ends
// the arrival: DATA_LOSS (PROTOCOL_VIOLATION, CONTENT_MISMATCH) when the other
// worker is at fault, or RESOURCE_EXHAUSTED. The caller then drops everything
// that was placed.
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
#include "djinn/v1/pull.pb.h"
#include "djinn/v1/session_state.pb.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/session/base/session_environment.h"
#include "gpu_worker/session/state/models.h"
#include "gpu_worker/store/ledger.h"
#include "gpu_worker/store/quota.h"
#include "gpu_worker/store/storage_memory.h"
#include "gpu_worker/store/storage_table.h"

namespace djinn::worker {

class StateArrival {
 public:
  // The session's tables that are filled. They must be empty.
  struct Into {
    StorageTable* storages = nullptr;
    Models* models = nullptr;
    SessionQuota* quota = nullptr;
    StorageMemory* memory = nullptr;
  };
  // The value to fetch next; unset when everything has arrived.
  using Next = absl::StatusOr<std::optional<v1::Pull>>;

  // `source` names the list, whose size is 0 when there is none. `environment`
  // and the tables must outlive this.
  StateArrival(const SessionEnvironment* environment, std::string tenant,
               Into into, v1::Pull source);

  // Begins the arrival. Call it once, before anything is fetched.
  Next Begin();
  // Takes the value that was to be fetched last. `reservation` accounts for the
  // received bytes; null when the buffer was on this worker already.
  Next Take(std::shared_ptr<Buffer> buffer, Reservation* reservation);

  // These return the bytes of values that were received, and of values that
  // were on this worker already.
  uint64_t moved_bytes() const { return moved_bytes_; }
  uint64_t held_bytes() const { return held_bytes_; }

 private:
  absl::Status TakeList(std::shared_ptr<Buffer> buffer);
  absl::Status TakeValue(std::shared_ptr<Buffer> buffer,
                         Reservation* reservation);
  // Places values that need not be fetched, up to one that must be, or to the
  // end.
  Next Place();
  absl::Status PlaceModels();
  // Returns true when the storage's value must be fetched.
  absl::StatusOr<bool> PlaceStorage(const v1::StorageState& state);
  absl::StatusOr<bool> PlaceOffered(const v1::StorageState& state,
                                    Storage* storage);

  const SessionEnvironment& environment_;
  const std::string tenant_;
  const Into into_;
  // Names the other worker in each fetch.
  const v1::Pull source_;
  // The list's share of the quota while it is fetched.
  QuotaShare list_;
  // The list; unset while it is fetched itself.
  std::optional<v1::SessionState> state_;
  // The index of the storage that is fetched, or placed next.
  int next_ = 0;
  std::vector<RootError> errors_;
  // When the fetch began.
  absl::Duration started_;
  uint64_t moved_bytes_ = 0;
  uint64_t held_bytes_ = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_STATE_STATE_ARRIVAL_H_
