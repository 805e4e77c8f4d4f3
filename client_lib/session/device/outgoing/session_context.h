// Holds what the devices of one session share. It lives as long as any of them,
// which may be longer than the session itself.
#ifndef CLIENT_LIB_SESSION_DEVICE_OUTGOING_SESSION_CONTEXT_H_
#define CLIENT_LIB_SESSION_DEVICE_OUTGOING_SESSION_CONTEXT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "client_lib/session/device/outgoing/root_errors.h"
#include "client_lib/session/device/outgoing/source_losses.h"
#include "client_lib/session/model/links.h"
#include "client_lib/session/recording/session.h"
#include "client_lib/session/transfer/spill_file.h"
#include "common/base/mutex.h"
#include "common/hash/hash.h"

namespace djinn {

struct SessionContext {
  // Limit on graphs remembered as sent to the coordinator. Beyond it some are
  // sent twice, which does no harm.
  static constexpr size_t kMaxSentGraphs = 1 << 16;

  // Returns true if the caller must send the graph with this key to the
  // coordinator; once for each key.
  bool ClaimSending(const ContentHash& key_hash) {
    MutexLock lock(&mu);
    if (sent_graphs.size() >= kMaxSentGraphs) sent_graphs.clear();
    return sent_graphs.insert(key_hash).second;
  }

  // Makes devices send every graph that is used from now on to the coordinator.
  void SendGraphsAgain() {
    MutexLock lock(&mu);
    sent_graphs.clear();
    graph_epoch.fetch_add(1, std::memory_order_relaxed);
  }

  // Set before the first device exists; constant afterwards.
  SessionOptions options;
  std::string session_id;
  std::string tenant;
  std::unique_ptr<CoordinatorLink> link;
  std::unique_ptr<WorkerConnector> connector;
  std::shared_ptr<SpillFile> spill;

  RootErrors root_errors;
  SourceLosses source_losses;
  // Grows when the coordinator needs all graphs again. Each graph remembers the
  // epoch in which it was sent last.
  std::atomic<uint64_t> graph_epoch{1};
  // Number of rounds begun so far (multi_worker/stage_plans.h).
  std::atomic<uint64_t> rounds{0};

  Mutex mu;
  absl::flat_hash_set<ContentHash> sent_graphs ABSL_GUARDED_BY(mu);
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_OUTGOING_SESSION_CONTEXT_H_
