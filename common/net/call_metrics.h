// Counts a server's calls under the names of gRFC A66. Streaming calls are
// counted when they start. Their duration is the life of a session, and their
// messages are not counted.
#ifndef COMMON_NET_CALL_METRICS_H_
#define COMMON_NET_CALL_METRICS_H_

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "common/base/mutex.h"
#include "common/metrics/duration_histogram.h"
#include "common/metrics/exposition.h"
#include "common/metrics/labelled_counter.h"
#include "grpcpp/support/server_interceptor.h"

namespace djinn {

// Thread-safe. Outlives the servers whose calls it counts.
class CallMetrics {
 public:
  CallMetrics();

  void Started(const std::string& method) { started_.Add({method}); }
  // Counts the end of a call. `status` is a name from gRPC's documents, such as
  // "OK" or "NOT_FOUND".
  void Ended(const std::string& method, const std::string& status,
             absl::Duration duration);

  void Collect(Exposition* exposition) const;

 private:
  LabelledCounter started_;
  mutable Mutex mu_;
  // Keyed by method and status.
  std::map<std::pair<std::string, std::string>, DurationHistogram> durations_
      ABSL_GUARDED_BY(mu_);
};

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
MakeCallCounter(CallMetrics* metrics);

}  // namespace djinn

#endif  // COMMON_NET_CALL_METRICS_H_
