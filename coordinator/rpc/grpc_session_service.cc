#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "common/net/bearer.h"
#include "common/net/call_metrics.h"
#include "common/net/raw_message.h"
#include "coordinator/cluster/placement/batch_planner.h"
#include "coordinator/cluster/placement/migration.h"
#include "coordinator/cluster/placement/stage_planner.h"
#include "coordinator/cluster/placement/stages.h"
#include "coordinator/cluster/reports.h"
#include "coordinator/cluster/requests.h"
#include "coordinator/cluster/sessions.h"
#include "coordinator/rpc/services.h"
#include "coordinator/rpc/session_traces.h"
#include "coordinator/rpc/stream_reactor.h"
#include "coordinator/tables/cluster_limits.h"
#include "coordinator/tables/errors.h"
#include "djinn/v1/session.grpc.pb.h"

namespace djinn::coordinator {
namespace {

using Request = v1::SessionRequest;
using Response = v1::SessionResponse;

// Most bytes of a message without a graph. The largest, a lease request with
// all its hints or an outcome with its error, have a few thousand bytes.
constexpr size_t kMaxMessageBytes = 64 << 10;
// Most bytes of a message with a graph and its notes. Other limits bound a
// graph's counts rather than its bytes. A kilobyte for each of the most nodes
// is several times what nodes need.
constexpr size_t kMaxGraphBytes = 4 << 20;

// Returns whether the message begins with a graph. A message with a graph does
// if its fields are written in order.
bool BeginsWithGraph(const grpc::ByteBuffer& bytes) {
  constexpr uint8_t kTag = Request::kGraphFieldNumber << 3 | 2;
  std::vector<grpc::Slice> slices;
  if (!bytes.Dump(&slices).ok()) return false;
  for (const grpc::Slice& slice : slices) {
    if (slice.size() > 0) return *slice.begin() == kTag;
  }
  return false;
}

class AttachReactor : public StreamReactor<Request, Response>,
                      public std::enable_shared_from_this<AttachReactor> {
 public:
  AttachReactor(grpc::CallbackServerContext* context, CountedStream call,
                std::shared_ptr<const Tenant> tenant, ClusterState* cluster,
                GraphStore* graphs, GraphIntake* intake, SpanSink* spans)
      : StreamReactor(context, std::move(call)),
        tenant_(std::move(tenant)),
        cluster_(cluster),
        graphs_(graphs),
        intake_(intake),
        traces_(cluster, spans, tenant_->name) {}

 private:
  absl::StatusOr<Then> OnBytes(grpc::ByteBuffer* bytes) override {
    const size_t size = bytes->Length();
    if (open_ && size > kMaxGraphBytes && BeginsWithGraph(*bytes)) {
      bytes->Clear();
      LeaveOut(MakeError(absl::StatusCode::kResourceExhausted,
                         "GRAPH_TOO_LARGE",
                         absl::StrCat("a graph of ", size, " bytes: at most ",
                                      kMaxGraphBytes)));
      return Then::kReadOn;
    }
    Request request;
    if (size <= kMaxGraphBytes) {
      DJINN_RETURN_IF_ERROR(ParseRawMessage(bytes, &request));
    }
    if (size > kMaxMessageBytes && !request.has_graph()) {
      bytes->Clear();
      return Violation(absl::StrCat("a message of ", size,
                                    " bytes that is no graph: at most ",
                                    kMaxMessageBytes, " are allowed"));
    }
    return OnRequest(&request);
  }

  absl::StatusOr<Then> OnRequest(Request* request) override {
    if (request->has_open()) {
      if (open_) return Violation("a second open message");
      absl::StatusOr<StreamId> id = sessions::Attach(
          *cluster_, *tenant_, request->open(), shared_from_this());
      if (!id.ok()) {
        cluster_->metrics.CountRejection(tenant_->name, id.status());
        return id.status();
      }
      {
        MutexLock lock(&mu_);
        id_ = *std::move(id);
      }
      open_ = true;
      Pump();
      return Then::kReadOn;
    }
    if (!open_) return Violation("the first message must be open");
    switch (request->message_case()) {
      case Request::kLease:
        traces_.NoteRequest(request->lease());
        DJINN_RETURN_IF_ERROR(
            requests::Request(*cluster_, *id_, request->lease()));
        return Then::kReadOn;
      case Request::kUrgency:
        DJINN_RETURN_IF_ERROR(
            sessions::SetUrgency(*cluster_, *id_, request->urgency()));
        return Then::kReadOn;
      case Request::kGraph:
        return TakeGraph(request);
      case Request::kMigrated:
        DJINN_RETURN_IF_ERROR(
            migration::NoteOutcome(*cluster_, *id_, request->migrated()));
        traces_.NoteMigrated(request->migrated());
        return Then::kReadOn;
      case Request::kReturned:
        DJINN_RETURN_IF_ERROR(
            requests::Return(*cluster_, *id_, request->returned()));
        return Then::kReadOn;
      case Request::kRecovered:
        DJINN_RETURN_IF_ERROR(
            reports::NoteRecovery(*cluster_, *id_, request->recovered()));
        traces_.NoteRecovered(*request);
        return Then::kReadOn;
      case Request::kCheckpoint:
        DJINN_RETURN_IF_ERROR(
            reports::NoteCheckpoint(*cluster_, *id_, request->checkpoint()));
        return Then::kReadOn;
      case Request::kLineage:
        DJINN_RETURN_IF_ERROR(
            reports::TakeLineage(*cluster_, *id_, request->lineage()));
        return Then::kReadOn;
      case Request::kClose: {
        {
          MutexLock lock(&mu_);
          closing_ = true;
        }
        sessions::Close(*cluster_, *id_);
        End(absl::OkStatus());
        return Then::kWaitForReadOn;
      }
      default:
        return Violation("an empty message");
    }
  }

  // Notes that the graph is left out: placement does not learn from it. Logs
  // the first one of the stream.
  void LeaveOut(const absl::Status& why) {
    cluster_->metrics.CountRejection(tenant_->name, why);
    if (std::exchange(left_out_, true)) return;
    log::Warning("graphs are left out of learning",
                 {{"session", log::ShortId(id_->owner)},
                  {"tenant", tenant_->name},
                  {"error", why}});
  }

  absl::StatusOr<Then> TakeGraph(Request* request) {
    // Answers the client's request for a plan. The intake's thread calls it
    // after the stream has resumed reading, because planning takes time.
    std::function<void(const v1::Graph&, const std::string&)> answer =
        [](const v1::Graph&, const std::string&) {};
    if (request->has_stages()) {
      if (request->stages().virtual_device() >= kMaxVirtualDevices) {
        return Violation(absl::StrCat("stages of virtual device ",
                                      request->stages().virtual_device()));
      }
      answer = [this, stages = request->stages()](
                   const v1::Graph& graph, const std::string& fingerprint) {
        std::optional<StageMembers> members =
            stages::MembersOf(*cluster_, *id_, stages.virtual_device());
        if (!members.has_value()) return;
        if (!stages.has_recording()) {
          members->in_force =
              stages::InForce(*cluster_, *id_, stages.virtual_device(),
                              absl::BytesToHexString(fingerprint));
        }
        const auto plan =
            stages.has_recording() ? AnswerBatchRequest : AnswerStageRequest;
        stages::Answer(*cluster_, *id_,
                       plan(stages, graph, fingerprint, *members));
      };
    }
    auto done = [this, self = shared_from_this(), answer = std::move(answer)](
                    const v1::Graph& graph,
                    const absl::StatusOr<std::string>& fingerprint) {
      if (fingerprint.ok()) {
        GraphStore::Works works = graphs_->WorksOf(tenant_->name, *fingerprint);
        if (sessions::NoteGraph(*cluster_, *id_, *fingerprint,
                                std::move(works.own), std::move(works.shown))) {
          graphs_->CountDefinition(*fingerprint);
        }
        ReadOn();
        answer(graph, *fingerprint);
      } else {
        log::Warning("graph refused", {{"session", log::ShortId(id_->owner)},
                                       {"tenant", tenant_->name},
                                       {"error", fingerprint.status()}});
        End(fingerprint.status());
      }
    };
    const absl::Status taken = intake_->Submit(
        tenant_->name, std::move(*request->mutable_graph()),
        std::move(*request->mutable_notes()), program_, std::move(done));
    if (taken.ok()) return Then::kWaitForReadOn;
    LeaveOut(taken);
    return Then::kReadOn;
  }

  absl::StatusOr<std::optional<Response>> Next() override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!id_.has_value() || closing_) return std::nullopt;
    absl::StatusOr<std::optional<Response>> next =
        sessions::NextResponse(*cluster_, *id_);
    if (next.ok() && next->has_value()) traces_.NoteResponse(**next);
    return next;
  }

