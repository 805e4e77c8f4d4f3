// Tests the services over real gRPC, with a fake clock: what the wire adds to
// the cluster's rules.
#include "coordinator/server/coordinator.h"

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "common/base/error.h"
#include "common/lease/lease_verifier.h"
#include "common/net/raw_connection.h"
#include "common/net/testing/descriptor_limit.h"
#include "coordinator/admin/explain.h"
#include "coordinator/admin/scrape.h"
#include "coordinator/cluster/requests.h"
#include "coordinator/cluster/sessions.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/server/coordinator_fixture.h"
#include "coordinator/testing/testing.h"
#include "djinn/v1/admin.grpc.pb.h"
#include "djinn/v1/session.grpc.pb.h"
#include "djinn/v1/worker_registry.grpc.pb.h"
#include "gmock/gmock.h"
#include "google/protobuf/unknown_field_set.h"
#include "gtest/gtest.h"
#include "scheduler/placement/work.h"

namespace djinn::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST_F(CoordinatorTest, LeaseFromRequestToGrant) {
  v1::WorkerState state = TestWorker("w0");
  auto worker = Synchronize("join-token");
  worker->Send(state);
  EXPECT_EQ(worker->Read().revision(), 1u);

  std::string session_id;
  auto session = Open("red-token", &session_id);
  session->Send(AskLease(0));
  const v1::DesiredState desired = worker->Read();
  ASSERT_THAT(desired.leases(), SizeIs(1));
  state.set_applied_revision(desired.revision());
  *state.add_sessions()->mutable_lease() = desired.leases(0);
  worker->Send(state);
  const v1::LeaseGranted granted = session->Read().granted();
  EXPECT_EQ(granted.lease().token(), desired.leases(0).SerializeAsString());

  v1::SessionRequest close;
  close.mutable_close();
  session->Send(close);
  EXPECT_EQ(session->Finish(), absl::OkStatus());
  EXPECT_TRUE(Sessions().empty());
  EXPECT_THAT(worker->Read().drop_session_ids(), ElementsAre(session_id));
}

TEST_F(CoordinatorTest, WrongTokensAreTypedErrors) {
  for (const char* token : {"", "red", "join-token"}) {
    const absl::Status status = Attach(token)->Finish();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
    EXPECT_EQ(ErrorReason(status), "TOKEN_UNKNOWN");
  }
  EXPECT_EQ(ErrorReason(Synchronize("red-token")->Finish()), "TOKEN_UNKNOWN");
  EXPECT_EQ(ErrorReason(Ask<v1::ListWorkersResponse>(
                            &v1::Admin::Stub::ListWorkers,
                            v1::ListWorkersRequest(), "red-token")
                            .status()),
            "TOKEN_UNKNOWN");
}

TEST_F(CoordinatorTest, PeersThatShowedATokenStayBesideManyThatShowNone) {
  {
    // Leaves room for 32 connections without a token.
    const DescriptorLimit limit(256);
    Restart();
  }
  const std::string& address = coordinator_->address();
  workers_ = v1::WorkerRegistry::NewStub(
      MakeChannel(address, {.connection = 1}).value());
  auto worker = Synchronize("join-token");
  worker->Send(TestWorker("w0"));
  EXPECT_EQ(worker->Read().revision(), 1u);
  std::string session_id;
  auto session = Open("red-token", &session_id);
  const std::vector<Socket> others = ConnectIdleClients(address, 64);
  AwaitHangUp(others.front());
  session->Send(AskLease(0));
  EXPECT_THAT(worker->Read().leases(), SizeIs(1));
}

TEST_F(CoordinatorTest, WrongWindowAndWrongOrder) {
  auto window = Attach("red-token");
  v1::SessionRequest request;
  *request.mutable_open() = TestOpen();
  request.mutable_open()->set_protocol_version(9);
  window->Send(request);
  EXPECT_EQ(ErrorReason(window->Finish()), "PROTOCOL_VERSION");

  auto order = Attach("red-token");
  order->Send(AskLease(0));
  EXPECT_EQ(ErrorReason(order->Finish()), "PROTOCOL_VIOLATION");

  std::string session_id;
  auto empty = Open("red-token", &session_id);
  empty->Send(v1::SessionRequest());
  EXPECT_EQ(ErrorReason(empty->Finish()), "PROTOCOL_VIOLATION");
}

