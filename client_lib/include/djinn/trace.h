// Traces sampled requests, from the program's read to the node on the device,
// with OpenTelemetry:
//
//   djinn::TracingOptions options;
//   options.endpoint = "127.0.0.1:4317";
//   options.sample_ratio = 0.01;
//   absl::Status status = djinn::ConfigureTracing(options);
//
// A service that has a trace of its own hands it over for each request:
//
//   djinn::TraceScope scope(headers["traceparent"]);
//   ... model(input).cpu();
//
// A request begins with a thread's first call on a device after its last
// request, and ends when a value that the thread reads has arrived. This
// process exports the request's own spans. The coordinator and the workers
// export theirs where their operator configured it.
//
// By default nothing is traced. Thread-safe.
#ifndef CLIENT_LIB_INCLUDE_DJINN_TRACE_H_
#define CLIENT_LIB_INCLUDE_DJINN_TRACE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "djinn/api.h"

namespace djinn {

struct TracingOptions {
  // The OTLP/gRPC port of a collector, "host:port" or "unix:PATH". Empty: this
  // process exports nothing, but the coordinator and the workers may.
  std::string endpoint;
  // The share of requests that are traced, from 0 to 1.
  double sample_ratio = 0;
  // Whether traces have spans for the longest nodes on the device, at most 256
  // of a run. A run whose nodes are timed is a little slower.
  bool nodes = false;
  // TLS of the collector, as PEM files. Without ca_file there is none.
  std::string ca_file;
  std::string certificate_file;
  std::string private_key_file;
  std::string server_name;
  // Allows an endpoint on another host without TLS.
  bool insecure = false;
};

// Replaces the process's options. Spans of the former ones are exported for at
// most two seconds. A collector that does not answer is no error. Returns
// InvalidArgument (BAD_TRACING) for a ratio out of range and for files or a
// server name without an endpoint, and the errors of Connect() for endpoint and
// TLS.
//
// The first session of a process that has not called this reads the variables
// DJINN_TRACING_ENDPOINT, DJINN_TRACING_SAMPLE_RATIO, DJINN_TRACING_NODES (1),
// DJINN_TRACING_CA_FILE, DJINN_TRACING_CERTIFICATE_FILE,
// DJINN_TRACING_PRIVATE_KEY_FILE, DJINN_TRACING_SERVER_NAME and
// DJINN_TRACING_INSECURE (1).
DJINN_API absl::Status ConfigureTracing(const TracingOptions& options);

// Makes the calling thread's requests part of the caller's trace while it
// lives. The caller's decision counts, not sample_ratio: its requests are
// traced if and only if the traceparent is sampled. Scopes nest. A scope ends
// on the thread on which it began.
class DJINN_API TraceScope {
 public:
  // `traceparent` is the header of W3C Trace Context.
  explicit TraceScope(absl::string_view traceparent);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

  // Returns InvalidArgument (BAD_TRACEPARENT) for a malformed text, and
  // FailedPrecondition (AFTER_FORK) in a forked child; the scope then has no
  // effect.
  const absl::Status& status() const { return status_; }

 private:
  struct Impl;

  absl::Status status_;
  Impl* impl_ = nullptr;
};

}  // namespace djinn

#endif  // CLIENT_LIB_INCLUDE_DJINN_TRACE_H_
