// Opens and closes this process's session with a Djinn cluster.
//
//   absl::Status status = djinn::Connect(
//       {.coordinator = "10.0.0.1:7000", .token_file = "/run/djinn/token"});
//   if (!status.ok()) return Fail(status);
//   auto y = torch::mm(a.to(djinn::Device()), b.to(djinn::Device())).cpu();
//   status = djinn::Close();  // returns the first failure nobody has seen
//
// A process has one session at a time. It owns the remote tensors: after
// Close(), calls on them throw djinn::Error. A program that does not connect
// gets a session when it first uses the device, from the environment:
// DJINN_COORDINATOR (a gRPC target, "host:port" or "unix:/path"),
// DJINN_TOKEN_FILE (a file with the tenant's token), and the TLS variables that
// TlsOptions names. The library reads DJINN_DEVICE_NAME (default
// "remote_accelerator") and DJINN_DEVICE_COUNT (default 16) once, when it is
// loaded.
//
// All functions are thread-safe. They return an absl::Status whose error has a
// reason (djinn::Error::FromStatus() reads it); calls on tensors throw instead.
// After a fork, a child of a process that had opened a session cannot use it or
// open another one: functions return FailedPrecondition (AFTER_FORK).
#ifndef CLIENT_LIB_INCLUDE_DJINN_CONNECT_H_
#define CLIENT_LIB_INCLUDE_DJINN_CONNECT_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "djinn/api.h"
#include "djinn/statistics.h"
#include "djinn/urgency.h"

