#include "client_lib/transport/grpc_coordinator_link.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client_lib/session/model/remedies.h"
#include "client_lib/session/model/wait.h"
#include "client_lib/transport/coordinator_outbox.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/lease/leader_term.h"
#include "common/log/log.h"
#include "common/net/bearer.h"
#include "common/net/bounded_call.h"
#include "common/net/coordinator_channels.h"
#include "common/net/grpc_status.h"
#include "common/net/protocol_version.h"
#include "common/net/tls/tls_probe.h"
#include "djinn/v1/session.pb.h"
#include "grpcpp/channel.h"

namespace djinn {
namespace {

constexpr char kMethod[] = "/djinn.v1.Session/Attach";

constexpr absl::Duration kMinBackoff = absl::Milliseconds(50);
constexpr absl::Duration kMaxBackoff = absl::Seconds(2);
// Another coordinator may lead within seconds of a failure.
constexpr absl::Duration kMaxElectedBackoff = absl::Milliseconds(300);
// Interval at which a thread that waits for a connection checks whether the
// connection is still wanted.
constexpr absl::Duration kConnectingSlice = absl::Milliseconds(50);

class GrpcCoordinatorLink : public CoordinatorLink {
 public:
  GrpcCoordinatorLink(std::unique_ptr<CoordinatorChannels> channels,
                      std::string address, std::string token,
                      CoordinatorLinkOptions options)
      : channels_(std::move(channels)),
        address_(std::move(address)),
        token_(std::move(token)),
        options_(std::move(options)) {}

  ~GrpcCoordinatorLink() override {
    (void)Close(absl::ZeroDuration());
    MutexLock lock(&mu_);
    if (outbox_.graphs().dropped() > 0) {
      log::Warning("graphs did not reach the coordinator",
                   {{"count", outbox_.graphs().dropped()}});
    }
    if (outbox_.lost_reports() > 0) {
      log::Warning("reports did not reach the coordinator",
                   {{"count", outbox_.lost_reports()}});
    }
  }

  absl::StatusOr<Opened> Open(const std::string& program,
                              absl::Duration timeout,
                              CoordinatorEvents* events) override;
  absl::StatusOr<v1::LeaseGranted> RequestLease(
      v1::LeaseRequest request, absl::Duration timeout) override;
  void ReturnLease(const std::string& lease_id, bool unreachable) override;
  void SendGraph(v1::Graph graph, v1::GraphNotes notes,
                 std::optional<v1::StageRequest> stages) override;
  void ReportMigration(uint32_t virtual_device,
                       v1::MigrationOutcome outcome) override;
  void Report(v1::SessionRequest report) override;
  void CancelRequests() override;
  absl::Status Close(absl::Duration timeout) override;

 private:
  // Runs on the attaching thread.
  void KeepAttached();
  // Returns when the stream ended. Sets `attached` if the session was attached.
  absl::Status AttachOnce(const CoordinatorChannels::Target& target,
                          bool* attached);
  // Returns OK if the stream ended without a fault of the coordinator,
  // otherwise the coordinator's breach of the protocol.
  absl::Status ServeCall(BoundedCall* call, bool* attached);
  absl::Status CheckOpened(const v1::SessionResponse& response)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnResponse(v1::SessionResponse response);
  // Returns true when the link must end.
  bool OnDetached(const absl::Status& status);
  // Pauses, unless the next address is to be tried at once, and returns true
  // when the link must end.
  bool Pause(bool at_once, absl::Duration* backoff);

  // Runs on the writing thread.
  void WriteRequests();
  // Returns the next message for the present stream.
  std::optional<v1::SessionRequest> NextRequest()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::unique_ptr<CoordinatorChannels> channels_;
  // All addresses, as the program gave them.
  const std::string address_;
  const std::string token_;
  const CoordinatorLinkOptions options_;
  LeaderTerm term_;
  std::string program_;
  CoordinatorEvents* events_ = nullptr;

