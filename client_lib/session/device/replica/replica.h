// Declares the functions of a replica, which work on its state
// (replica_state.h). Each section has a source of its own. Further sources have
// headers: checkpoint_steps.h, copies.h, room.h, seen_values.h.
//
// A function takes the locks that it needs, unless its annotation names one.
// "The device's own thread" is the sender thread while it has the turn; only it
// opens streams and replaces them. The thread that closes the session destroys
// the last one. "The sender" is any thread that has the turn.
#ifndef CLIENT_LIB_SESSION_DEVICE_REPLICA_REPLICA_H_
#define CLIENT_LIB_SESSION_DEVICE_REPLICA_REPLICA_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client_lib/session/device/outgoing/call_recorder.h"
#include "client_lib/session/device/outgoing/work_encoder.h"
#include "client_lib/session/device/replica/replica_state.h"
#include "client_lib/session/model/wait.h"
#include "client_lib/session/transfer/read_table.h"
#include "client_lib/session/transfer/work.h"
#include "djinn/statistics.h"
#include "djinn/v1/execution.pb.h"
#include "djinn/v1/session.pb.h"

namespace djinn::replica {

inline absl::Duration Now(const State& r) {
  return r.context->options.clock->Monotonic();
}

// --- waits.cc: the program's threads wait for the connection.

// Does what WindowWaiter::AwaitWindow() says.
absl::Status AwaitWindow(State& r);
// Waits until the worker has answered a hello.
absl::Status AwaitWelcome(State& r)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu);
// Returns why no call is taken, to a thread of the program.
absl::Status TellEnd(State& r) ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu);
// Returns whether the device has failed, and a call of the program has returned
// the failure.
bool FailureIsKnown(const State& r);
// Queues work for the current worker. Waits until there is one and no migration
// is under way. `queue` makes the recorder queue the work, and may be called
// repeatedly. `fill` is called with the connection's lock when the work is
// queued.
absl::Status QueueHere(
    State& r, absl::FunctionRef<absl::Status(CallRecorder::Admit)> queue,
    absl::FunctionRef<void()> fill);
// Waits until the worker has executed all that was recorded, successfully or
// not.
absl::Status CatchUp(State& r);
// Returns where the device runs. Requests the lease if there is none yet.
absl::StatusOr<DevicePlacement> Placement(State& r);

// --- sender.cc: decides what is sent when.

// The device's own thread runs this function.
void SenderLoop(State& r);
// Lets a thread that waits for the outcome anyway be the sender if no other
// thread is, which saves two thread switches. Wakes the device's own thread for
// the rest.
void SendNow(State& r);
// Appends the encoder's messages to the log. Called by the sender.
void Append(State& r, EncodedMessages messages);
// Encodes the ends of forgotten models. Called by the sender.
void EncodeForgottenModels(State& r, EncodedMessages* messages);

// --- connection.cc: lease, streams, and resume.

// Opens streams until the worker answers on one. Requests the lease if the
// device has nothing on a worker yet, and another lease if that worker is not
// reached or refuses the session. Called by the device's own thread.
void Open(State& r);
// Requests a lease and takes it as the device's. From then on, the device notes
// which leases end (ended_leases).
absl::Status RequestLease(State& r, absl::Duration timeout);
// Returns the cause if the coordinator has ended the lease since the device
// requested it.
absl::Status EndOfLease(const ConnectionState& c)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(c.mu);
// Returns how long an attempt to connect may take: a share of the time that is
// left until `end`. One that is not `patient` leaves the time to other workers.
absl::Duration AttemptTime(const Deadline& end, bool patient);
// Opens a stream and waits for the worker's answer to the hello.
absl::Status TryOpen(State& r, absl::Duration timeout);
// Ends and destroys the stream. Returns false when it cannot be destroyed.
// Called by the device's own thread.
bool DropStream(State& r,
                const absl::Status& why = absl::CancelledError("another takes "
                                                               "over"));
// Starts to encode for the worker that was reached. Called by the sender.
void BeginEncoding(State& r, uint64_t next_sequence);
// Takes the worker's answer to the hello. An error is a breach of the protocol.
absl::Status ApplyHello(State& r, const v1::ControlResponse& response)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu, r.answers.mu);
// Handles the end of the stream, in a callback of the stream. The device
// resumes on another stream if that may succeed, and fails otherwise.
void OnClosed(State& r, absl::Status status);
// Returns whether the coordinator has granted a lease, whether or not the
// worker was reached.
bool HasLease(const State& r);
// Returns the lease; the caller makes no more calls here. Does nothing without
// a lease or the second time.
void GiveLeaseBack(State& r, bool unreachable);

// --- migration.cc: moves the session to another worker.

// Returns false if the request is about another device's lease. Reports nothing
// when the device uses the new lease already.
bool OnMigrationRequested(State& r, const v1::MigrationRequest& request);
// Returns whether further work must wait, because the sender took all work that
// was queued before the migration was requested.
bool HoldsWorkBack(const State& r)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu);
// Returns whether the migration's next step is due, because nothing is on its
// way.
bool MigrationDue(const State& r)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu, r.answers.mu);
// Does the next step. Called by the device's own thread.
void Migrate(State& r);
// Takes the worker's answer to the message that leaves it. An error is a breach
// of the protocol.
absl::Status ApplyLeft(State& r, v1::Left* left)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu);
// Ends the migration, if there is one, and reports the outcome to the
// coordinator.
void EndMigration(State& r, absl::Status status, const v1::Entered& entered);

// --- recovery.cc: goes on at another worker when one is lost.

