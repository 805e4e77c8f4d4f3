// Says what a client does about an error of a worker or of the coordinator. One
// table has a row for every reason that it does not treat as its status code
// says (remedies.cc). The same table stands in docs/design/protocols.md.
//
// A reason that the table does not name gets the remedy of its code. New
// reasons of peers therefore need no row, unless a client can do better than to
// fail.
//
// Functions without state; any thread may call them.
#ifndef CLIENT_LIB_SESSION_MODEL_REMEDIES_H_
#define CLIENT_LIB_SESSION_MODEL_REMEDIES_H_

#include "absl/status/status.h"

namespace djinn {

enum class Remedy {
  // Tries again at the same peer, which may succeed.
  kTryAgain,
  // Leaves the peer for another one, which takes the device over by replay. A
  // device that keeps no messages gives up.
  kTryAnother,
  // Gives up, because a further attempt would end in the same way.
  kGiveUp,
};

// Returns what a device does when its worker ends the stream with this error,
// or the coordinator ends the lease for this reason. kTryAgain opens another
// stream to the worker. After OK, the worker's own wish, the device gives up.
Remedy AfterWorkerError(const absl::Status& error);

// Returns whether a device that lost its worker with this error must suspect
// that one of its runs ended the worker's process, or hangs there. A device
// also loses workers that are alive.
bool MeansDeath(const absl::Status& error);

// Returns whether nothing listens where the worker was.
bool IsRefusedDial(const absl::Status& error);

// Returns what a device does whose recovery failed with this error: a refusal
// of the coordinator to grant a lease, or of the worker that was to take the
// device over. kTryAgain asks the coordinator for a lease once more, which may
// be of another worker.
Remedy AfterFailedRecovery(const absl::Status& error);

// Returns what an open session does when its stream to the coordinator ends
// with this error. kTryAgain attaches again at any of the coordinator's
// addresses.
Remedy AfterCoordinatorError(const absl::Status& error);

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MODEL_REMEDIES_H_
