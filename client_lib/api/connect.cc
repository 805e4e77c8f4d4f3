#include "djinn/connect.h"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/api/environment.h"
#include "client_lib/api/trace.h"
#include "client_lib/capture/device/backend.h"
#include "client_lib/capture/device/process_session.h"
#include "client_lib/capture/kernel/capture_kernel.h"
#include "client_lib/capture/kernel/copy.h"
#include "client_lib/cluster/local_fallback.h"
#include "client_lib/session/model/fork_guard.h"
#include "client_lib/session/multi_worker/storage_copies.h"
#include "client_lib/session/remote_session.h"
#include "client_lib/transport/grpc_coordinator_link.h"
#include "client_lib/transport/grpc_worker_connector.h"
#include "client_lib/transport/session_urgency.h"
#include "client_lib/transport/shared_memory_connector.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/base/proto_duration.h"
#include "common/base/status_macros.h"
#include "common/io/secret_file.h"
#include "common/lease/priority_class.h"
#include "common/net/channel_pool.h"
#include "common/net/tls/tls.h"
#include "common/net/tls_config.h"
#include "djinn/execution_mode.h"

namespace djinn {
namespace {

constexpr absl::Duration kExitDeadline = absl::Seconds(10);

absl::StatusOr<std::string> TokenOf(const ConnectOptions& options) {
  if (!options.token.empty()) return options.token;
  const std::string file = options.token_file.empty()
                               ? FromEnvironment("DJINN_TOKEN_FILE")
                               : options.token_file;
  if (file.empty()) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "NO_TOKEN",
                     "no tenant token was given: set ConnectOptions::token or "
                     "token_file, or DJINN_TOKEN_FILE");
  }
  return ReadToken(file);
}

// Returns how long a worker may be silent before its connection counts as
// broken.
absl::StatusOr<absl::Duration> SilenceFromEnvironment() {
  const std::string text = FromEnvironment("DJINN_WORKER_SILENCE");
  absl::Duration silence = kDefaultSilence;
  if (text.empty()) return silence;
  if (!absl::ParseDuration(text, &silence) || silence < kMinSilence ||
      silence > absl::Hours(1)) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, "BAD_SILENCE",
        absl::StrCat("DJINN_WORKER_SILENCE is \"", text,
                     "\": expected a time from ",
                     absl::FormatDuration(kMinSilence), " to 1h, such as 5s"));
  }
  return silence;
}

TlsOptions TlsFromEnvironment() {
  ChannelTls tls = ChannelTlsFromEnvironment();
  return {std::move(tls.ca_file), std::move(tls.certificate_file),
          std::move(tls.private_key_file), std::move(tls.server_name),
          FromEnvironment("DJINN_TLS_WORKER_SERVER_NAME")};
}

// State of the session that was opened last.
struct LastSession {
  Mutex mu;
  // The session's link owns it.
  std::weak_ptr<SessionUrgency> urgency ABSL_GUARDED_BY(mu);
  // The counts just before the session was opened.
  ChannelPool::Counts channels ABSL_GUARDED_BY(mu);
};
LastSession& Last() {
  static auto* const last = new LastSession;
  return *last;
}

absl::StatusOr<v1::Urgency> ToProto(const Urgency& urgency) {
  v1::Urgency proto;
  proto.set_priority_class(static_cast<v1::PriorityClass>(urgency.priority));
  if (urgency.run_deadline <= absl::ZeroDuration()) {
    return MakeError(absl::StatusCode::kInvalidArgument, "BAD_URGENCY",
                     absl::StrCat("run_deadline must be positive, got ",
                                  absl::FormatDuration(urgency.run_deadline)));
  }
  if (urgency.run_deadline != absl::InfiniteDuration()) {
    *proto.mutable_run_deadline() = ToProtoDuration(urgency.run_deadline);
  }
  return proto;
}

