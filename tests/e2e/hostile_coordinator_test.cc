// Sends invalid requests to a real coordinator over the wire. Each gets the
// status that the protos promise and does not affect other sessions.
#include <functional>
#include <string>
#include <vector>

#include "djinn/v1/session.pb.h"
#include "gtest/gtest.h"
#include "tests/e2e/hostile_fixture.h"
#include "tests/e2e/raw_call.h"

namespace djinn {
namespace {

using absl::StatusCode;
using HostileCoordinatorTest = HostileWireTest;

struct BadAttach {
  const char* name;
  StatusCode code;
  const char* reason;
  std::vector<std::string> texts;
  std::function<void(AttachStream*)> act;
};

v1::SessionRequest OpenRequest() {
  v1::SessionRequest request;
  request.mutable_open()->set_protocol_version(kProtocolVersion);
  return request;
}

TEST_F(HostileCoordinatorTest, AttachingWrongly) {
  const std::vector<BadAttach> cases = {
      {"a lease before the session",
       StatusCode::kInvalidArgument,
       "PROTOCOL_VIOLATION",
       {},
       [](AttachStream* s) {
         v1::SessionRequest request;
         request.mutable_lease();
         s->Send(request);
       }},
      {"two openings",
       StatusCode::kInvalidArgument,
       "PROTOCOL_VIOLATION",
       {},
       [](AttachStream* s) {
         s->Send(OpenRequest());
         s->Send(OpenRequest());
       }},
      {"nothing",
       StatusCode::kInvalidArgument,
       "PROTOCOL_VIOLATION",
       {},
       [](AttachStream* s) {
         s->Send(OpenRequest());
         s->Send({});
       }},
      {"a later protocol",
       StatusCode::kFailedPrecondition,
       "PROTOCOL_VERSION",
       {"version 1", "version 7"},
       [](AttachStream* s) {
         v1::SessionRequest request = OpenRequest();
         request.mutable_open()->set_protocol_version(7);
         s->Send(request);
       }},
      {"an id that is none",
       StatusCode::kInvalidArgument,
       "PROTOCOL_VIOLATION",
       {},
       [](AttachStream* s) {
         v1::SessionRequest request = OpenRequest();
         request.mutable_open()->set_resume_session_id("../../etc/passwd");
         s->Send(request);
       }},
      {"device four billion",
       StatusCode::kInvalidArgument,
       "PROTOCOL_VIOLATION",
       {},
       [](AttachStream* s) {
         s->Send(OpenRequest());
         v1::SessionRequest request;
         request.mutable_lease()->set_virtual_device(~0u);
         s->Send(request);
       }},
      {"a lease given back that has no name",
       StatusCode::kInvalidArgument,
       "PROTOCOL_VIOLATION",
       {},
       [](AttachStream* s) {
         s->Send(OpenRequest());
         v1::SessionRequest request;
         request.mutable_returned();
         s->Send(request);
       }},
      {"a graph that is none",
       StatusCode::kInvalidArgument,
       "MALFORMED_GRAPH",
       {},
       [](AttachStream* s) {
         s->Send(OpenRequest());
         v1::SessionRequest request;
         *request.mutable_graph() = Add();
         request.mutable_graph()->mutable_nodes(0)->set_operator_index(9);
         s->Send(request);
       }},
  };
  for (const BadAttach& test : cases) {
    SCOPED_TRACE(test.name);
    const auto attach = OpenAttach(Coordinator(), Token());
    test.act(attach.get());
    ExpectStatus(attach->WaitEnd(), test.code, test.reason, test.texts);
  }
}

TEST_F(HostileCoordinatorTest, EveryServiceWantsItsOwnToken) {
  const std::string admin =
      ReadFirstWord(environment->cluster().admin_token_file());
  for (const std::string& token : {admin, std::string("guess")}) {
    const auto attach = OpenAttach(Coordinator(), token);
    attach->Send(OpenRequest());
    ExpectStatus(attach->WaitEnd(), StatusCode::kUnauthenticated,
                 "TOKEN_UNKNOWN");
  }
  const std::string attach = "/djinn.v1.Session/Attach";
  EXPECT_EQ(CallRaw(Coordinator(), attach, {""}).code(),
            StatusCode::kUnauthenticated);
  for (const std::string method :
       {"/djinn.v1.WorkerRegistry/Synchronize", "/djinn.v1.Admin/ListWorkers",
        "/djinn.v1.Admin/ListSessions", "/djinn.v1.Admin/GetGraph"}) {
    for (const std::string& token : {Token(), std::string("guess")}) {
      const absl::Status status = CallRaw(Coordinator(), method, {""}, token);
      ExpectStatus(status, StatusCode::kUnauthenticated, "TOKEN_UNKNOWN");
    }
  }
}

}  // namespace
}  // namespace djinn
