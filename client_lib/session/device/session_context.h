// What the devices of one session share. Lives as long as any of them, which
// may be longer than the session itself.
#ifndef CLIENT_LIB_SESSION_DEVICE_SESSION_CONTEXT_H_
#define CLIENT_LIB_SESSION_DEVICE_SESSION_CONTEXT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "client_lib/session/device/root_errors.h"
#include "client_lib/session/model/coordinator_link.h"
#include "client_lib/session/model/worker_connector.h"
#include "client_lib/session/recording/session.h"
#include "common/base/mutex.h"
#include "common/hash/hash.h"

namespace djinn {

struct SessionContext {
  // Graphs remembered as told to the coordinator; when there are more,
  // some are told twice, which does no harm.
  static constexpr size_t kMaxToldGraphs = 1 << 16;

  // True once for each graph's key.
  bool TellsFirst(const ContentHash& key_hash) {
    MutexLock lock(&mu);
    if (told_graphs.size() >= kMaxToldGraphs) told_graphs.clear();
    return told_graphs.insert(key_hash).second;
  }

  // The coordinator is to hear of every graph that is used from now on.
  void TellAgain() {
    MutexLock lock(&mu);
    told_graphs.clear();
    telling.fetch_add(1, std::memory_order_relaxed);
  }

  // Set before the first device exists; not changed afterwards.
  SessionOptions options;
  std::string session_id;
  std::string tenant;
  std::unique_ptr<CoordinatorLink> link;
  std::unique_ptr<WorkerConnector> connector;

  RootErrors root_errors;
  // Grows with every coordinator to be told; a graph remembers the last.
  std::atomic<uint64_t> telling{1};
  // Of what its devices repeat, so many have begun.
  std::atomic<uint64_t> rounds{0};

  Mutex mu;
  absl::flat_hash_set<ContentHash> told_graphs ABSL_GUARDED_BY(mu);
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_SESSION_CONTEXT_H_
