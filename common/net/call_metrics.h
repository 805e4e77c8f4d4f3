// Counts a server's calls under the names of gRFC A66.
//
// An interceptor counts unary calls. It would cost each message of a stream
// another pass through gRPC, so the handlers of streams count the end of a call
// with a CountedStream. Streams that carry tensors have no sizes.
#ifndef COMMON_NET_CALL_METRICS_H_
#define COMMON_NET_CALL_METRICS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/metrics/duration_histogram.h"
#include "common/metrics/exposition.h"
#include "common/metrics/labelled_counter.h"
#include "grpcpp/support/server_interceptor.h"
#include "grpcpp/support/status.h"

namespace djinn {

// Bytes of a call's messages, which are sent without compression.
struct CallSizes {
  uint64_t sent = 0;
  uint64_t received = 0;
};

// Thread-safe. Outlives the servers whose calls it counts.
class CallMetrics {
 public:
  CallMetrics();

  void Started(const std::string& method) { started_.Add({method}); }
  // Counts the end of a call. `status` is a name from gRPC's documents, such as
  // "OK" or "NOT_FOUND". Without `sizes`, they are not counted.
  void Ended(const std::string& method, const std::string& status,
             absl::Duration duration,
             const std::optional<CallSizes>& sizes = std::nullopt);

  void Collect(Exposition* exposition) const;
  // Adds every metric that Collect() may add, with numbers that mean nothing.
  static void Declare(Exposition* exposition);

 private:
  // Counts the calls with up to 0 bytes, 1 KiB and so on, as A66 says.
  struct SizeHistogram {
    static constexpr size_t kBounds = 14;
    void Observe(uint64_t bytes);
    Exposition::Buckets Read() const;

    std::array<uint64_t, kBounds + 1> counts{};
    uint64_t sum = 0;
  };
  struct Calls {
    DurationHistogram durations;
    bool have_sizes = false;
    SizeHistogram sent;
    SizeHistogram received;
  };

  LabelledCounter started_;
  mutable Mutex mu_;
  // Keyed by method and status.
  std::map<std::pair<std::string, std::string>, Calls> ended_
      ABSL_GUARDED_BY(mu_);
};

// A stream, which its handler counts. Not thread-safe.
class CountedStream {
 public:
  // Begins to measure the call's time. `method` is a name such as
  // "djinn.v1.Session/Attach". `metrics` outlives the stream; null: nothing is
  // counted.
  CountedStream(CallMetrics* metrics, absl::string_view method);

  void AddSent(size_t bytes) { sizes_.sent += bytes; }
  void AddReceived(size_t bytes) { sizes_.received += bytes; }

  // Counts the end of a stream whose messages were added. Call it, or
  // EndWithoutSizes(), once. Both return the status, for Finish().
  const grpc::Status& End(const grpc::Status& status);
  const grpc::Status& EndWithoutSizes(const grpc::Status& status);

 private:
  CallMetrics* const metrics_;
  const std::string method_;
  const absl::Time start_;
  CallSizes sizes_;
};

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
MakeCallCounter(CallMetrics* metrics);

}  // namespace djinn

#endif  // COMMON_NET_CALL_METRICS_H_