namespace djinn {

// TLS for the connections to the coordinator and the workers. The files are
// PEM. While the session is open, a file that changes is read a second time.
struct TlsOptions {
  // The authorities that sign the servers' certificates. Empty means no TLS.
  // Default: DJINN_TLS_CA_FILE.
  std::string ca_file;
  // This program's own certificate with its chain, and its key, if servers ask
  // for one. Defaults: DJINN_TLS_CERTIFICATE_FILE, DJINN_TLS_PRIVATE_KEY_FILE.
  std::string certificate_file;
  std::string private_key_file;
  // The names that the certificates of the coordinator and of the workers must
  // have. Empty means the host of the dialled address, or "localhost" for a
  // Unix socket. Defaults: DJINN_TLS_SERVER_NAME, DJINN_TLS_WORKER_SERVER_NAME.
  std::string server_name;
  std::string worker_server_name;
};

struct ConnectOptions {
  // The coordinator's address. Where several coordinators share a store, the
  // addresses of all, divided by commas, such as "10.0.0.1:7000,10.0.0.2:7000":
  // the session goes on with the one that leads. Empty means DJINN_COORDINATOR.
  std::string coordinator;
  // The tenant's token. Empty means the contents of token_file.
  std::string token;
  // The file with the token. Empty means DJINN_TOKEN_FILE.
  std::string token_file;
  // The name that operators of the cluster see. Empty means the program's name.
  std::string program;
  // TLS settings. Absent means the environment variables that TlsOptions names.
  std::optional<TlsOptions> tls;
  // Allows addresses without TLS that are neither Unix sockets nor this host's
  // loopback. Must be false if TLS is set. Absent means whether DJINN_INSECURE
  // is 1.
  std::optional<bool> insecure;
  // The longest time to open the session, and to get a worker for a device.
  absl::Duration connect_timeout = absl::Seconds(30);
  // The longest wait for a worker without any progress.
  absl::Duration operation_timeout = absl::Minutes(10);
  // The time for which the client tries to reconnect to a worker after a
  // connection broke. A worker that is not reached in this time is lost.
  absl::Duration resume_timeout = absl::Seconds(10);
  // The number of connections to each worker that carry tensors, at least 1.
  int bulk_channels = 2;
  // Allows shared memory with workers that run on this machine as this user and
  // offer it. The client uses gRPC if this is false or DJINN_SHARED_MEMORY is
  // 0.
  bool shared_memory = true;
  // If set, a copy between two virtual devices throws PyTorch's error for
  // operands on several devices; if not, the bytes go from worker to worker.
  // The text, which may be empty, is appended to that error, and to the errors
  // of other operators whose operands are on several devices.
  std::optional<std::string> strict_devices;
  // The policy that places the session's virtual devices: "minimize_latency",
  // "maximize_throughput", "minimize_cost", "load_balance", or another one that
  // the coordinator has. Empty means the policy in the tenant's configuration.
  // The environment variable DJINN_PLACEMENT_POLICY takes precedence over
  // placement_policy and device_placement_policies.
  std::string placement_policy;
  // Maps indices of virtual devices to their own placement policies. If the
  // coordinator lacks a device's policy, calls on that device fail with
  // InvalidArgument (POLICY_UNKNOWN).
  std::map<int, std::string> device_placement_policies;
  // Maps indices of virtual devices to their numbers of workers, 1 to 16. On a
  // device with several workers, repeated runs are cut into stages, one for
  // each worker, if this is faster; consecutive runs then go through the stages
  // side by side (docs/design/multi-worker.md). If the cluster has fewer
  // workers than asked for, the device gets all of them. A device that is not
  // listed has one worker while that worker has room.
  std::map<int, int> device_workers;
  // Decides what follows when a virtual device loses its worker. "replay": the
  // device goes on at another worker, which computes the same values again from
  // the messages that this process keeps, and the process reads values back
  // when it has kept much. "checkpoint": it reads them back from time to time,
  // so that less must be computed again. "off": calls on the device fail. Empty
  // means DJINN_RECOVERY, and if that is not set, "replay".
  std::string recovery;
  // The bytes that each virtual device may keep in memory for that, copies of
  // uploads included.
  uint64_t replay_memory = uint64_t{256} << 20;
  // The bytes of uploads that the session may keep in a temporary file when
  // they exceed a quarter of replay_memory, such as the weights of a model. If
  // they do not suffice either, the loss of the worker may be an error.
  uint64_t replay_disk = uint64_t{64} << 30;
  // The bytes of values that each virtual device may read back and keep in
  // memory. Further ones go to the temporary file. A checkpoint needs room for
  // the values of the one before, too. Without room there is none, and a
  // warning says so.
  uint64_t checkpoint_memory = uint64_t{4} << 30;
  // The least time between two checkpoints, and the largest share of time that
  // they may take. The longer a checkpoint takes, the later the next one comes.
  // One that replay_memory needs comes earlier.
  absl::Duration replay_time = absl::Seconds(10);
  double checkpoint_overhead = 0.02;
  // The urgency of the session's runs, until SetUrgency() changes it.
  Urgency urgency;
  // "local": a virtual device for which the cluster has no worker goes on at a
  // CPU worker that this process starts on its own machine, with as many
  // threads as PyTorch uses here, until the cluster has one again. WhereIs()
  // says so, and a warning is logged. "off": it fails. Empty means
  // DJINN_FALLBACK, and if that is not set, "off".
  std::string fallback;
  // The time that the cluster has to give a worker before the fallback, at most
  // half of connect_timeout.
  absl::Duration fallback_after = absl::Seconds(10);
};

// Opens the session. Blocks for at most connect_timeout. Errors:
//
// - AlreadyExists (SESSION_OPEN): a session is open.
// - FailedPrecondition (NO_SESSION, NO_TOKEN): no coordinator or token was
//   given.
// - FailedPrecondition (SECRET_FILE, TLS_FILES): a file cannot be used.
// - FailedPrecondition (INSECURE_ADDRESS): another host needs TLS.
// - InvalidArgument (MALFORMED_ADDRESS): the coordinator's address is
//   malformed.
// - InvalidArgument (CONTRADICTION): TLS and `insecure` are both set.
// - InvalidArgument (BAD_DEVICE_WORKERS, BAD_FALLBACK, BAD_RECOVERY,
//   BAD_SWITCH, BAD_URGENCY): an option is out of range.
// - InvalidArgument (POLICY_UNKNOWN): the coordinator lacks the policy.
// - PermissionDenied (PRIORITY_NOT_ALLOWED): the tenant may not use the
//   priority.
// - Unauthenticated: the token is wrong.
// - Unavailable (COORDINATOR_UNREACHABLE): no answer within connect_timeout.
DJINN_API absl::Status Connect(const ConnectOptions& options = {});

// Waits until outstanding work is finished, for at most `deadline`, and ends
// the session. Returns the first failure that no call has reported, or
// DeadlineExceeded if work was left. Returns OK if no session is open. A
// session that is still open when the process exits is closed with a deadline
// of 10 s.
DJINN_API absl::Status Close(absl::Duration deadline = absl::Seconds(30));

DJINN_API bool IsConnected();

// Returns whether this process was forked from one that had opened a session.
DJINN_API bool WasForkedFromSession();

// Returns the device for PyTorch calls: "remote_accelerator:index".
DJINN_API c10::Device Device(int index = 0);

// Waits until the device has executed everything that was issued so far.
// Results never depend on this call. Returns the first unreported failure.
DJINN_API absl::Status Synchronize(int index = 0);

// Makes a checkpoint of every device and waits for it, for at most `timeout`.
// After the loss of a worker, earlier calls are then not computed again.
// Errors:
//
// - FailedPrecondition (CHECKPOINTS_OFF): `recovery` is "off".
// - FailedPrecondition (NO_SESSION): no session is open.
// - ResourceExhausted (CHECKPOINT_MEMORY): checkpoint_memory and replay_disk
//   are too small.
// - DeadlineExceeded (CHECKPOINT_PENDING): it is not done yet.
// - The failure of a device.
DJINN_API absl::Status Checkpoint(absl::Duration timeout = absl::Minutes(10));

struct Placement {
  // Begins with "local-" for a worker on this machine that ConnectOptions::
  // fallback started.
  std::string worker_id;
  // The coordinator's human-readable reason for choosing this worker. Begins
  // with "local fallback: " for a worker on this machine.
  std::string reason;
  // The bytes that the worker lets this session hold.
  uint64_t memory_bytes = 0;
  // The transport to the worker: "shared memory" or "gRPC".
  std::string transport;
};

// Returns the worker of the device. If the device has none yet, requests one
// from the coordinator and waits for it.
DJINN_API absl::StatusOr<Placement> WhereIs(int index = 0);

// Returns the counters of the open session, or zeros if none is open.
DJINN_API Statistics GetStatistics();

// Returns the failures of operators on the session's workers, oldest first, at
// most 100.
DJINN_API std::vector<absl::Status> RootErrors();

// Returns how often each operator was executed synchronously, because the shape
// of its result depends on data or is unknown to Djinn. The counts start when
// the process starts.
DJINN_API std::map<std::string, uint64_t> SynchronousCalls();

}  // namespace djinn

#endif  // CLIENT_LIB_INCLUDE_DJINN_CONNECT_H_
