// Makes spans of what one stream of a session asks of the coordinator:
//
//   grant lease   from the request until the answer; a child of the client's
//     place       until a worker was chosen
//     announce    until that worker knew the lease
//   migrate       from the coordinator's request until the outcome
//   recover       as the client reports it
//
// The last two are traces of their own, unless the client names the recovery's:
// `recover` is then a sibling of its lease requests. Clients choose no span's
// id. Thread-safe; each method takes the cluster's lock for a moment at most.
#ifndef COORDINATOR_RPC_SESSION_TRACES_H_
#define COORDINATOR_RPC_SESSION_TRACES_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/trace/span.h"
#include "coordinator/tables/cluster_state.h"
#include "djinn/v1/session.pb.h"

namespace djinn::coordinator {

class SessionTraces {
 public:
  // Without a sink, does nothing. Both pointers outlive this.
  SessionTraces(ClusterState* cluster, SpanSink* sink, std::string tenant)
      : cluster_(*cluster), sink_(sink), tenant_(std::move(tenant)) {}

  void NoteRequest(const v1::LeaseRequest& request);
  void NoteResponse(const v1::SessionResponse& response);
  void NoteMigrated(const v1::MigrationOutcome& outcome);
  // Notes a request that has a recovery's report.
  void NoteRecovered(const v1::SessionRequest& request);

 private:
  // Spans that wait for their end. Beyond the limit, others are not made. One
  // whose end does not come for this long is not made either.
  static constexpr size_t kMaxOpen = 256;
  static constexpr absl::Duration kMaxAge = absl::Minutes(30);
  struct Open {
    TraceContext parent;
    absl::Duration began;
    std::string worker_id;
  };

  // Returns a new trace; invalid if the sink does not take it.
  TraceContext NewTrace();
  Span Make(const TraceContext& self, uint64_t parent, absl::string_view name,
            absl::Duration began, absl::Duration ended);
  void EndRequest(uint32_t device, uint32_t member,
                  const v1::LeaseGranted* granted,
                  const v1::LeaseRefused* refused);

  ClusterState& cluster_;
  SpanSink* const sink_;
  const std::string tenant_;
  Mutex mu_;
  // Lease requests, by virtual device and member.
  std::map<std::pair<uint32_t, uint32_t>, Open> requests_ ABSL_GUARDED_BY(mu_);
  // Migrations, by the id of the lease that the device is to use.
  std::map<std::string, Open> migrations_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_RPC_SESSION_TRACES_H_
