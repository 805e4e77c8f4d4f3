#include "client_lib/api/trace.h"

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client_lib/api/environment.h"
#include "client_lib/session/model/fork_guard.h"
#include "client_lib/session/profile/request_tracer.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/net/tls/tls.h"
#include "common/net/tracing/grpc_span_transport.h"
#include "common/trace/span_exporter.h"
#include "djinn/trace.h"

namespace djinn {
namespace {

struct Process {
  // Held during a change of options.
  Mutex mu;
  bool configured ABSL_GUARDED_BY(mu) = false;
  std::shared_ptr<SpanExporter> exporter ABSL_GUARDED_BY(mu);
};

Process& TheProcess() {
  static auto* const process = new Process;
  return *process;
}

absl::Status BadTracing(absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, "BAD_TRACING", what);
}

// Returns the name of a TLS setting that is set; empty if none is.
std::string FirstTlsSetting(const TracingOptions& options) {
  if (!options.ca_file.empty()) return "ca_file";
  if (!options.certificate_file.empty()) return "certificate_file";
  if (!options.private_key_file.empty()) return "private_key_file";
  return options.server_name.empty() ? "" : "server_name";
}

// Sends the spans that wait when the process exits.
void StopAtExit() {
  // A forked child's exporter has no thread.
  if (IsForkedChild()) return;
  Process& process = TheProcess();
  std::shared_ptr<SpanExporter> exporter;
  {
    MutexLock lock(&process.mu);
    exporter = process.exporter;
  }
  if (exporter != nullptr) exporter->Stop();
}

absl::StatusOr<std::shared_ptr<SpanExporter>> MakeExporter(
    const TracingOptions& options) {
  if (options.endpoint.empty()) return nullptr;
  DJINN_ASSIGN_OR_RETURN(
      ChannelSecurity security,
      ChannelSecurity::Make({options.ca_file, options.certificate_file,
                             options.private_key_file, options.server_name},
                            options.insecure));
  DJINN_ASSIGN_OR_RETURN(
      std::unique_ptr<SpanTransport> transport,
      MakeGrpcSpanTransport(options.endpoint, std::move(security)));
  SpanExporterOptions exporter_options;
  exporter_options.service_name = "djinn-client";
  exporter_options.instance_id = RandomSource::Real()->HexId();
  return std::make_shared<SpanExporter>(std::move(exporter_options),
                                        std::move(transport), Clock::Real());
}

// Puts the options into force. `before` becomes the former exporter, for the
// caller to stop without the lock.
absl::Status Configure(const TracingOptions& options, Process& process,
                       std::shared_ptr<SpanExporter>* before)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(process.mu) {
  if (!(options.sample_ratio >= 0 && options.sample_ratio <= 1)) {
    return BadTracing(absl::StrCat("sample_ratio is ", options.sample_ratio,
                                   ": expected a share from 0 to 1"));
  }
  const std::string tls = FirstTlsSetting(options);
  if (options.endpoint.empty() && !tls.empty()) {
    return BadTracing(absl::StrCat(tls, " is set, but there is no endpoint"));
  }
  DJINN_ASSIGN_OR_RETURN(std::shared_ptr<SpanExporter> exporter,
                         MakeExporter(options));
  RequestTracer::Global().Configure({.sample_ratio = options.sample_ratio,
                                     .nodes = options.nodes,
                                     .sink = exporter});
  process.configured = true;
  *before = std::exchange(process.exporter, std::move(exporter));
  static const int registered = std::atexit(&StopAtExit);
  (void)registered;
  return absl::OkStatus();
}

}  // namespace

absl::Status ConfigureTracing(const TracingOptions& options) {
  if (IsForkedChild()) return AfterForkError();
  Process& process = TheProcess();
  std::shared_ptr<SpanExporter> before;
  {
    MutexLock lock(&process.mu);
    DJINN_RETURN_IF_ERROR(Configure(options, process, &before));
  }
  if (before != nullptr) before->Stop();
  return absl::OkStatus();
}

absl::Status ConfigureTracingFromEnvironment() {
  Process& process = TheProcess();
  MutexLock lock(&process.mu);
  if (process.configured) return absl::OkStatus();
  TracingOptions options;
  options.endpoint = FromEnvironment("DJINN_TRACING_ENDPOINT");
  const std::string ratio = FromEnvironment("DJINN_TRACING_SAMPLE_RATIO");
  if (!ratio.empty() && !absl::SimpleAtod(ratio, &options.sample_ratio)) {
    return BadTracing(absl::StrCat("DJINN_TRACING_SAMPLE_RATIO is \"", ratio,
                                   "\": expected a share from 0 to 1"));
  }
  DJINN_ASSIGN_OR_RETURN(options.nodes,
                         SwitchFromEnvironment("DJINN_TRACING_NODES"));
  DJINN_ASSIGN_OR_RETURN(options.insecure,
                         SwitchFromEnvironment("DJINN_TRACING_INSECURE"));
  options.ca_file = FromEnvironment("DJINN_TRACING_CA_FILE");
  options.certificate_file = FromEnvironment("DJINN_TRACING_CERTIFICATE_FILE");
  options.private_key_file = FromEnvironment("DJINN_TRACING_PRIVATE_KEY_FILE");
  options.server_name = FromEnvironment("DJINN_TRACING_SERVER_NAME");
  if (options.endpoint.empty() && ratio.empty() &&
      FirstTlsSetting(options).empty()) {
    return absl::OkStatus();
  }
  // Nothing was configured before.
  std::shared_ptr<SpanExporter> before;
  return Configure(options, process, &before);
}

struct TraceScope::Impl {
  RequestTracer::Scope scope;
  std::thread::id thread;
};

TraceScope::TraceScope(absl::string_view traceparent) {
  // The tracer's lock may be held for ever.
  if (IsForkedChild()) {
    status_ = AfterForkError();
    return;
  }
  const absl::StatusOr<Traceparent> parent = ParseTraceparent(traceparent);
  status_ = parent.status();
  if (!parent.ok()) return;
  impl_ = new Impl{RequestTracer::Global().Enter(*parent),
                   std::this_thread::get_id()};
}

TraceScope::~TraceScope() {
  if (impl_ == nullptr) return;
  // On another thread, by mistake, this would end that thread's scope.
  if (!IsForkedChild() && impl_->thread == std::this_thread::get_id()) {
    RequestTracer::Global().Leave(std::move(impl_->scope));
  }
  delete impl_;
}

}  // namespace djinn
