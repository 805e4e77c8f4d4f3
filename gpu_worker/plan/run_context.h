// The environment of a session's runs.
#ifndef GPU_WORKER_PLAN_RUN_CONTEXT_H_
#define GPU_WORKER_PLAN_RUN_CONTEXT_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "gpu_worker/plan/node_edge.h"
#include "gpu_worker/plan/node_timer.h"
#include "gpu_worker/store/device_memory.h"
#include "gpu_worker/store/root_errors.h"
#include "gpu_worker/store/storage_table.h"

namespace djinn::worker {

// Counters over all sessions of a worker. Thread-safe.
struct ExecutionCounters {
  std::atomic<uint64_t> runs{0};
  std::atomic<uint64_t> nodes{0};
  std::atomic<uint64_t> failed_nodes{0};
  std::atomic<uint64_t> skipped_nodes{0};
  // Nodes called once more because they had lacked memory.
  std::atomic<uint64_t> retried_nodes{0};
  // Nodes that their clients declared to be rematerializations.
  std::atomic<uint64_t> recomputed_nodes{0};
  // Results that shared an operand's memory and were copied.
  std::atomic<uint64_t> alias_copies{0};
  // Shared buffers that were copied before a write.
  std::atomic<uint64_t> write_copies{0};
};

// All that it points to outlives the run.
struct RunContext {
  uint64_t sequence = 0;
  std::string tenant;
  StorageTable* storages = nullptr;
  SessionQuota* quota = nullptr;
  RootErrors* errors = nullptr;
  DeviceMemory* memory = nullptr;
  ExecutionCounters* counters = nullptr;
  // Becomes true when the session ends: the run then skips its remaining nodes.
  const std::atomic<bool>* cancelled = nullptr;
  // Null if the run never yields.
  NodeEdge* edge = nullptr;
  // Null unless the run is profiled.
  NodeTimer* timer = nullptr;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_PLAN_RUN_CONTEXT_H_