TEST_F(CoordinatorTest, GraphsAreStoredAndCountedPerSession) {
  std::string red_id, blue_id;
  auto red = Open("red-token", &red_id);
  auto blue = Open("blue-token", &blue_id);
  v1::SessionRequest request;
  *request.mutable_graph() = TestGraph(3);
  for (auto* stream : {red.get(), red.get(), blue.get()}) {
    stream->Send(request);
  }
  // Messages are handled in order, so that the end of the stream shows that the
  // graphs were handled.
  v1::SessionRequest close;
  close.mutable_close();
  for (auto* stream : {red.get(), blue.get()}) {
    stream->Send(close);
    EXPECT_EQ(stream->Finish(), absl::OkStatus());
  }
  const auto graphs = Ask<v1::ListGraphsResponse>(&v1::Admin::Stub::ListGraphs,
                                                  v1::ListGraphsRequest());
  ASSERT_TRUE(graphs.ok()) << graphs.status();
  ASSERT_THAT(graphs->graphs(), SizeIs(1));
  EXPECT_EQ(graphs->graphs(0).definition_count(), 2u);
  v1::GetGraphRequest get;
  get.set_fingerprint(graphs->graphs(0).fingerprint().substr(0, 8));
  EXPECT_EQ(
      Ask<v1::GraphInfo>(&v1::Admin::Stub::GetGraph, get)->graph().nodes_size(),
      1);
}

TEST_F(CoordinatorTest, AMessageThatIsTooLargeEndsItsStream) {
  for (const size_t size : {size_t{65} << 10, size_t{5} << 20}) {
    std::string id;
    auto stream = Open("red-token", &id);
    v1::SessionRequest close;
    close.mutable_close();
    close.GetReflection()->MutableUnknownFields(&close)->AddLengthDelimited(
        99, std::string(size, 'x'));
    stream->Send(close);
    const absl::Status status = stream->Finish();
    EXPECT_EQ(ErrorReason(status), "PROTOCOL_VIOLATION") << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("at most 65536 are allowed"));
  }
}

TEST_F(CoordinatorTest, TooLargeGraphIsLeftOut) {
  std::string id;
  auto stream = Open("red-token", &id);
  v1::SessionRequest request;
  *request.mutable_graph() = TestGraph(3);
  request.mutable_notes()->add_notes()->set_location(std::string(4 << 20, 'x'));
  request.mutable_notes()->add_note_of_node(1);
  stream->Send(request);
  // The session continues after such a graph, and other graphs of it are
  // accepted.
  request.mutable_notes()->mutable_notes(0)->set_location(
      std::string(1 << 20, 'x'));
  *request.mutable_graph() = TestGraph(4);
  stream->Send(request);
  v1::SessionRequest close;
  close.mutable_close();
  stream->Send(close);
  EXPECT_EQ(stream->Finish(), absl::OkStatus());
  const auto graphs = Ask<v1::ListGraphsResponse>(&v1::Admin::Stub::ListGraphs,
                                                  v1::ListGraphsRequest());
  ASSERT_TRUE(graphs.ok()) << graphs.status();
  EXPECT_THAT(graphs->graphs(), SizeIs(1));
  Exposition out;
  scrape::Collect(*coordinator_->cluster(), &out);
  EXPECT_THAT(out.Text(), HasSubstr("djinn_rejections_total{tenant=\"red\","
                                    "reason=\"GRAPH_TOO_LARGE\"} 1\n"));
}

TEST_F(CoordinatorTest, MalformedGraphEndsOnlyItsStream) {
  std::string red_id, blue_id;
  auto red = Open("red-token", &red_id);
  auto blue = Open("blue-token", &blue_id);
  v1::SessionRequest request;
  *request.mutable_graph() = TestGraph(3);
  request.mutable_graph()->mutable_nodes(0)->set_operator_index(7);
  red->Send(request);
  EXPECT_EQ(red->Finish().code(), absl::StatusCode::kInvalidArgument);
  *request.mutable_graph() = TestGraph(3);
  blue->Send(request);
  v1::SessionRequest close;
  close.mutable_close();
  blue->Send(close);
  EXPECT_EQ(blue->Finish(), absl::OkStatus());
}

