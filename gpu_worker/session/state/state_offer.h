// Offers all that a session holds to the worker to which it migrates: a list of
// its storages and models, in the format of session_state.proto, with small
// values in it, and every other value by itself.
#ifndef GPU_WORKER_SESSION_STATE_STATE_OFFER_H_
#define GPU_WORKER_SESSION_STATE_STATE_OFFER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu_worker/pull/offer_table.h"
#include "gpu_worker/session/base/session_environment.h"
#include "gpu_worker/session/state/models.h"
#include "gpu_worker/store/storage_table.h"

namespace djinn::worker {

// Makes one of the session's offers.
using MakeOffer = absl::FunctionRef<absl::Status(
    const std::string& ticket, std::shared_ptr<OfferedBytes> bytes)>;

// Offers the list under `ticket`, unless it is empty. Returns the list's size,
// or an error of the ledger, the device or `offer`. After an error, the offers
// made before it stay.
absl::StatusOr<uint64_t> OfferState(const SessionEnvironment& environment,
                                    const std::string& tenant,
                                    const StorageTable& storages,
                                    const Models& models,
                                    const std::string& ticket, MakeOffer offer);

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_STATE_STATE_OFFER_H_
