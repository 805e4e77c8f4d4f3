// Opening and closing this process' session with a Djinn cluster.
//
// A program that opens none gets one at the first use of the device, from the
// environment: DJINN_COORDINATOR (a gRPC target, "host:port" or "unix:/path")
// and DJINN_TOKEN_FILE (a file that holds the tenant's token), and TLS as
// TlsOptions says.
// DJINN_DEVICE_NAME (default "remote_accelerator") and DJINN_DEVICE_COUNT
// (default 16) are read once, when the library is loaded.
//
// One session per process at a time; thread-safe.
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

// Encryption of the connections to the coordinator and the workers, with PEM
// files; those that change are read again while the session is open.
struct TlsOptions {
  // The authorities that may have signed the servers' certificates. Empty: no
  // TLS. DJINN_TLS_CA_FILE.
  std::string ca_file;
  // This program's own certificate with its chain, where servers ask for one.
  // DJINN_TLS_CERTIFICATE_FILE, DJINN_TLS_PRIVATE_KEY_FILE.
  std::string certificate_file;
  std::string private_key_file;
  // Whom the coordinator's and the workers' certificates must name. Empty: the
  // host in the address that is dialled, "localhost" for a Unix socket.
  // DJINN_TLS_SERVER_NAME, DJINN_TLS_WORKER_SERVER_NAME.
  std::string server_name;
  std::string worker_server_name;
};

struct ConnectOptions {
  // Where the coordinator listens. Empty: DJINN_COORDINATOR.
  std::string coordinator;
  // The tenant's token. Empty: read from token_file.
  std::string token;
  // Empty: DJINN_TOKEN_FILE.
  std::string token_file;
  // Shown to operators. Empty: the program's name.
  std::string program;
  // Absent: from the environment's variables that TlsOptions names.
  std::optional<TlsOptions> tls;
  // Allows addresses other than Unix sockets and this host's loopback without
  // TLS. Refused together with TLS.
  bool insecure = false;
  // Bound on opening the session and on getting a worker.
  absl::Duration connect_timeout = absl::Seconds(30);
  // Bound on every wait for a worker.
  absl::Duration operation_timeout = absl::Minutes(10);
  // How long a worker whose connection broke is tried to be reached again
  // before its tensors are lost.
  absl::Duration resume_timeout = absl::Seconds(10);
  // Connections to each worker for tensors, from 1.
  int bulk_channels = 2;
  // Whether workers of this machine and user that offer it are reached over
  // shared memory. False, or DJINN_SHARED_MEMORY=0: over gRPC, like all others.
  bool shared_memory = true;
  // Present: a copy from one virtual device to another raises what PyTorch says
  // of operands on several devices, instead of moving bytes between workers.
  // The text, if any, follows that message and those of operators whose
  // operands are on several devices.
  std::optional<std::string> strict_devices;
  // How the session's virtual devices are placed: "minimize_latency",
  // "maximize_throughput", "minimize_cost", "load_balance", or another policy
  // that the coordinator has. Empty: as the tenant's configuration says.
  // DJINN_PLACEMENT_POLICY, an operator's wish, counts more than this and the
  // next.
  std::string placement_policy;
  // Of single virtual devices, by index. One that the coordinator does not have
  // is InvalidArgument (POLICY_UNKNOWN), the device's failure.
  std::map<int, std::string> device_placement_policies;
  // The number of workers of single virtual devices, by index: 1 to 16. Graphs
  // that such a device repeats are cut into stages, one for each worker, if
  // that pays (docs/design/multi-worker.md). A cluster with fewer workers gives
  // those. Other devices have one worker as long as it has room.
  std::map<int, int> device_workers;
  // Of the session's runs, until SetUrgency() says otherwise.
  Urgency urgency;
};

// Opens the session. FailedPrecondition when no coordinator or token is given
// or TLS cannot be agreed on, AlreadyExists when a session is open,
// PermissionDenied (PRIORITY_NOT_ALLOWED) and InvalidArgument (BAD_URGENCY) as
// SetUrgency() says, InvalidArgument (BAD_DEVICE_WORKERS), InvalidArgument
// (POLICY_UNKNOWN) for a policy that the coordinator does not have,
// Unauthenticated for a wrong token, Unavailable when nobody answers in time.
DJINN_API absl::Status Connect(const ConnectOptions& options = {});

// Finishes outstanding work and ends the session; tensors of it raise from then
// on. Returns the first failure that no call has reported, DeadlineExceeded
// when work was left. OK when no session is open. Called at exit for a session
// that is still open.
DJINN_API absl::Status Close(absl::Duration deadline = absl::Seconds(30));

DJINN_API bool IsConnected();

// Whether this process was forked from one that had opened a session, and so
// can open none: calls return FailedPrecondition (AFTER_FORK).
DJINN_API bool WasForkedFromSession();

// The device to hand to PyTorch: "remote_accelerator:index".
DJINN_API c10::Device Device(int index = 0);

// Waits until everything issued for the device so far has been carried out.
// Never needed for correctness. Returns the first unreported failure.
DJINN_API absl::Status Synchronize(int index = 0);

struct Placement {
  std::string worker_id;
  // Why the coordinator chose this worker.
  std::string reason;
  // What the worker lets this session hold, in bytes.
  uint64_t memory_bytes = 0;
  // How it is reached: "shared memory" on the same machine, or "gRPC".
  std::string transport;
};

// Where the device runs; asks for a worker when it has none yet.
DJINN_API absl::StatusOr<Placement> WhereIs(int index = 0);

// Counters of the open session; zeros when none is open.
DJINN_API Statistics GetStatistics();

// Failures of operators on the session's workers, oldest first, at most 100.
DJINN_API std::vector<absl::Status> RootErrors();

// How often each operator had to be run at once and waited for, because its
// result's shape depends on data or is unknown to Djinn.
DJINN_API std::map<std::string, uint64_t> SynchronousCalls();

}  // namespace djinn

#endif  // CLIENT_LIB_INCLUDE_DJINN_CONNECT_H_
