// One handler per kind of ordered message, each a function over the session's
// state, and the functions that resume a parked message.
//
// A handler reads and writes the state, adds replies, and may park its message
// (MessageInProgress). It returns an error only for a violation of the
// protocol, which ends the session; every other failure becomes a root error.
#ifndef GPU_WORKER_SESSION_HANDLERS_HANDLERS_H_
#define GPU_WORKER_SESSION_HANDLERS_HANDLERS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "djinn/v1/execution.pb.h"
#include "gpu_worker/session/state/session_state.h"

namespace djinn::worker {

// Calls the handler for the message's kind.
absl::Status Handle(SessionState& s, const v1::Ordered& message);

absl::Status HandleDefine(SessionState& s, uint64_t sequence,
                          const v1::DefineGraph& define);
absl::Status HandleRun(SessionState& s, uint64_t sequence, const v1::Run& run);
absl::Status HandleInstall(SessionState& s, uint64_t sequence,
                           const v1::Install& install);
absl::Status HandleCreate(SessionState& s, uint64_t sequence,
                          const v1::CreateStorage& create);
absl::Status HandleRead(SessionState& s, uint64_t sequence,
                        const v1::Read& read);
absl::Status HandleFree(SessionState& s, const v1::Free& free);
absl::Status HandleOffer(SessionState& s, uint64_t sequence,
                         const v1::Offer& offer);
absl::Status HandleProfile(SessionState& s, uint64_t sequence,
                           const v1::Profile& profile);
absl::Status HandleMeter(SessionState& s, uint64_t sequence);
absl::Status HandleModel(SessionState& s, uint64_t sequence,
                         const v1::RegisterModel& model);
absl::Status HandleMigrate(SessionState& s, uint64_t sequence,
                           const v1::Migrate& migrate);

// Notes that a message that starts a profile arrived. Any thread may call it.
void ExpectProfile(SessionState& s);

// These resume the parked message once the upload or the pull is settled. They
// may park it again.
void ResumeUpload(SessionState& s, const ParkedUpload& upload);
void ResumePull(SessionState& s, const ParkedPull& pull);

// --- Helpers of the handlers.

// Begins to fetch the value of an Install from another worker. Returns an error
// when there is no room.
absl::Status InstallPull(SessionState& s, uint64_t sequence,
                         const v1::Install& install, Storage* storage);
// Takes the fetched value. Reports the link's rate to the client, if it could
// be measured.
Pulls::Pulled TakePulled(SessionState& s);
// Takes the fetched value into the session that enters, and fetches the next
// one, or answers. Drops all values when one of them failed.
void ResumeEntering(SessionState& s, uint64_t sequence);

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_HANDLERS_HANDLERS_H_
