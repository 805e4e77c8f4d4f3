// Keeps the contents of executors outside of their processes: on disk, so that
// a worker that restarts still has them, and in memory, so that tenants that
// share contents have them from each other.
//
// Each executor has a socket, on which it sends the messages that
// supervision.proto describes. The service trusts no executor. It copies the
// bytes that an executor sends, hashes them itself, and keeps them for the
// executor's own tenant. It lends an executor read-only memory of the
// supervisor (lent_memory.h). An executor gets its tenant's own contents. As in
// a worker without executors, it also gets another tenant's, if both share
// contents and its client proves that it has the bytes
// (../../store/content_proofs.h). No other answer shows whether the supervisor
// has the bytes: the cost of a proof, and the earliest time of its answer,
// depend on the size alone.
//
// Memory has two bounds. An executor may have been lent, be looking for and be
// sending Options::executor_bytes in all. This is the memory that it was given,
// where an honest executor counts them. Contents that no executor was lent are
// kept up to Options::kept_bytes; beyond that, the tenant with the most of them
// gives up the least valuable one (../../store/content_cache.h).
// Options::descriptors bounds the numbers of both.
//
// Each executor has its own thread, so that it never waits for another's bytes.
// Messages that come faster than an honest executor's wait in the socket. If an
// executor sends a message that no executor of this program sends, or cannot be
// answered, the service calls Options::refuse and stops serving it.
// Thread-safe.
#ifndef GPU_WORKER_SUPERVISOR_CONTENTS_CONTENT_SERVICE_H_
#define GPU_WORKER_SUPERVISOR_CONTENTS_CONTENT_SERVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "common/metrics/exposition.h"
#include "common/transport/shared_memory/shared_region.h"
#include "djinn/v1/worker_registry.pb.h"
#include "gpu_worker/store/content_cache.h"
#include "gpu_worker/store/content_proofs.h"
#include "gpu_worker/store/disk_store.h"
#include "gpu_worker/supervisor/contents/lent_memory.h"

namespace djinn::worker {

class ContentService {
 public:
  struct Options {
    std::string worker_id;
    uint64_t executor_bytes = 0;
    // 0: tenants share no contents.
    uint64_t kept_bytes = 0;
    size_t executors = 4;
    // Descriptors that contents may take, one each. Kept contents may take half
    // of them, and each executor's loans an equal part of the other half.
    size_t descriptors = 32768;
    // Most messages of one executor in a burst; full pieces of contents do not
    // count. More wait in the socket.
    size_t burst = 20'000;
    // Time for an answer to a challenge, in addition to that of its bytes.
    absl::Duration answer_timeout = absl::Seconds(30);
    // Returns the tenant of the executor; empty for the spare one. This
    // function and the next two are called by any thread, without locks.
    std::function<std::string(uint64_t executor)> tenant_of;
    // Ends the executor, for this reason.
    std::function<void(uint64_t executor, const absl::Status& why)> refuse;
    // Called when Describe() changed.
    std::function<void()> changed;
  };
  // Most looks of one executor at a time.
  static constexpr size_t kMaxLooks = 64;

  // `disk` may be null. The other pointers must outlive this and all results of
  // Serve().
  ContentService(Options options, std::unique_ptr<DiskStore> disk, Clock* clock,
                 RandomSource* random);
  ~ContentService();

  // Serves the executor at the other end of the socket, which does not block,
  // until the result is destroyed. The destruction waits for a thread, but not
  // for the release of loans; no lock may be held then.
  std::shared_ptr<void> Serve(uint64_t executor, Descriptor socket);

  // Sets which tenants share contents with one another.
  void SetSharing(const std::vector<std::string>& tenants);

  // Adds the use of the disk, and at most `most` contents that the service
  // keeps and the state does not name already.
  void Describe(size_t most, v1::WorkerState* state) const;
  // Adds the metrics that only the service counts.
  void Collect(Exposition* out) const;
  // Adds the look-ups of the disk, among those that executors count of their
  // caches.
  void CollectCache(Exposition* out) const;

 private:
  class Connection;

  // Evicts contents beyond kept_bytes.
  void Trim();
  // Releases the buffers on a thread of the service, because freeing much
  // memory takes long.
  void TakeBack(std::vector<std::shared_ptr<Buffer>> buffers);
  void RunReaper();

  const Options options_;
  // Most loans and looks of one executor.
  const size_t max_loans_;
  Clock* const clock_;
  LentMemory memory_;
  ContentCache cache_;
  ContentProofs proofs_;
  const std::unique_ptr<DiskStore> disk_;
  Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  // Loans of connections that ended.
  std::vector<std::shared_ptr<Buffer>> taken_back_ ABSL_GUARDED_BY(mu_);
  std::thread reaper_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_CONTENTS_CONTENT_SERVICE_H_
