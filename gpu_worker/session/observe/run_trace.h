// Describes a traced run as spans of OpenTelemetry, once it is over:
//
//   run                from its arrival until its end
//     queue            until its turn, with the time at each gate
//     batching         the end of that, while a batching window was open
//     turn             with plan, yields and batch
//       execute        on the device
//         aten::mm     the longest nodes, if the trace asks for nodes
//
// queue, batching and turn add up to run. Only a traced run makes any of this.
#ifndef GPU_WORKER_SESSION_OBSERVE_RUN_TRACE_H_
#define GPU_WORKER_SESSION_OBSERVE_RUN_TRACE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/trace/span.h"
#include "common/trace/trace_context.h"
#include "djinn/v1/runs.pb.h"
#include "gpu_worker/plan/node_timer.h"
#include "gpu_worker/plan/plan.h"

namespace djinn::worker {

class RunTrace {
 public:
  // Most spans of nodes of a run, and most nodes that are timed.
  static constexpr size_t kMaxNodes = 256;
  static constexpr size_t kMaxTimedNodes = 65536;

  // Traces a run that was sent with this context.
  explicit RunTrace(const TraceContext& context) : context_(context) {}

  bool wants_nodes() const { return context_.nodes; }
  // Notes the execution of a run that executed alone, by the worker's clock.
  void NoteExecution(absl::Duration began, absl::Duration ended) {
    executed_ = true;
    began_ = began;
    ended_ = ended;
  }
  // Keeps the longest nodes. `untimed` is why the device cannot time nodes,
  // else empty.
  void NoteNodes(const Plan& plan, const NodeTimer& timer);
  void NoteUntimed(std::string why) { untimed_ = std::move(why); }

  // Attributes that all spans have, and the moment of the record.
  struct Place {
    std::string worker_id;
    std::string tenant;
    // Shortened.
    std::string session_id;
    WallTimes wall;
    absl::Duration now;
  };
  // Adds the spans of the run with this record, which was made at that moment.
  // Ids derive from `seed`, which is random.
  void Export(const v1::RunRecord& record, const Place& place, uint64_t seed,
              SpanSink* sink) const;

 private:
  struct Node {
    std::string name;
    absl::Duration began;
    absl::Duration ended;
    bool failed = false;
  };

  const TraceContext context_;
  bool executed_ = false;
  absl::Duration began_;
  absl::Duration ended_;
  // In order of their beginning.
  std::vector<Node> nodes_;
  size_t omitted_nodes_ = 0;
  std::string untimed_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_OBSERVE_RUN_TRACE_H_
