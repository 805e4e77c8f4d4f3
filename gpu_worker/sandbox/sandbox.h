// Takes from this process all that computing does not need.
//
// An executor runs kernels on operands that its tenant chooses. A kernel that
// trusts them can be made to write anywhere in its process, so the process is
// treated as the tenant's own. A seccomp filter, which all threads share and
// which nothing can take off again, leaves memory, threads, clocks, and the
// descriptors that are open already. The process can accept on an inherited
// listener, but cannot open, connect, fork, execute, trace, or signal.
//
// A refused call fails with EPERM. The process itself counts and logs it, so a
// tenant that has taken the process over can prevent that, but not the refusal.
// A library must have read its files before; /dev/urandom alone can be opened.
// A process that uses a GPU is given a broker (file_broker.h), which opens a
// few others for it.
#ifndef GPU_WORKER_SANDBOX_SANDBOX_H_
#define GPU_WORKER_SANDBOX_SANDBOX_H_

#include <cstdint>

#include "absl/status/status.h"
#include "gpu_worker/sandbox/file_broker.h"

namespace djinn::worker {

struct SandboxOptions {
  // Address space that the process may add to what it has. 0: no limit.
  uint64_t added_address_space = 0;
  // Private memory that it may add and write. 0: no limit. A GPU's driver
  // reserves far more addresses than it uses, which this does not count.
  uint64_t added_data = 0;
  // Opens files for the process, and outlives it. A file that it refuses gives
  // EACCES. Null: none can be opened.
  const FileBroker* files = nullptr;
  // Whether the process sends commands to NVIDIA's driver
  // (nvidia_profile.h).
  bool nvidia = false;
};

// Closes all descriptors above `last_fd`, has no core dumped, gives up an
// administrator's rights except those to other users' files, forbids other
// processes of this user to trace this one or to read its memory, has the
// kernel choose this process first when memory is short, and has it killed when
// the thread that started it ends. Call it first in main(). Returns Internal
// when the kernel refuses.
absl::Status PrepareSandbox(int last_fd);

// Enters the sandbox for ever, with all threads. Call it once, when all is
// loaded and before the process serves a client. Returns Unimplemented
// (NO_SANDBOX) when the kernel or the architecture has no filter.
absl::Status EnterSandbox(const SandboxOptions& options);

// Returns how many calls the sandbox has refused.
uint64_t RefusedSystemCalls();

}  // namespace djinn::worker

#endif  // GPU_WORKER_SANDBOX_SANDBOX_H_