  void OnClosed() override {
    if (open_) sessions::Detach(*cluster_, *id_);
  }

  std::string PeerName() const override {
    return open_ ? absl::StrCat("session ", log::ShortId(id_->owner),
                                " of tenant ", tenant_->name)
                 : absl::StrCat("a client of tenant ", tenant_->name);
  }

  const std::shared_ptr<const Tenant> tenant_;
  ClusterState* const cluster_;
  GraphStore* const graphs_;
  GraphIntake* const intake_;
  SessionTraces traces_;
  // The graphs that this stream defined.
  const std::shared_ptr<semantics::Program> program_ =
      std::make_shared<semantics::Program>();
  // Set once, under mu_, by the thread that reads. That thread, and those that
  // it starts, may read it without the lock.
  std::optional<StreamId> id_;
  bool open_ = false;
  // True once LeaveOut() was called. Only the thread that reads uses it.
  bool left_out_ = false;
  // True once the client closed its session: it must not be told then that the
  // cluster does not know the session.
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
};

class Service
    : public v1::Session::WithRawCallbackMethod_Attach<v1::Session::Service> {
 public:
  Service(const Tenants* tenants, ClusterState* cluster, GraphStore* graphs,
          GraphIntake* intake, SpanSink* spans, CallMetrics* calls,
          UnprovenConnections* unproven)
      : tenants_(tenants),
        cluster_(cluster),
        graphs_(graphs),
        intake_(intake),
        spans_(spans),
        calls_(calls),
        unproven_(unproven) {}

  RawStream* Attach(grpc::CallbackServerContext* context) override {
    CountedStream call(calls_, "djinn.v1.Session/Attach");
    absl::StatusOr<std::string> token = ExtractBearer(*context);
    using Found = absl::StatusOr<std::shared_ptr<const Tenant>>;
    const Found tenant =
        token.ok() ? tenants_->Authenticate(*token) : Found(token.status());
    if (!tenant.ok()) {
      log::Warning("session refused: unknown token",
                   {{"peer", context->peer()}});
      cluster_->metrics.CountRejection("", tenant.status());
      return new RefusedStream(tenant.status(), std::move(call));
    }
    NoteProven(*context, unproven_);
    return StreamReactor<Request, Response>::Begin(
        std::make_shared<AttachReactor>(context, std::move(call), *tenant,
                                        cluster_, graphs_, intake_, spans_));
  }

 private:
  const Tenants* const tenants_;
  ClusterState* const cluster_;
  GraphStore* const graphs_;
  GraphIntake* const intake_;
  SpanSink* const spans_;
  CallMetrics* const calls_;
  UnprovenConnections* const unproven_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeSessionService(
    const Tenants* tenants, ClusterState* cluster, GraphStore* graphs,
    GraphIntake* intake, SpanSink* spans, CallMetrics* calls,
    UnprovenConnections* unproven) {
  return std::make_unique<Service>(tenants, cluster, graphs, intake, spans,
                                   calls, unproven);
}

}  // namespace djinn::coordinator
