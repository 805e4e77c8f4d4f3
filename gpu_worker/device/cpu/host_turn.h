// One process of this machine at a time, for measurements that others disturb.
//
// Whoever has the turn has bound an abstract Unix socket: the kernel takes it
// back when the process ends in any way, so that nothing is left behind and
// there is no file to agree on. Others wait at that socket. Such names belong
// to a network namespace: containers that share none take no turns, and nobody
// waits for what it cannot see.
#ifndef GPU_WORKER_DEVICE_CPU_HOST_TURN_H_
#define GPU_WORKER_DEVICE_CPU_HOST_TURN_H_

#include <string>

#include "absl/time/time.h"

namespace djinn::worker {

class HostTurn {
 public:
  // Waits `patience` at most, and then goes on without the turn: it makes
  // measurements better, and nothing depends on it. `name` has 100 characters
  // at most.
  HostTurn(const std::string& name, absl::Duration patience);
  ~HostTurn();
  HostTurn(const HostTurn&) = delete;
  HostTurn& operator=(const HostTurn&) = delete;

  bool taken() const { return listener_ >= 0; }

 private:
  int listener_ = -1;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_HOST_TURN_H_