Urgency FromProto(const v1::Urgency& proto) {
  Urgency urgency;
  if (IsDeclared(proto.priority_class())) {
    urgency.priority =
        static_cast<Priority>(EffectiveClass(proto.priority_class()));
  }
  if (proto.has_run_deadline()) {
    urgency.run_deadline = FromProtoDuration(proto.run_deadline());
  }
  return urgency;
}

absl::Status ReadRecovery(const ConnectOptions& options,
                          SessionOptions* session_options) {
  std::string mode = options.recovery;
  if (mode.empty()) mode = FromEnvironment("DJINN_RECOVERY");
  if (!mode.empty() && mode != "off" && mode != "replay" &&
      mode != "checkpoint") {
    return MakeError(
        absl::StatusCode::kInvalidArgument, "BAD_RECOVERY",
        absl::StrCat("there is no recovery \"", mode,
                     "\": use \"replay\", \"checkpoint\" or \"off\""));
  }
  if (options.replay_time < absl::ZeroDuration() ||
      !(options.checkpoint_overhead > 0 && options.checkpoint_overhead <= 1)) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, "BAD_RECOVERY",
        absl::StrCat("replay_time is ",
                     absl::FormatDuration(options.replay_time),
                     " and checkpoint_overhead ", options.checkpoint_overhead,
                     ": use a time of at least 0, and a share above 0 of at "
                     "most 1"));
  }
  session_options->recovers = mode != "off";
  session_options->checkpoints = mode == "checkpoint";
  session_options->replay_memory = options.replay_memory;
  session_options->replay_disk = options.replay_disk;
  session_options->checkpoint_memory = options.checkpoint_memory;
  session_options->replay_time = options.replay_time;
  session_options->checkpoint_overhead = options.checkpoint_overhead;
  return absl::OkStatus();
}

// Returns whether the session may go on at a worker on this machine.
absl::StatusOr<bool> ReadFallback(const ConnectOptions& options) {
  std::string mode = options.fallback;
  if (mode.empty()) mode = FromEnvironment("DJINN_FALLBACK");
  if (!mode.empty() && mode != "off" && mode != "local") {
    return MakeError(absl::StatusCode::kInvalidArgument, "BAD_FALLBACK",
                     absl::StrCat("there is no fallback \"", mode,
                                  "\": use \"local\" or \"off\""));
  }
  if (options.fallback_after < absl::ZeroDuration()) {
    return MakeError(absl::StatusCode::kInvalidArgument, "BAD_FALLBACK",
                     absl::StrCat("fallback_after is ",
                                  absl::FormatDuration(options.fallback_after),
                                  ": use a time of at least 0"));
  }
  return mode == "local";
}

