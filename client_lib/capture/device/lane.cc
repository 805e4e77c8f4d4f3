#include "client_lib/capture/device/lane.h"

#include <c10/core/AutogradState.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>
#include <memory>

namespace djinn::capture {
namespace {

// A kind that c10 does not define. c10 only compares kinds. It copies every
// entry of a calling thread's state to the autograd threads that work for this
// thread.
constexpr auto kLaneKind = static_cast<c10::DebugInfoKind>(0xd1);

class LaneInfo : public c10::DebugInfoBase {
 public:
  explicit LaneInfo(uint32_t lane) : lane(lane) {}
  const uint32_t lane;
  // The autograd threads read this as well.
  std::atomic<v1::Phase> phase = v1::PHASE_UNSPECIFIED;
};

std::atomic<uint32_t> next_lane{1};

LaneInfo* CurrentLaneInfo() {
  if (c10::DebugInfoBase* info = c10::ThreadLocalDebugInfo::get(kLaneKind)) {
    return static_cast<LaneInfo*>(info);
  }
  // The thread keeps its own reference, because scopes of the debug info, such
  // as a profiler's, may drop the entry when they end.
  thread_local std::shared_ptr<LaneInfo> own = std::make_shared<LaneInfo>(
      next_lane.fetch_add(1, std::memory_order_relaxed));
  c10::ThreadLocalDebugInfo::_push(kLaneKind, own);
  return own.get();
}

// Makes backward passes of this thread run in this thread, as those of CPU
// tensors do. For a device, PyTorch would hand them to another thread and wait,
// which takes longer than capturing the calls here. This function runs only
// once, so that the program can undo the setting. It does not run in inference
// mode, whose end would undo the setting.
void KeepBackwardHere() {
  thread_local bool done = false;
  if (done || c10::InferenceMode::is_enabled()) return;
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  done = true;
}

}  // namespace

uint32_t CurrentLane() {
  KeepBackwardHere();
  return CurrentLaneInfo()->lane;
}

v1::Phase LanePhase() {
  return CurrentLaneInfo()->phase.load(std::memory_order_relaxed);
}

v1::Phase ExchangeLanePhase(v1::Phase phase) {
  return CurrentLaneInfo()->phase.exchange(phase, std::memory_order_relaxed);
}

}  // namespace djinn::capture
