// Captures the graphs of a virtual device and executes them. It uses the only
// worker while one suffices, and afterwards divides the rows among several
// workers.
//
// Thread-safe.
#ifndef CLIENT_LIB_SESSION_MULTI_WORKER_GRAPH_ROUTER_H_
#define CLIENT_LIB_SESSION_MULTI_WORKER_GRAPH_ROUTER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client_lib/session/device/outgoing/session_context.h"
#include "client_lib/session/multi_worker/multi_worker_device.h"
#include "client_lib/session/multi_worker/worker_set.h"
#include "client_lib/session/recording/recording.h"
#include "client_lib/session/recording/virtual_device.h"

namespace djinn {

class GraphRouter final : public DeviceGraphs {
 public:
  // The arguments must outlive this object.
  GraphRouter(const SessionContext* context, WorkerSet* workers,
              GraphCaptures* captures, MultiWorkerDevice* several)
      : context_(context),
        workers_(workers),
        captures_(captures),
        several_(several) {}

  absl::Status Start(uint32_t lane) override;
  absl::StatusOr<std::shared_ptr<const CapturedGraph>> Finish(
      uint32_t lane, absl::Span<RemoteStorage* const> given,
      absl::Span<RemoteStorage* const> outputs, size_t awaited) override;
  absl::Status Refusal(uint32_t lane) override;
  void Drop(uint32_t lane) override;
  absl::StatusOr<std::vector<StoragePtr>> Replay(
      uint32_t lane, const std::shared_ptr<const CapturedGraph>& captured_graph,
      absl::Span<RemoteStorage* const> given,
      std::shared_ptr<const CapturedNumbers> numbers) override;

 private:
  const SessionContext* const context_;
  WorkerSet* const workers_;
  GraphCaptures* const captures_;
  MultiWorkerDevice* const several_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MULTI_WORKER_GRAPH_ROUTER_H_