std::string ProgramName(const ConnectOptions& options) {
  if (!options.program.empty()) return options.program;
  std::ifstream file("/proc/self/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

// Closes a session that the program left open, and prints the failure if values
// were lost.
void CloseAtExit() {
  // A forked child's session belongs to its parent.
  if (IsForkedChild()) return;
  const absl::Status status = Close(kExitDeadline);
  if (!status.ok()) {
    std::fprintf(stderr, "djinn: closing the session at exit: %s\n",
                 status.ToString().c_str());
  }
}

absl::StatusOr<std::shared_ptr<Session>> Open(const ConnectOptions& options) {
  const std::string coordinator = options.coordinator.empty()
                                      ? FromEnvironment("DJINN_COORDINATOR")
                                      : options.coordinator;
  if (coordinator.empty()) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "NO_SESSION",
                     "no Djinn session is open and no coordinator is known: "
                     "call djinn::Connect() (djinn.connect() or "
                     "djinn.local() in Python) or set DJINN_COORDINATOR");
  }
  DJINN_ASSIGN_OR_RETURN(const std::string token, TokenOf(options));
  DJINN_RETURN_IF_ERROR(ConfigureTracingFromEnvironment());
  UpdateSwitches();
  SessionOptions session_options;
  session_options.connect_timeout = options.connect_timeout;
  session_options.operation_timeout = options.operation_timeout;
  session_options.resume_timeout = options.resume_timeout;
  session_options.device_count = capture::DeviceCount();
  session_options.program = ProgramName(options);
  session_options.strict_devices = options.strict_devices;
  for (const auto& [index, workers] : options.device_workers) {
    if (index >= 0 && index < session_options.device_count && workers >= 1 &&
        workers <= StorageCopies::kMaxMembers) {
      continue;
    }
    return MakeError(
        absl::StatusCode::kInvalidArgument, "BAD_DEVICE_WORKERS",
        absl::StrCat("cannot give device ", index, " ", workers,
                     " workers: use a device from 0 to ",
                     session_options.device_count - 1, " and 1 to ",
                     StorageCopies::kMaxMembers, " workers"));
  }
  session_options.device_workers = options.device_workers;
  session_options.copy_operator = capture::CopyOperatorId();
  DJINN_RETURN_IF_ERROR(ReadRecovery(options, &session_options));
  DJINN_ASSIGN_OR_RETURN(const bool falls_back, ReadFallback(options));
  // The operator's choice takes precedence over the program's.
  std::string policy = FromEnvironment("DJINN_PLACEMENT_POLICY");
  if (policy.empty()) {
    policy = options.placement_policy;
    session_options.device_placement_policies =
        options.device_placement_policies;
  }
  DJINN_ASSIGN_OR_RETURN(const absl::Duration silence,
                         SilenceFromEnvironment());
  const TlsOptions tls = options.tls.value_or(TlsFromEnvironment());
  DJINN_ASSIGN_OR_RETURN(const bool insecure_by_default,
                         SwitchFromEnvironment("DJINN_INSECURE"));
  DJINN_ASSIGN_OR_RETURN(
      const ChannelSecurity security,
      ChannelSecurity::Make({tls.ca_file, tls.certificate_file,
                             tls.private_key_file, tls.server_name},
                            options.insecure.value_or(insecure_by_default)));
  DJINN_ASSIGN_OR_RETURN(v1::Urgency asked, ToProto(options.urgency));
  const auto urgency = std::make_shared<SessionUrgency>(std::move(asked));
  const auto link_to = [=](const std::string& session_id) {
    return MakeGrpcCoordinatorLink(coordinator, token,
                                   {.security = security,
                                    .urgency = urgency,
                                    .placement_policy = policy,
                                    .session_id = session_id});
  };
  DJINN_ASSIGN_OR_RETURN(std::unique_ptr<CoordinatorLink> link,
                         link_to(/*session_id=*/""));
  std::unique_ptr<WorkerConnector> connector = MakeGrpcWorkerConnector(
      security.WithServerName(tls.worker_server_name),
      std::max(options.bulk_channels, 1), WorkerChannels(), silence);
  const ChannelPool::Counts channels = WorkerChannels()->counts();
  if (options.shared_memory && FromEnvironment("DJINN_SHARED_MEMORY") != "0") {
    connector = MakeSharedMemoryConnector(std::move(connector));
  }
  if (falls_back) {
    FallbackLinks links = WithFallback(std::move(link), std::move(connector),
                                       {.patience = options.fallback_after,
                                        .worker_threads = at::get_num_threads(),
                                        .start = StartLocalCluster,
                                        .reopen = link_to});
    link = std::move(links.link);
    connector = std::move(links.connector);
  }
  DJINN_ASSIGN_OR_RETURN(
      std::unique_ptr<Session> session,
      OpenSession(session_options, std::move(link), std::move(connector)));
  // Registered late, so that it runs before the destructors of static objects
  // that PyTorch and gRPC created when they were loaded. OpenSSL usually has
  // no exit handler: see common/hash/hash.cc.
  static const int registered = std::atexit(&CloseAtExit);
  (void)registered;
  MutexLock lock(&Last().mu);
  Last().urgency = urgency;
  Last().channels = channels;
  return std::shared_ptr<Session>(std::move(session));
}

