// Starts and ends executor processes. process_launcher.cc implements it, and
// gpu_worker/sandbox/sandbox.h says what an executor process may do.
#ifndef GPU_WORKER_SUPERVISOR_LAUNCHER_H_
#define GPU_WORKER_SUPERVISOR_LAUNCHER_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/transport/shared_memory/shared_region.h"
#include "gpu_worker/supervisor/arbiter.h"

namespace djinn::worker {

// The sockets at which an executor's tenant reaches it.
struct ExecutorListeners {
  Descriptor listener;
  // Target for clients.
  std::string address;
  // Invalid and empty when there is no shared memory.
  Descriptor shared_memory_listener;
  std::string shared_memory_socket;
};

struct LaunchedExecutor {
  pid_t pid = 0;
  // The supervisor's ends of the sockets that both share; they do not block.
  Descriptor socket;
  Descriptor fetching;
  // Has the type SOCK_SEQPACKET.
  Descriptor contents;
  // The reading end of the pipe that is the process' standard output and error;
  // it does not block.
  Descriptor log;
};

// Descriptors of an executor process. Those after the listener may be missing.
inline constexpr int kSupervisionFd = 3;
inline constexpr int kListenerFd = 4;
inline constexpr int kSharedMemoryListenerFd = 5;
inline constexpr int kTurnWordFd = 6;
inline constexpr int kTurnEventFd = 7;
inline constexpr int kFetchingFd = 8;
inline constexpr int kContentsFd = 9;
inline constexpr int kLastFd = kContentsFd;

// How a process ended.
struct ProcessEnd {
  // Human-readable.
  std::string text;
  // The process ended by SIGKILL, which none of its own instructions causes.
  bool killed = false;
};

// Called by one thread at a time.
class Launcher {
 public:
  virtual ~Launcher() = default;

  // Binds sockets for the executor with this number.
  virtual absl::StatusOr<ExecutorListeners> Listen(uint64_t number) = 0;
  // Starts a process in its own process group. The calling thread must live as
  // long as the process.
  virtual absl::StatusOr<LaunchedExecutor> Launch(
      const ExecutorListeners& listeners, const Arbiter::Seat& seat) = 0;
  // Kills the process. Has no effect on one that has ended.
  virtual void Kill(pid_t pid) = 0;
  // Returns how the process ended, or nullopt while it runs. Call it until it
  // returns a value, and not again after that.
  virtual std::optional<ProcessEnd> Reap(pid_t pid) = 0;
  // Returns the number of the process's threads, or nullopt if the system does
  // not say.
  virtual std::optional<uint64_t> ThreadsOf(pid_t pid) = 0;
};

struct ProcessLauncherOptions {
  // The worker's listening address, whose host or path the executors use.
  std::string listen;
  // Address for clients. Its host replaces that of the listening address.
  // Empty: clients use the listening address.
  std::string advertise;
  // Ports that executors may listen at; 0 and 0 for any.
  uint16_t first_port = 0;
  uint16_t last_port = 0;
  // Path of the worker's socket for shared memory; empty for none.
  std::string shared_memory_socket;
  // Whether executors use a GPU. They then inherit the variables that the
  // driver reads.
  bool gpu = false;
};

// Starts the running program again, as `djinn-worker --executor`. The processes
// inherit a few variables of the environment, and only their own descriptors.
std::unique_ptr<Launcher> MakeProcessLauncher(ProcessLauncherOptions options);

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_LAUNCHER_H_
