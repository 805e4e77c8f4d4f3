// One handler per kind of ordered message, each a function over the session's
// state, and what goes on with a message that was parked.
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

// Handles the message by its kind.
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

// A message that starts a profile arrived. Any thread.
void ExpectProfile(SessionState& s);

// What the parked message waited for is settled. It may be parked again.
void ResumeUpload(SessionState& s, const ParkedUpload& upload);
void ResumePull(SessionState& s, const ParkedPull& pull);

// --- What handlers share.
// Begins to fetch the value of an Install from another worker. Not OK when
// there is no room.
absl::Status InstallPull(SessionState& s, uint64_t sequence,
                         const v1::Install& install, Storage* storage);
// Takes what was fetched; tells the client how fast it came, if that could be
// measured.
Pulls::Pulled TakePulled(SessionState& s);
// The session that enters takes what was fetched, and fetches the next value,
// or answers; what has come is dropped when not all did.
void ResumeEntering(SessionState& s, uint64_t sequence);

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_HANDLERS_HANDLERS_H_
