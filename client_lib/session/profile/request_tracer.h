// Traces sampled requests of this process: see djinn/trace.h.
//
// A request is what djinn/profile.h calls one. It becomes the span "request"
// with four children that add up to it:
//
//   record    until the program asked for the value
//   send      until the transport had the last message
//   wait      until the value arrived
//   receive   until the program had it
//
// The request is sampled at its beginning. Its context travels with its runs,
// and with the lease that it waits for, so that workers and the coordinator add
// spans of their own.
//
// While nothing is traced, this costs what NoteWork() costs. Thread-safe.
#ifndef CLIENT_LIB_SESSION_PROFILE_REQUEST_TRACER_H_
#define CLIENT_LIB_SESSION_PROFILE_REQUEST_TRACER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/optimization.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client_lib/session/model/debug_flags.h"
#include "client_lib/session/profile/profile_recorder.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/trace/span.h"
#include "common/trace/trace_context.h"

namespace djinn {

// A request of a sampled trace.
struct TracedRequest {
  TraceContext context;
  // The program's own span; 0 when there is none.
  uint64_t parent = 0;
  absl::Duration began;
};

// The read that ends such a request. Times are by the session's clock.
struct TracedRead {
  TracedRequest request;
  absl::Duration asked;
  // Unset for a read that was sent before the program asked.
  std::optional<absl::Duration> handed;
  std::optional<absl::Duration> arrived;
};

class RequestTracer {
 public:
  struct Options {
    double sample_ratio = 0;
    // Whether sampled requests ask for spans of nodes.
    bool nodes = false;
    // Takes this process's spans; null: only the context travels.
    std::shared_ptr<SpanSink> sink;
    Clock* clock = Clock::Real();
  };

  // Returns the tracer of the process. Never destroyed.
  static RequestTracer& Global();

  // Replaces the options. Requests that are open are not traced any more.
  // Returns the sink that was used before.
  std::shared_ptr<SpanSink> Configure(Options options);

  // Makes the calling thread's requests children of `parent`, or unsampled if
  // that is, until Leave(). Scopes of a thread nest. An open request of the
  // thread ends untraced.
  struct Scope {
    std::optional<Traceparent> before;
  };
  Scope Enter(const Traceparent& parent);
  void Leave(Scope scope);

  // Begins a request of this thread, unless one is open already.
  void BeginRequest();
  // Returns the thread's request if one is open and sampled, or null. Valid
  // until the request ends.
  static const TracedRequest* Current();
  // Ends the thread's request.
  static void EndRequest();

  // Exports the spans of an answered read. `outcome` is the read's.
  struct Ending {
    absl::Duration now;
    int device = 0;
    std::string tenant;
    absl::Status outcome;
  };
  void Export(const TracedRead& read, const Ending& ending);

  // Returns the context of a new trace, or an invalid one if it is not sampled.
  TraceContext NewTrace();

 private:
  RequestTracer() = default;
  void SetFlag() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  std::atomic<double> ratio_{0};
  std::atomic<bool> nodes_{false};
  std::atomic<Clock*> clock_{Clock::Real()};
  // The number of the configuration. What a thread noted under another one is
  // invalid.
  std::atomic<uint64_t> number_{1};
  Mutex mu_;
  std::shared_ptr<SpanSink> sink_ ABSL_GUARDED_BY(mu_);
  int sampled_scopes_ ABSL_GUARDED_BY(mu_) = 0;
};

// Notes that the calling thread works on a request.
inline void NoteWork() {
  const uint32_t flags = debug::Flags();
  if (ABSL_PREDICT_TRUE((flags & (debug::kProfile | debug::kTrace)) == 0)) {
    return;
  }
  if ((flags & debug::kProfile) != 0) ProfileRecorder::Global().BeginRequest();
  if ((flags & debug::kTrace) != 0) RequestTracer::Global().BeginRequest();
}

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_PROFILE_REQUEST_TRACER_H_