// Handles the loss of the worker. Returns OK if the device recovers, which its
// own thread does once it is woken, and otherwise the error to fail with.
absl::Status LoseWorker(State& r, const absl::Status& cause)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu);
// Recovers. Called by the device's own thread.
void Recover(State& r);
// Notes a message that is about to be appended.
void KeepMessage(State& r, EncodedMessage* message)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu, r.answers.mu);
// Warns once if values could not be computed again.
void WarnIfIncomplete(State& r);
// Notes that the worker executed the messages up to `sequence`.
void NoteExecuted(State& r, uint64_t sequence)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu, r.answers.mu);
// Notes that the worker refused an upload, so that its storage keeps its
// contents.
void NoteRefused(State& r, uint64_t transfer_id)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu);
// Ends the thread that sends uploads again.
void EndUploads(State& r);
// Sends the reports of recoveries that are over, if there are any.
void SendReport(State& r);
// Returns why the device could not recover now, or an empty string.
std::string Obstacle(State& r) ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu);

// --- describe_lineage.cc: what operators see of the kept messages.

// Returns the operators of a kept run and where it was called.
std::string DescribeRun(const KeptMessage& kept);
// Describes what is kept for the storage, or for all storages if it is 0.
v1::DeviceLineage DescribeLineage(State& r, uint64_t storage);
// Leaves nodes, then values, then devices out until the answer fits into a
// message.
void ShrinkAnswer(v1::LineageAnswer* answer);

// --- replay.cc: the messages for the worker that takes the session over.

struct Replay {
  EncodedMessages messages;
  uint64_t count = 0;  // messages that had been executed before
  // Uploads that nobody waits for, with their bytes if they are here.
  std::vector<std::pair<std::shared_ptr<UploadWait>, KeptBytes>> uploads;
};
// Encodes the kept messages. Called by the device's own thread.
absl::StatusOr<Replay> EncodeReplay(State& r)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu, r.answers.mu);

// --- replies.cc: the worker's messages.

void OnMessage(State& r, v1::ControlResponse response);
void OnBulk(State& r, uint64_t transfer_id, uint64_t offset,
            absl::Span<const absl::string_view> pieces);

// --- loss.cc: the end of a device that fails.
//
// A device fails by itself when
// - the stream ends and another one may not succeed (OnClosed()), or none
//   succeeds in time (Open()), or the stream does not end (DropStream());
// - the worker makes no progress (SenderLoop()) or breaks the protocol
//   (OnMessage(), OnBulk(), SendNow());
// - the lease is refused (Open()), or ends under the device (OnLeaseEnded()) or
//   during a migration (Migrate());
// - a message is too large (Append()).

// Returns the error of a device that loses its worker.
absl::Status WorkerLost(const State& r, const absl::Status& cause)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu);
// Returns the cause of a loss where the coordinator ended the lease for
// `reason`.
absl::Status EndedFor(absl::string_view reason);
// Handles the end of the lease of a worker that has the session. Returns OK if
// the device recovers, and otherwise the error to fail with.
absl::Status LoseLease(State& r, absl::string_view reason)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu);
// Fails the device. The first failure counts, and every wait wakes with it.
// `by_itself` is false if another replica, and with it the virtual device,
// failed.
void Fail(State& r, absl::Status failure, bool by_itself = true);
// Like Fail(), within a callback of the stream. The thread that destroys the
// stream waits for the callback to return. If the callback counted as a user of
// the stream, that thread would leak the stream and continue without its
// device.
void FailInCallback(State& r, absl::Status failure, bool by_itself = true);
void OnLeaseEnded(State& r, const std::string& lease_id,
                  const std::string& reason);
// Wakes the threads that wait for the connection.
void WakeAll(ConnectionState& c) ABSL_EXCLUSIVE_LOCKS_REQUIRED(c.mu);
// Runs callbacks of the program. Called without locks.
void Notify(const ReadTable::Callbacks& callbacks);

// --- closing.cc: the session closes a device with the following steps.

// Stops intake and seals everything.
void BeginClose(State& r);
// Waits until everything is executed. Returns false if the deadline passed
// first and the device has not failed.
bool Flush(State& r, const Deadline& deadline);
// Gives up unfinished work and tells the worker. AwaitCancelled() waits for its
// answer.
void Cancel(State& r);
void AwaitCancelled(State& r, const Deadline& deadline);
// Describes the work that an unfinished device loses; empty if there is none.
std::string DescribeLoss(State& r);
// Returns the device's failure if that lost work.
absl::Status FailureThatLostWork(const State& r);
// Ends the stream. Every wait wakes and the sender thread stops.
void Stop(State& r);
// Waits for the end of the sender thread, once lease requests are cancelled,
// and until the deadline for the end of the stream.
void Join(State& r, const Deadline& deadline);
// Destroys the stream. OnLeaseEnded() must not be called any more.
void Disconnect(State& r);

// --- accounts.cc: use, resident models, and profiles.

absl::Status RegisterModel(State& r, uint32_t lane, uint64_t model_id,
                           absl::string_view name,
                           std::vector<StoragePtr> storages);
void ForgetModel(State& r, uint64_t model_id);
// Asks for the use, as Session::AskCost() does. AwaitMeter() waits for the
// answer.
absl::StatusOr<std::shared_ptr<MeterWait>> AskMeter(State& r, uint32_t lane);
absl::StatusOr<v1::MeteredUse> AwaitMeter(State& r, MeterWait* wait);
// Ends a profile that began here, if there is one. When it returns, the
// recorder has the worker's measurements.
absl::Status FinishProfile(State& r);
void AddStatistics(const State& r, Statistics* sum);

}  // namespace djinn::replica

#endif  // CLIENT_LIB_SESSION_DEVICE_REPLICA_REPLICA_H_
