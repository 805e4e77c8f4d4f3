#include "gpu_worker/device/torch/switch_scope.h"

#include <atomic>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/torch/process_switches.h"

namespace djinn::worker {
namespace {

// Lets many threads share the switches, or one have them alone. Sharing is two
// additions while no thread is alone. Never destroyed.
class Gate {
 public:
  void Share() {
    if (sharers_.fetch_add(1) >= 0) return;
    MutexLock lock(&mu_);
    sharers_.fetch_sub(1);
    changed_.SignalAll();
    while (alone_) changed_.Wait(&mu_);
    sharers_.fetch_add(1);
  }
  void Unshare() {
    if (sharers_.fetch_sub(1) > 0) return;
    MutexLock lock(&mu_);
    changed_.SignalAll();
  }
  void EnterAlone() {
    MutexLock lock(&mu_);
    while (alone_) changed_.Wait(&mu_);
    alone_ = true;
    sharers_.fetch_sub(kAlone);
    while (sharers_.load() != -kAlone) changed_.Wait(&mu_);
  }
  void LeaveAlone() {
    MutexLock lock(&mu_);
    alone_ = false;
    sharers_.fetch_add(kAlone);
    changed_.SignalAll();
  }

 private:
  static constexpr int64_t kAlone = int64_t{1} << 40;

  // The number of sharers, less kAlone while a thread is alone, or waits to be.
  std::atomic<int64_t> sharers_{0};
  Mutex mu_;
  CondVar changed_;
  bool alone_ ABSL_GUARDED_BY(mu_) = false;
};

Gate& TheGate() {
  static auto* const gate = new Gate;
  return *gate;
}

}  // namespace

SwitchScope::Turn::Turn(bool alone) : alone_(alone) {
  if (alone_) {
    TheGate().EnterAlone();
  } else {
    TheGate().Share();
  }
}

SwitchScope::Turn::~Turn() {
  if (alone_) {
    TheGate().LeaveAlone();
  } else {
    TheGate().Unshare();
  }
}

SwitchScope::SwitchScope(const srg::Switches& switches)
    : turn_(switches != srg::Switches()) {
  if (!turn_.alone()) return;
  before_ = ReadSwitches();
  try {
    WriteSwitches(switches);
  } catch (...) {
    WriteSwitches(*before_);
    throw;
  }
}

SwitchScope::~SwitchScope() {
  if (before_.has_value()) WriteSwitches(*before_);
}

}  // namespace djinn::worker