// A device that is used without Connect() opens a session from the environment.
const bool default_factory_set = [] {
  capture::SetDefaultSessionFactory([] { return Open(ConnectOptions()); });
  return true;
}();

}  // namespace

absl::Status Connect(const ConnectOptions& options) {
  if (IsForkedChild()) return AfterForkError();
  if (capture::CurrentSession() != nullptr) {
    return MakeError(absl::StatusCode::kAlreadyExists, "SESSION_OPEN",
                     "this process has an open Djinn session: close it first");
  }
  DJINN_ASSIGN_OR_RETURN(std::shared_ptr<Session> session, Open(options));
  return capture::SetSession(std::move(session));
}

absl::Status Close(absl::Duration deadline) {
  if (IsForkedChild()) return AfterForkError();
  const std::shared_ptr<Session> session = capture::TakeSession();
  return session == nullptr ? absl::OkStatus() : session->Close(deadline);
}

absl::StatusOr<Urgency> SetUrgency(const Urgency& urgency) {
  if (IsForkedChild()) return AfterForkError();
  DJINN_ASSIGN_OR_RETURN(v1::Urgency asked, ToProto(urgency));
  const std::shared_ptr<Session> session = capture::CurrentSession();
  std::shared_ptr<SessionUrgency> said;
  {
    MutexLock lock(&Last().mu);
    said = Last().urgency.lock();
  }
  if (session == nullptr || said == nullptr) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "NO_SESSION",
                     "no Djinn session is open: call djinn::Connect() "
                     "(djinn.connect() or djinn.local() in Python)");
  }
  DJINN_ASSIGN_OR_RETURN(const v1::Urgency before, said->Set(std::move(asked)));
  return FromProto(before);
}

bool IsConnected() { return capture::CurrentSession() != nullptr; }

bool WasForkedFromSession() { return IsForkedChild(); }

c10::Device Device(int index) {
  return c10::Device(c10::DeviceType::PrivateUse1,
                     static_cast<c10::DeviceIndex>(index));
}

absl::Status Synchronize(int index) {
  DJINN_ASSIGN_OR_RETURN(const std::shared_ptr<VirtualDevice> device,
                         capture::DeviceOfProcess(index));
  return device->Synchronize();
}

absl::Status Checkpoint(absl::Duration timeout) {
  if (IsForkedChild()) return AfterForkError();
  const std::shared_ptr<Session> session = capture::CurrentSession();
  if (session == nullptr) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "NO_SESSION",
                     "no Djinn session is open: call djinn::Connect() "
                     "(djinn.connect() or djinn.local() in Python)");
  }
  return session->Checkpoint(timeout);
}

absl::StatusOr<Placement> WhereIs(int index) {
  DJINN_ASSIGN_OR_RETURN(const std::shared_ptr<VirtualDevice> device,
                         capture::DeviceOfProcess(index));
  DJINN_ASSIGN_OR_RETURN(DevicePlacement placement, device->Placement());
  return Placement{std::move(placement.worker_id), std::move(placement.reason),
                   placement.memory_bytes, std::move(placement.transport)};
}

Statistics GetStatistics() {
  const std::shared_ptr<Session> session = capture::CurrentSession();
  if (session == nullptr) return Statistics();
  Statistics statistics = session->statistics();
  MutexLock lock(&Last().mu);
  const ChannelPool::Counts& before = Last().channels;
  // Read after `before`; no count ever decreases.
  const ChannelPool::Counts channels = WorkerChannels()->counts();
  statistics.connections_created = channels.created - before.created;
  statistics.connections_reused = channels.reused - before.reused;
  statistics.connections_closed = channels.closed - before.closed;
  statistics.connections_failed = channels.failed - before.failed;
  return statistics;
}

std::vector<absl::Status> RootErrors() {
  const std::shared_ptr<Session> session = capture::CurrentSession();
  return session == nullptr ? std::vector<absl::Status>()
                            : session->RootErrors();
}

std::map<std::string, uint64_t> SynchronousCalls() {
  return capture::SynchronousCalls();
}

}  // namespace djinn
