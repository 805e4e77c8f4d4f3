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

// Counted over all sessions of a worker. Thread-safe.
struct ExecutionCounters {
  std::atomic<uint64_t> runs{0};
  std::atomic<uint64_t> nodes{0};
  std::atomic<uint64_t> failed_nodes{0};
  std::atomic<uint64_t> skipped_nodes{0};
  // By the word of their clients.
  std::atomic<uint64_t> recomputed_nodes{0};
  // Results that shared an operand's memory and were copied.
  std::atomic<uint64_t> alias_copies{0};
  // Shared buffers copied because somebody was about to write them.
  std::atomic<uint64_t> write_copies{0};
};

// Everything outlives the run.
struct RunContext {
  uint64_t sequence = 0;
  std::string tenant;
  StorageTable* storages = nullptr;
  SessionQuota* quota = nullptr;
  RootErrors* errors = nullptr;
  DeviceMemory* memory = nullptr;
  ExecutionCounters* counters = nullptr;
  // When it turns true the remaining nodes are left out: the session is going.
  const std::atomic<bool>* cancelled = nullptr;
  // Null: the run never yields.
  NodeEdge* edge = nullptr;
  // Not null: the run is profiled.
  NodeTimer* timer = nullptr;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_PLAN_RUN_CONTEXT_H_
