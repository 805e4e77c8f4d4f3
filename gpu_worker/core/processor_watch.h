// Says when a thread should move to another processor: when it keeps waiting
// for the one it is on.
//
// Linux leaves threads that wake each other on one processor, even while
// another idles: a client and its worker on one machine may then take turns for
// as long as they like instead of working side by side. A thread that would
// rather not wait for the others asks to leave, at most once in a while, less
// and less often where that does not help.
#ifndef GPU_WORKER_CORE_PROCESSOR_WATCH_H_
#define GPU_WORKER_CORE_PROCESSOR_WATCH_H_

#include <memory>
#include <optional>

#include "absl/time/time.h"
#include "common/leave_processor.h"

namespace djinn::worker {

// What the watch needs to know and do; the operating system's, or a test's.
class ProcessorThread {
 public:
  virtual ~ProcessorThread() = default;
  // The one that the calling thread is on.
  virtual int Processor() = 0;
  // How long the calling thread has been ready to run, in all, while others
  // did. Nothing where the system does not tell.
  virtual std::optional<absl::Duration> Waited() = 0;
  // Moves the calling thread off its processor, to any other that it may use,
  // and returns when it has its turn there. Without effect where there is none.
  virtual void Leave() = 0;
};

// Of the thread that calls this, which alone may use it. Waited() reads
// /proc/self/task/TID/schedstat, Leave() narrows the thread's affinity and
// widens it again.
std::unique_ptr<ProcessorThread> OwnProcessorThread();

// One thread.
class ProcessorWatch {
 public:
  // `thread` outlives the watch.
  explicit ProcessorWatch(ProcessorThread* thread) : thread_(thread) {}

  // A turn of the thread's has ended. True: it should leave.
  bool NoteTurn(absl::Duration now);

  // Turns between two looks, on one processor.
  static constexpr int kTurns = 4;
  // More than that, per turn, is worth a move: what it costs to wake a thread
  // on an idle processor every time.
  static constexpr absl::Duration kTolerated = absl::Microseconds(25);
  // Between two moves, as LeavePace has it.
  static constexpr absl::Duration kMinPause = absl::Milliseconds(2);

 private:
  ProcessorThread* const thread_;
  int processor_ = -1;
  int turns_ = 0;                         // on that
  std::optional<absl::Duration> waited_;  // before those
  LeavePace pace_{kMinPause};
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_CORE_PROCESSOR_WATCH_H_
