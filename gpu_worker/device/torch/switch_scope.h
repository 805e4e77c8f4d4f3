// Executes PyTorch's operators under a run's switches.
//
// Most switches are the process's, and a worker's threads may execute runs of
// several devices at once. So a call under other switches than the process's
// own is executed while no other call is. Whether numbers are flushed is each
// thread's: the scope sets it for the calling thread and the compute threads
// that serve it.
#ifndef GPU_WORKER_DEVICE_TORCH_SWITCH_SCOPE_H_
#define GPU_WORKER_DEVICE_TORCH_SWITCH_SCOPE_H_

#include <optional>

#include "common/srg/switches.h"

namespace djinn::worker {

// Has the calling thread's operators run under the switches, and no other
// thread's, while this lives. With PyTorch's defaults the process's switches
// stay as they are. Waits for the calls of other threads. Every call of an
// operator whose bits matter is inside a scope; scopes do not nest. The
// constructor may throw c10::Error.
class SwitchScope {
 public:
  explicit SwitchScope(const srg::Switches& switches);
  ~SwitchScope();
  SwitchScope(const SwitchScope&) = delete;
  SwitchScope& operator=(const SwitchScope&) = delete;

 private:
  // A share of the process's switches, or all of them.
  class Turn {
   public:
    explicit Turn(bool alone);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    bool alone() const { return alone_; }

   private:
    const bool alone_;
  };

  const Turn turn_;
  // The process's switches before, if this changes them.
  std::optional<srg::Switches> before_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_SWITCH_SCOPE_H_