  Mutex mu_;
  CondVar changed_;
  // The call in progress.
  BoundedCall* call_ ABSL_GUARDED_BY(mu_) = nullptr;
  // The coordinator opened the session on the call, which has not ended.
  bool attached_ ABSL_GUARDED_BY(mu_) = false;
  // the writing thread uses the call
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<Opened> opened_ ABSL_GUARDED_BY(mu_);
  absl::Status last_error_ ABSL_GUARDED_BY(mu_);
  // True if the coordinator refused to open the session, or the session may not
  // attach again. last_error_ gives the reason, and the link makes no further
  // attempt.
  bool refused_ ABSL_GUARDED_BY(mu_) = false;
  // The error that was logged last as the reason why the session cannot attach.
  absl::Status logged_ ABSL_GUARDED_BY(mu_);
  CoordinatorOutbox outbox_ ABSL_GUARDED_BY(mu_);
  bool requests_cancelled_ ABSL_GUARDED_BY(mu_) = false;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;  // send the farewell, then end
  bool farewell_said_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;   // end now
  bool detached_ ABSL_GUARDED_BY(mu_) = false;  // the attaching thread is done
  absl::Status end_status_ ABSL_GUARDED_BY(mu_);
  std::thread attacher_;
  std::thread writer_;
};

absl::StatusOr<CoordinatorLink::Opened> GrpcCoordinatorLink::Open(
    const std::string& program, absl::Duration timeout,
    CoordinatorEvents* events) {
  program_ = program;
  events_ = events;
  options_.urgency->Listen([this] {
    MutexLock lock(&mu_);
    changed_.SignalAll();
  });
  attacher_ = std::thread([this] { KeepAttached(); });
  writer_ = std::thread([this] { WriteRequests(); });
  absl::Status error;
  {
    const Deadline deadline(timeout);
    MutexLock lock(&mu_);
    while (!opened_.has_value() && !refused_ && !requests_cancelled_ &&
           !deadline.passed()) {
      WaitUntil(&changed_, &mu_, deadline);
    }
    if (opened_.has_value()) return *opened_;
    error = refused_ ? last_error_
                     : MakeError(absl::StatusCode::kUnavailable,
                                 "COORDINATOR_UNREACHABLE",
                                 absl::StrCat("no session with the coordinator "
                                              "at ",
                                              address_, " within ",
                                              absl::FormatDuration(timeout),
                                              ": ", last_error_.message()));
  }
  (void)Close(absl::ZeroDuration());
  return error;
}

absl::StatusOr<v1::LeaseGranted> GrpcCoordinatorLink::RequestLease(
    v1::LeaseRequest request, absl::Duration timeout) {
  const Deadline deadline(timeout);
  CoordinatorOutbox::LeaseWait wait;
  wait.request = std::move(request);
  MutexLock lock(&mu_);
  outbox_.Request(&wait);
  changed_.SignalAll();
  while (!wait.result.has_value() && !requests_cancelled_ && !refused_ &&
         !deadline.passed()) {
    WaitUntil(&changed_, &mu_, deadline);
  }
  outbox_.Forget(wait);
  if (wait.result.has_value()) return *std::move(wait.result);
  if (requests_cancelled_) return absl::CancelledError("the session closes");
  if (refused_) return last_error_;
  return MakeError(
      absl::StatusCode::kDeadlineExceeded, "LEASE_TIMEOUT",
      absl::StrCat(
          "no worker was granted within ", absl::FormatDuration(timeout),
          attached_ ? ""
                    : absl::StrCat("; the coordinator at ", address_,
                                   " is away: ", last_error_.message())));
}

void GrpcCoordinatorLink::ReturnLease(const std::string& lease_id,
                                      bool unreachable) {
  MutexLock lock(&mu_);
  outbox_.ReturnLease(lease_id, unreachable);
  changed_.SignalAll();
}

void GrpcCoordinatorLink::SendGraph(v1::Graph graph, v1::GraphNotes notes,
                                    std::optional<v1::StageRequest> stages) {
  v1::SessionRequest request;
  *request.mutable_graph() = std::move(graph);
  if (notes.note_of_node_size() > 0) {
    *request.mutable_notes() = std::move(notes);
  }
  if (stages.has_value()) *request.mutable_stages() = *std::move(stages);
  const size_t bytes = request.ByteSizeLong();
  {
    MutexLock lock(&mu_);
    if (refused_) return;
    if (outbox_.graphs().Push(std::move(request), bytes)) {
      changed_.SignalAll();
      return;
    }
    // The link logs their number at its end.
    if (outbox_.graphs().dropped() > 1) return;
  }
  log::Warning("graphs are not sent to the coordinator: too many wait",
               {{"coordinator", address_}, {"bytes", bytes}});
}

void GrpcCoordinatorLink::ReportMigration(uint32_t virtual_device,
                                          v1::MigrationOutcome outcome) {
  MutexLock lock(&mu_);
  outbox_.AddOutcome(virtual_device, std::move(outcome));
  changed_.SignalAll();
}

void GrpcCoordinatorLink::CancelRequests() {
  MutexLock lock(&mu_);
  requests_cancelled_ = true;
  changed_.SignalAll();
}

absl::Status GrpcCoordinatorLink::Close(absl::Duration timeout) {
  if (!attacher_.joinable()) return absl::OkStatus();
  options_.urgency->Listen(nullptr);
  const Deadline deadline(timeout);
  absl::Status status;
  {
    MutexLock lock(&mu_);
    closing_ = true;
    requests_cancelled_ = true;
    changed_.SignalAll();
    while (!detached_ && (attached_ || farewell_said_) && !deadline.passed()) {
      WaitUntil(&changed_, &mu_, deadline);
    }
    if (refused_) {
      status = last_error_;
    } else if (!detached_ || !farewell_said_) {
      status = MakeError(
          absl::StatusCode::kUnavailable, "COORDINATOR_UNREACHABLE",
          absl::StrCat(
              "the coordinator at ", address_,
              " did not receive the end of the session, which now ends by its "
              "time-out"));
    } else {
      status = end_status_;
    }
    stopped_ = true;
    if (call_ != nullptr) call_->Cancel();
    changed_.SignalAll();
  }
  attacher_.join();
  writer_.join();
  return status;
}

void GrpcCoordinatorLink::Report(v1::SessionRequest report) {
  MutexLock lock(&mu_);
  if (refused_) return;
  outbox_.AddReport(std::move(report));
  changed_.SignalAll();
}

void GrpcCoordinatorLink::KeepAttached() {
  absl::Duration backoff = kMinBackoff;
  for (;;) {
    bool attached = false;
    const CoordinatorChannels::Target target = channels_->current();
    const absl::Status status = AttachOnce(target, &attached);
    const bool at_once = channels_->NoteFailure(target, status);
    if (attached) backoff = kMinBackoff;
    if (OnDetached(status) || Pause(at_once, &backoff)) break;
  }
  MutexLock lock(&mu_);
  detached_ = true;
  changed_.SignalAll();
}

bool GrpcCoordinatorLink::OnDetached(const absl::Status& status) {
  bool first = false;
  {
    MutexLock lock(&mu_);
    changed_.SignalAll();
    end_status_ = status;
    if (stopped_ || farewell_said_) return true;
    last_error_ =
        status.ok() ? absl::UnavailableError("the stream was ended") : status;
    if (!opened_.has_value()) {
      // A second attempt helps only if the coordinator was unavailable.
      refused_ = !absl::IsUnavailable(last_error_);
      return refused_;
    }
    refused_ = AfterCoordinatorError(last_error_) == Remedy::kGiveUp;
    if (refused_) outbox_.graphs().Clear();
    first = logged_.ok() || logged_.code() != last_error_.code() ||
            ErrorReason(logged_) != ErrorReason(last_error_);
    logged_ = last_error_;
    if (refused_) {
      log::Error("the session is detached for good; running work goes on",
                 {{"coordinator", address_}, {"error", last_error_}});
      return true;
    }
  }
  // An open session keeps trying, because the coordinator may be replaced or
  // repaired.
  if (first) {
    log::Warning("the session stream broke; attaching again",
                 {{"coordinator", address_}, {"error", status}});
  }
  return false;
}

bool GrpcCoordinatorLink::Pause(bool at_once, absl::Duration* backoff) {
  if (at_once) {
    MutexLock lock(&mu_);
    return stopped_ || closing_;
  }
  // Adds up to one half to the pause, so that the clients of a restarted
  // coordinator do not all return at the same time.
  const double jitter =
      1 + static_cast<double>(RandomSource::Real()->NonZero64() % 1024) / 2048;
  const Deadline pause(*backoff * jitter);
  const bool elected = channels_->size() > 1 || term_.known() > 0;
  *backoff = std::min(*backoff * 2, elected ? kMaxElectedBackoff : kMaxBackoff);
  const std::shared_ptr<grpc::Channel> channel = channels_->current().channel;
  for (;;) {
    {
      MutexLock lock(&mu_);
      if (stopped_ || closing_) return true;
      if (pause.passed()) return false;
    }
    // The thread waits in gRPC, which advances a connection at once only while
    // a thread waits for it, and otherwise every few seconds.
    const bool connected = channel->WaitForConnected(absl::ToChronoTime(
        absl::Now() + std::min(pause.left(), kConnectingSlice)));
    if (!connected) continue;
    MutexLock lock(&mu_);
    while (!stopped_ && !closing_ && !pause.passed()) {
      WaitUntil(&changed_, &mu_, pause);
    }
  }
}

absl::Status GrpcCoordinatorLink::AttachOnce(
    const CoordinatorChannels::Target& target, bool* attached) {
  BoundedCall call(target.channel, kMethod, {BearerMetadata(token_)});
  v1::SessionRequest request;
  v1::OpenSession* const open = request.mutable_open();
  open->set_protocol_version(kProtocolVersion);
  open->set_program(program_);
  open->set_placement_policy(options_.placement_policy);
  open->set_known_term(term_.known());
  {
    MutexLock lock(&mu_);
    if (stopped_) return absl::CancelledError("closed");
    call_ = &call;
    open->set_resume_session_id(opened_.has_value() ? opened_->session_id
                                                    : options_.session_id);
    SessionUrgency::Said said = options_.urgency->said();
    *open->mutable_urgency() = std::move(said.urgency);
    outbox_.NoteUrgency(said.version);
  }
  absl::Status broken;
  if (call.WriteMessage(request)) broken = ServeCall(&call, attached);
  if (!broken.ok()) call.Cancel();
  {
    MutexLock lock(&mu_);
    attached_ = false;
    changed_.SignalAll();
  }
  absl::Status status = FromGrpcStatus(call.Finish());
  call.Cancel();  // ends a write of the writing thread
  {
    // The writing thread uses `call` without the lock, so this frame must not
    // end before `writing_` is false.
    MutexLock lock(&mu_);
    while (writing_) changed_.Wait(&mu_);
    call_ = nullptr;
  }
  if (!broken.ok()) return broken;
  // A coordinator that gives a reason was reached.
  return *attached || !ErrorReason(status).empty()
             ? status
             : ExplainTlsFailure(std::move(status), target.address,
                                 options_.security);
}

absl::Status GrpcCoordinatorLink::CheckOpened(
    const v1::SessionResponse& response) {
  if (!response.has_opened() || response.opened().session_id().empty()) {
    return MakeError(absl::StatusCode::kInternal, "PROTOCOL_VIOLATION",
                     "the coordinator's first message names no session");
  }
  const v1::SessionOpened& opened = response.opened();
  if (opened_.has_value() && opened.session_id() != opened_->session_id) {
    // The log and errors show only a part of an id, because ids are secret.
    return MakeError(
        absl::StatusCode::kInternal, "PROTOCOL_VIOLATION",
        absl::StrCat("the coordinator answered for session ",
                     log::ShortId(opened.session_id()), " instead of ",
                     log::ShortId(opened_->session_id)));
  }
  return absl::OkStatus();
}

absl::Status GrpcCoordinatorLink::ServeCall(BoundedCall* call, bool* attached) {
  v1::SessionResponse response;
  absl::Status broken;
  if (!call->ReadMessage(&response, &broken)) return broken;
  DJINN_RETURN_IF_ERROR(term_.Note(response.term()));
  bool again = false;
  {
    MutexLock lock(&mu_);
    DJINN_RETURN_IF_ERROR(CheckOpened(response));
    options_.urgency->SetMaxClass(response.opened().max_priority_class());
    again = opened_.has_value();
    if (again) {
      log::Info("attached to the coordinator again",
                {{"session", log::ShortId(opened_->session_id)}});
    } else {
      opened_ =
          Opened{response.opened().session_id(), response.opened().tenant()};
    }
  }
  *attached = true;
  if (again) events_->OnAttachedAgain();
  {
    MutexLock lock(&mu_);
    logged_ = absl::OkStatus();
    attached_ = true;
    outbox_.BeginStream();
    changed_.SignalAll();
  }
  while (call->ReadMessage(&response, &broken)) {
    DJINN_RETURN_IF_ERROR(term_.Note(response.term()));
    OnResponse(std::move(response));
  }
  return broken;
}

void GrpcCoordinatorLink::OnResponse(v1::SessionResponse response) {
  if (response.has_ended()) {
    {
      MutexLock lock(&mu_);
      outbox_.NoteEnded(response.ended().lease_id());
    }
    events_->OnLeaseEnded(response.ended().lease_id(),
                          response.ended().reason());
    return;
  }
  if (response.has_migrate()) {
    {
      MutexLock lock(&mu_);
      outbox_.NoteHeld(response.migrate().to().lease().lease_id());
    }
    return events_->OnMigrationRequested(response.migrate());
  }
  if (response.has_stages()) return events_->OnStages(response.stages());
  if (response.has_lineage()) {
    return events_->OnLineageAsked(response.lineage());
  }
  if (response.has_granted() || response.has_refused()) {
    MutexLock lock(&mu_);
    outbox_.TakeLeaseAnswer(std::move(response));
    changed_.SignalAll();
  }
}

void GrpcCoordinatorLink::WriteRequests() {
  MutexLock lock(&mu_);
  while (!stopped_) {
    std::optional<v1::SessionRequest> request = NextRequest();
    if (!request.has_value()) {
      changed_.Wait(&mu_);
      continue;
    }
    BoundedCall* const call = call_;
    writing_ = true;
    mu_.Unlock();
    // The reader notices a failed write as the end of the stream.
    const bool begun = call->WriteMessage(*request);
    mu_.Lock();
    writing_ = false;
    if (begun && request->has_graph()) outbox_.graphs().Pop();
    if (!begun) outbox_.KeepReport(*std::move(request));
    changed_.SignalAll();
  }
}

std::optional<v1::SessionRequest> GrpcCoordinatorLink::NextRequest() {
  if (!attached_ || farewell_said_) return std::nullopt;
  if (auto request = outbox_.Next(*options_.urgency)) return request;
  if (!closing_) return std::nullopt;
  farewell_said_ = true;
  v1::SessionRequest request;
  request.mutable_close();
  return request;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CoordinatorLink>> MakeGrpcCoordinatorLink(
    const std::string& address, const std::string& token,
    CoordinatorLinkOptions options) {
  if (options.urgency == nullptr) {
    options.urgency = std::make_shared<SessionUrgency>();
  }
  DJINN_ASSIGN_OR_RETURN(std::unique_ptr<CoordinatorChannels> channels,
                         CoordinatorChannels::Make(address, options.security));
  return std::make_unique<GrpcCoordinatorLink>(std::move(channels), address,
                                               token, std::move(options));
}

}  // namespace djinn
