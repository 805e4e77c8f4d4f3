// Copies between virtual devices when one of them loses its worker.
#ifndef CLIENT_LIB_SESSION_DEVICE_REPLICA_COPIES_H_
#define CLIENT_LIB_SESSION_DEVICE_REPLICA_COPIES_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/session/device/replica/replica_state.h"
#include "client_lib/session/transfer/kept_copy.h"
#include "client_lib/session/transfer/work.h"
#include "common/base/mutex.h"
#include "djinn/v1/execution.pb.h"

namespace djinn::replica {

// Returns an offer with a new ticket.
OfferWork NewOffer(State& r);
// Returns how another worker fetches what is offered now. Completes the offer.
OfferedCopy Describe(const State& r, uint64_t size_bytes, OfferWork* offer)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu);
// Returns the upload that made this version, if the worker has executed it and
// its message is kept.
UploadOfCopy UploadOf(const State& r, const StorageVersion& at)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu);
// Frees a storage that the program released, or a kept copy. Any thread may
// call it, with any lock held.
void Release(State& r, RemoteStorage* storage);
// Does what CopySource::Look() says.
CopySource::View LookAt(State& r, const RemoteStorage& storage);
// Does what CopySource::OfferAgain() says.
absl::StatusOr<std::optional<OfferedCopy>> OfferAgain(State& r,
                                                      RemoteStorage* storage,
                                                      bool recovers);
// Completes the kept messages that fetch copies, so that the next worker can
// fetch them. Waits until their sources have workers. A copy whose source finds
// none within kSourcePatience fails with that error. Returns an error if the
// device is not wanted any more. Called by the device's own thread.
absl::Status FetchAgain(State& r);
// Decides about an offer of the storage that is about to be sent. If a device
// has asked for another ticket since, the offer gets that ticket. If the worker
// was lost since, the offer gets a new ticket for the device that still needs
// the copy, or is withdrawn if none does.
void CheckOffer(State& r, uint64_t storage, OfferWork* offer)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu);
// Notes that what was offered cannot be fetched any more, because the worker is
// lost or was not reached, and that the next worker has everything to fetch.
void WithdrawOffers(State& r) ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu);
// Notes what the worker has fetched, as it executed the messages up to
// `sequence`. The lineage still has these among the pending ones.
void NoteFetched(State& r, uint64_t sequence)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu);
// Looks at the sources of copies after news of them (SourceLosses). Called by
// the device's own thread.
void CheckSources(State& r);
// Leaves the worker because it waits for a value that does not come. Does
// nothing if the device cannot recover.
void LeaveForSource(State& r) ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu);
// Handles the worker's report that it did not get a copy. Returns false if the
// value fails with that error.
bool TakeLostCopy(State& r, const v1::ErrorDetail& error);

}  // namespace djinn::replica

#endif  // CLIENT_LIB_SESSION_DEVICE_REPLICA_COPIES_H_