TEST_F(CoordinatorTest, RestartLosesNothing) {
  v1::WorkerState state = TestWorker("w0");
  auto worker = Synchronize("join-token");
  worker->Send(state);
  worker->Read();
  std::string session_id;
  auto session = Open("red-token", &session_id);
  session->Send(AskLease(0));
  const v1::DesiredState desired = worker->Read();
  *state.add_sessions()->mutable_lease() = desired.leases(0);
  state.set_applied_revision(desired.revision());
  worker->Send(state);
  const std::string lease_id = session->Read().granted().lease().lease_id();

  Restart();
  EXPECT_EQ(worker->Finish().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(session->Finish().code(), absl::StatusCode::kUnavailable);
  worker = Synchronize("join-token");
  state.set_applied_revision(0);
  worker->Send(state);
  const v1::DesiredState adopted = worker->Read();
  EXPECT_THAT(adopted.drop_session_ids(), SizeIs(0));
  EXPECT_EQ(UncheckedClaims(adopted.leases(0)).lease_id(), lease_id);
  const std::string before = session_id;
  session = Open("red-token", &session_id);
  EXPECT_EQ(session_id, before);
  EXPECT_EQ(Sessions()[0].state(), v1::SessionInfo::ATTACHED);
}

TEST_F(CoordinatorTest, LearnedFactorsAreInTheStateFile) {
  config_.state_file = testing::TempDir() + "/learned.db";
  config_.placement_policy = "minimize_cost";
  Restart();
  const auto open = [&] {
    return sessions::Attach(*coordinator_->cluster(), TestTenant("red"),
                            TestOpen(), std::make_shared<SilentWaker>());
  };
  const auto join = [&] {
    // An hour of the first worker costs less, but the work costs more there.
    for (const auto& [id, price, speed] :
         {std::tuple("cheap", 1, 1e11), std::tuple("fast", 5, 1e12)}) {
      v1::WorkerState state = TestWorker(id);
      state.set_price_per_hour(price);
      state.mutable_speed()->set_flops_per_second(speed);
      state.mutable_speed()->set_bytes_per_second(1e12);
      ASSERT_TRUE(workers::Join(*coordinator_->cluster(), state,
                                std::make_shared<SilentWaker>())
                      .ok());
    }
  };
  const auto place = [&] {
    const StreamId session = *open();
    EXPECT_TRUE(requests::Request(*coordinator_->cluster(), session,
                                  TestLeaseRequest(0))
                    .ok());
    const std::string worker_id =
        explain::ExplainSession(*coordinator_->cluster(), session.owner)
            ->devices(0)
            .decision()
            .worker_id();
    sessions::Close(*coordinator_->cluster(), session);
    return worker_id;
  };
  join();
  EXPECT_EQ(place(), "cheap");
  auto work = std::make_shared<scheduler::Work>();
  work->Add({semantics::OpClass::kMatmul,
             semantics::Phase::kForward,
             {1'000'000'000'000, 0, 0},
             1});
  sessions::NoteGraph(*coordinator_->cluster(), *open(), "s", work);
  EXPECT_EQ(place(), "fast");
  Restart();
  join();
  EXPECT_EQ(place(), "fast");
}

TEST_F(CoordinatorTest, BrokenStreamTimesOut) {
  // The break arrives at an unknown time; the next tick then ends the session.
  config_.session_timeout = absl::ZeroDuration();
  Restart(/*tick=*/true);
  auto worker = Synchronize("join-token");
  v1::WorkerState state = TestWorker("w0");
  worker->Send(state);
  worker->Read();
  std::string session_id;
  auto session = Open("red-token", &session_id);
  session->Send(AskLease(0));
  state.set_applied_revision(worker->Read().revision());
  worker->Send(state);
  session->Read();
  session.reset();
  EXPECT_THAT(worker->Read().drop_session_ids(), ElementsAre(session_id));
  EXPECT_TRUE(Sessions().empty());

  auto late = Attach("red-token");
  v1::SessionRequest request;
  *request.mutable_open() = TestOpen(session_id);
  late->Send(request);
  const absl::Status expired = late->Finish();
  EXPECT_EQ(expired.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ErrorReason(expired), "SESSION_EXPIRED");
}

TEST_F(CoordinatorTest, AdminListsInPages) {
  auto w0 = Synchronize("join-token");
  w0->Send(TestWorker("w0"));
  w0->Read();
  auto w1 = Synchronize("join-token");
  w1->Send(TestWorker("w1", 2));
  w1->Read();
  const auto list = [this](const v1::ListWorkersRequest& request) {
    return Ask<v1::ListWorkersResponse>(&v1::Admin::Stub::ListWorkers, request);
  };
  v1::ListWorkersRequest request;
  request.set_page_size(1);
  auto page = list(request);
  ASSERT_TRUE(page.ok()) << page.status();
  ASSERT_THAT(page->workers(), SizeIs(1));
  EXPECT_EQ(page->workers(0).worker_id(), "w0");
  request.set_page_token(page->next_page_token());
  page = list(request);
  ASSERT_THAT(page->workers(), SizeIs(1));
  EXPECT_EQ(page->workers(0).worker_id(), "w1");
  EXPECT_EQ(page->next_page_token(), "");
  request.set_page_size(-1);
  EXPECT_EQ(ErrorReason(list(request).status()), "PAGE_SIZE_NEGATIVE");
  v1::ListLeasesRequest other;
  other.set_page_token(request.page_token());
  EXPECT_EQ(ErrorReason(
                Ask<v1::ListLeasesResponse>(&v1::Admin::Stub::ListLeases, other)
                    .status()),
            "PAGE_TOKEN_MALFORMED");
}

TEST_F(CoordinatorTest, AdminGetsAndLists) {
  auto worker = Synchronize("join-token");
  worker->Send(TestWorker("w0"));
  worker->Read();
  v1::GetWorkerRequest get;
  get.set_worker_id("w0");
  const auto info = Ask<v1::WorkerInfo>(&v1::Admin::Stub::GetWorker, get);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->device(), "fake");
  EXPECT_EQ(info->state(), v1::WorkerInfo::ACTIVE);
  get.set_worker_id("w1");
  const absl::Status missing =
      Ask<v1::WorkerInfo>(&v1::Admin::Stub::GetWorker, get).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrorReason(missing), "WORKER_UNKNOWN");

  const auto tenants = Ask<v1::ListTenantsResponse>(
      &v1::Admin::Stub::ListTenants, v1::ListTenantsRequest());
  EXPECT_THAT(tenants->tenants(), SizeIs(2));
  std::string session_id;
  auto session = Open("red-token", &session_id);
  v1::GetSessionRequest of;
  of.set_session_id(session_id);
  const auto shown = Ask<v1::SessionInfo>(&v1::Admin::Stub::GetSession, of);
  ASSERT_TRUE(shown.ok()) << shown.status();
  EXPECT_EQ(shown->session_id(), session_id.substr(0, 8));
  EXPECT_EQ(shown->program(), "test");
}

