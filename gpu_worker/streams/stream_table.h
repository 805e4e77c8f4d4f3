// Holds clients' streams and the sessions that they serve: admits a stream by
// the lease that its Hello presents, lets another stream resume a session whose
// stream broke, and ends both.
//
// A stream that breaks without a reason leaves its session behind. The session
// executes what it received and waits for a Hello with `resume`, for
// resume_timeout at most, or for a second at most if the transport saw the
// client's process end (CLIENT_GONE). After a second it is lost: it goes on
// waiting, but another session that needs its memory ends it (EndLost), and so
// does one of its tenant that needs its part of the tenant's limits. Any other
// end of its stream, and the end of its lease, end the session: its
// storages are freed at once.
//
// The thread that calls CloseAndReap() closes and destroys streams; their own
// callbacks never do. One lock guards streams and sessions together, because
// admission and resumption decide about both. It comes before the locks of the
// lease keeper and the turn queue. Thread-safe.
#ifndef GPU_WORKER_STREAMS_STREAM_TABLE_H_
#define GPU_WORKER_STREAMS_STREAM_TABLE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/metrics/duration_histogram.h"
#include "common/metrics/exposition.h"
#include "common/metrics/labelled_counter.h"
#include "common/transport/stream.h"
#include "djinn/v1/placement.pb.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/executor/turn_queue.h"
#include "gpu_worker/leases/lease_keeper.h"
#include "gpu_worker/session/base/session_environment.h"
#include "gpu_worker/session/observe/session_metrics.h"
#include "gpu_worker/session/session.h"
#include "gpu_worker/store/ledger.h"
#include "gpu_worker/streams/session_factory.h"

namespace djinn::v1 {
class ClientHello;
class ControlRequest;
class WorkerHello;
}  // namespace djinn::v1

namespace djinn::worker {

class StreamTable {
 public:
  struct Options {
    std::string worker_id;
    uint64_t incarnation = 0;
    size_t max_connections = 16384;
    // How long a new connection may take to send its Hello; then it is closed.
    absl::Duration hello_timeout = absl::Seconds(10);
    // How long a session is kept after its stream broke.
    absl::Duration resume_timeout = absl::Seconds(15);
    // See WorkerHello.
    v1::DeviceSpeed speed;
    std::string numerics;
    bool executor_per_tenant = false;
  };
  // A session as callers see it.
  struct Entry {
    std::shared_ptr<Session> session;
    // Its key in the turn queue, the same over all streams of the session.
    uint64_t queue_key = 0;
    bool attached = false;
    bool lost = false;
  };
  // Sessions by lease id.
  using SessionMap = absl::flat_hash_map<std::string, Entry>;

  // All pointers must outlive the table. It calls `changed`, without locks,
  // when the coordinator should hear of a session soon.
  StreamTable(Options options, const SessionEnvironment* environment,
              Device* device, LeaseKeeper* leases, TurnQueue* queue,
              std::function<void()> changed);
  ~StreamTable();

  // Serves a client connection, which is not started yet.
  void Attach(std::unique_ptr<WorkerStream> stream, StreamWay way);
  // Applies a renewed lease to its session. Returns the session's queue key if
  // it waited for credit and has some now, otherwise 0.
  uint64_t ApplyLease(const std::string& lease_id);
  // Ends the session of a lease that ended, if there is one.
  void EndLease(const std::string& lease_id, const absl::Status& why);

  // Ends sessions whose client did not resume, and closes connections that sent
  // no Hello. Checks the deadlines of the other sessions. Returns whether a
  // session ended or became lost.
  bool CheckDeadlines();
  // Ends the lost session whose client has been away for the longest time,
  // except one that is executing a message, and frees its storages. Ends none
  // and returns false when all of them together cannot free `missing` bytes.
  // Call it without locks; a thread that executes a session may call it.
  bool EndLost(uint64_t missing);
  // Like EndLost(), among the tenant's sessions, for the tenant's limits.
  bool EndLostOf(const std::string& tenant, uint64_t missing);
  // Closes and destroys streams. Returns false when there was nothing to do.
  bool CloseAndReap();
  // Waits until CloseAndReap() has something to do, for `timeout` at most.
  // Returns false after Shutdown() when all streams are destroyed.
  bool AwaitWork(absl::Duration timeout);
  // Ends all sessions and refuses later connections; CloseAndReap() closes the
  // streams. Call it once.
  void Shutdown(const absl::Status& why);
  bool draining() const;

