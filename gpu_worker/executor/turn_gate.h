// Gives a process the device for a turn, where several processes share it.
//
// The executor thread enters before it takes a turn and leaves after it, or
// yields if it has another turn to take. A process that is alone keeps the
// device between turns, so entering costs it one write to memory.
#ifndef GPU_WORKER_EXECUTOR_TURN_GATE_H_
#define GPU_WORKER_EXECUTOR_TURN_GATE_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace djinn::worker {

class TurnGate {
 public:
  virtual ~TurnGate() = default;

  // Enters if no other process has the device. Neither this nor Yield() nor
  // Leave() waits.
  virtual bool TryEnter() = 0;
  // Waits for the device.
  virtual void Enter() = 0;
  // Leaves, and asks for the next turn at the same time, so that the device is
  // divided among all that have work. Call Enter() or Leave() next.
  virtual void Yield() = 0;
  virtual void Leave() = 0;
  // Has Enter() return at once from now on. Any thread may call it.
  virtual void Cancel() = 0;
  // Notes the leases whose messages the process executes from now on, for the
  // case that it ends meanwhile. None: it executes nothing.
  virtual void NoteServed(absl::Span<const absl::string_view> lease_ids) = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_EXECUTOR_TURN_GATE_H_