TEST_F(CoordinatorTest, AWrongConfigurationChangesNothing) {
  next_config_ = MakeError(absl::StatusCode::kInvalidArgument, "BAD_CONFIG",
                           "c.yaml:3: tenants: needs at least one");
  const absl::Status status =
      Ask<v1::ReloadConfigResponse>(&v1::Admin::Stub::ReloadConfig,
                                    v1::ReloadConfigRequest())
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ErrorReason(status), "BAD_CONFIG");
  EXPECT_EQ(status.message(), "c.yaml:3: tenants: needs at least one");
  Exposition out;
  coordinator_->reloader()->Collect(&out);
  EXPECT_NE(out.Text().find("djinn_config_last_reload_successful 0\n"),
            std::string::npos);
  std::string id;
  Open("red-token", &id);
  EXPECT_FALSE(id.empty());
  EXPECT_EQ(ErrorReason(Ask<v1::ReloadConfigResponse>(
                            &v1::Admin::Stub::ReloadConfig,
                            v1::ReloadConfigRequest(), "red-token")
                            .status()),
            "TOKEN_UNKNOWN");
}

TEST_F(CoordinatorTest, TenantsComeAndGoWhileItRuns) {
  std::string red;
  const auto stream = Open("red-token", &red);
  Config next = TestConfig();
  next.tenants = {TestTenant("blue"), TestTenant("green")};
  next.tenants[0].max_sessions = 1;
  next.session_timeout += absl::Seconds(1);
  next_config_ = next;
  const absl::StatusOr<v1::ReloadConfigResponse> changes =
      Ask<v1::ReloadConfigResponse>(&v1::Admin::Stub::ReloadConfig,
                                    v1::ReloadConfigRequest());
  ASSERT_TRUE(changes.ok()) << changes.status();
  EXPECT_THAT(changes->added_tenants(), ElementsAre("green"));
  EXPECT_THAT(changes->changed_tenants(), ElementsAre("blue"));
  EXPECT_THAT(changes->removed_tenants(), ElementsAre("red"));
  EXPECT_THAT(changes->pending_settings(), ElementsAre("session_timeout"));
  EXPECT_EQ(ErrorReason(stream->Finish()), "TOKEN_UNKNOWN");
  EXPECT_EQ(ErrorReason(Attach("red-token")->Finish()), "TOKEN_UNKNOWN");
  std::string green;
  Open("green-token", &green);
  EXPECT_FALSE(green.empty());
}

}  // namespace
}  // namespace djinn::coordinator