  std::optional<Entry> Find(const std::string& lease_id) const;
  // Returns a copy of the table.
  SessionMap Sessions() const;
  // Returns whether messages of the session wait or are being executed.
  bool Busy(const std::string& session_id) const;
  // Returns how many sessions lost their stream and wait for another one.
  size_t detached_sessions() const;

  void Collect(Exposition* out) const;

 private:
  class Connection;

  // The session of one lease.
  struct Held {
    std::shared_ptr<Session> session;
    uint64_t queue_key = 0;
    // The connection that serves it; 0 while there is none.
    uint64_t connection = 0;
    absl::Duration detached_since;
    // How long it waits for another one.
    absl::Duration resume_timeout;
    // True once it waited for so long that its memory is at others' disposal.
    bool lost = false;
  };

  // Callbacks of connections and sessions.
  void OnHello(uint64_t key, v1::ControlRequest message);
  void OnClosed(uint64_t key, const absl::Status& status);
  void RequestClose(uint64_t key, absl::Status status);
  // Ends the lease's session, if it is still the one with this queue key.
  void EndSession(const std::string& lease_id, uint64_t queue_key,
                  const absl::Status& status);

  // Makes the connection serve the session that the Hello names, whether that
  // is a new one or exists. Returns the errors of Execution.Control.
  absl::Status Admit(uint64_t key, const v1::ClientHello& hello);
  absl::StatusOr<std::shared_ptr<Session>> FindOrMakeSession(
      uint64_t key, const v1::ClientHello& hello, const Lease& lease)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the answer to a Hello that was accepted.
  v1::WorkerHello Answer(const Session& session) const;
  // When there are too many connections, requests the close of the one that has
  // been silent for the longest time. Returns false when there is none.
  bool MakeRoomLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status TooManyConnections() const;
  // Has CloseAndReap() close the connection. Only the first status counts.
  void RequestCloseLocked(uint64_t key, absl::Status status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends one of the lost sessions that the caller may end. They free at most
  // what they hold, and `besides`.
  bool EndOldestLost(uint64_t missing, uint64_t besides,
                     absl::FunctionRef<bool(const Session&)> may_end);
  // Takes the session out of the table and stops it. The caller releases it
  // without the lock.
  std::shared_ptr<Session> TakeSessionLocked(const std::string& lease_id,
                                             const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  Clock& clock_;
  Device& device_;
  const Ledger& ledger_;
  LeaseKeeper& leases_;
  TurnQueue& queue_;
  SessionMetrics& session_metrics_;
  const std::function<void()> changed_;
  SessionFactory factory_;
  LabelledCounter recoveries_{
      "djinn_recoveries_total",
      "Losses and recoveries of peers, leases, sessions and virtual devices, "
      "by kind and result.",
      {"kind", "result"}};
  // Time from a stream's break until another one resumed its session.
  DurationHistogram resumed_streams_;

  mutable Mutex mu_;
  CondVar work_;
  std::map<uint64_t, std::shared_ptr<Connection>> connections_
      ABSL_GUARDED_BY(mu_);
  // Connections that have not sent a Hello, oldest first.
  std::set<uint64_t> silent_ ABSL_GUARDED_BY(mu_);
  uint64_t next_key_ ABSL_GUARDED_BY(mu_) = 1;
  // The sessions by lease id.
  absl::flat_hash_map<std::string, Held> sessions_ ABSL_GUARDED_BY(mu_);
  // Numbers the Hellos that were accepted.
  uint64_t last_stream_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<std::pair<uint64_t, absl::Status>> to_close_ ABSL_GUARDED_BY(mu_);
  std::vector<uint64_t> to_reap_ ABSL_GUARDED_BY(mu_);
  // Set by Shutdown(): why connections are refused.
  absl::Status draining_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_STREAMS_STREAM_TABLE_H_
