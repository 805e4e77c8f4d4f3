// Sends invalid hellos and invalid Bulk streams to a real worker over the wire.
// Each gets the status that the protos promise and does not affect other
// sessions.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/hash/hash.h"
#include "common/transport/stream.h"
#include "gtest/gtest.h"
#include "tests/e2e/eventually.h"
#include "tests/e2e/hostile_fixture.h"

namespace djinn {
namespace {

using absl::StatusCode;
using HostileHellosTest = HostileWireTest;

struct BadHello {
  const char* name;
  StatusCode code;
  const char* reason;
  std::vector<std::string> texts;
  std::function<void(v1::ClientHello*)> spoil;
};

TEST_F(HostileHellosTest, HellosThatAreRefused) {
  const std::vector<BadHello> cases = {
      {"another token",
       StatusCode::kUnauthenticated,
       "LEASE_UNKNOWN",
       {},
       [](v1::ClientHello* h) { h->set_lease_token(std::string(16, 'x')); }},
      {"no token",
       StatusCode::kUnauthenticated,
       "LEASE_UNKNOWN",
       {},
       [](v1::ClientHello* h) { h->clear_lease_token(); }},
      {"a prefix of the token",
       StatusCode::kUnauthenticated,
       "LEASE_UNKNOWN",
       {},
       [](v1::ClientHello* h) { h->mutable_lease_token()->pop_back(); }},
      {"another session's id",
       StatusCode::kUnauthenticated,
       "LEASE_UNKNOWN",
       {},
       [](v1::ClientHello* h) { h->set_session_id(std::string(32, 'a')); }},
      {"a living session's id",
       StatusCode::kUnauthenticated,
       "LEASE_UNKNOWN",
       {},
       [](v1::ClientHello* h) {
         h->set_session_id(bystander_->session().id());
       }},
      {"a living session's token",
       StatusCode::kUnauthenticated,
       "LEASE_UNKNOWN",
       {},
       [](v1::ClientHello* h) {
         h->set_lease_token(bystander_->session().lease().token());
       }},
      {"a later protocol",
       StatusCode::kFailedPrecondition,
       "PROTOCOL_VERSION",
       {"version 1", "version 7"},
       [](v1::ClientHello* h) { h->set_protocol_version(7); }},
      {"no protocol",
       StatusCode::kFailedPrecondition,
       "PROTOCOL_VERSION",
       {"version 1", "version 0"},
       [](v1::ClientHello* h) { h->clear_protocol_version(); }},
      {"another incarnation",
       StatusCode::kFailedPrecondition,
       "WRONG_INCARNATION",
       {},
       [](v1::ClientHello* h) {
         h->set_worker_incarnation(h->worker_incarnation() + 1);
       }},
      {"an older epoch",
       StatusCode::kFailedPrecondition,
       "STALE_EPOCH",
       {},
       [](v1::ClientHello* h) {
         h->set_session_epoch(h->session_epoch() - 1);
       }},
      {"an epoch of the future",
       StatusCode::kFailedPrecondition,
       "STALE_EPOCH",
       {},
       [](v1::ClientHello* h) {
         h->set_session_epoch(h->session_epoch() + 1);
       }},
  };
  const WireSession session(Coordinator(), Token());
  for (const BadHello& test : cases) {
    SCOPED_TRACE(test.name);
    v1::ControlRequest request;
    *request.mutable_hello() = session.Hello();
    test.spoil(request.mutable_hello());
    const auto control = session.OpenControl();
    control->Send(request);
    ExpectStatus(control->WaitEnd(), test.code, test.reason, test.texts);
  }
  // The lease is still valid.
  v1::ControlRequest request;
  *request.mutable_hello() = session.Hello();
  const auto control = session.OpenControl();
  control->Send(request);
  EXPECT_TRUE(control->Wait(
      [](const v1::ControlResponse& r) { return r.has_hello(); }));
}

TEST_F(HostileHellosTest, AMessageBeforeTheHello) {
  const WireSession session(Coordinator(), Token());
  for (const bool empty : {false, true}) {
    const auto control = session.OpenControl();
    v1::ControlRequest request;
    if (!empty) {
      *request.mutable_ordered() = Create(1, 0, 8);
      request.mutable_ordered()->set_sequence(1);
    }
    control->Send(request);
    ExpectStatus(control->WaitEnd(), StatusCode::kInvalidArgument,
                 "PROTOCOL_VIOLATION", {"hello"});
  }
}

TEST_F(HostileHellosTest, ASecondStreamOnALease) {
  Client client;
  const auto second = client.session().OpenControl();
  v1::ControlRequest request;
  *request.mutable_hello() = client.session().Hello();
  second->Send(request);
  ExpectStatus(second->WaitEnd(), StatusCode::kFailedPrecondition,
               "LEASE_IN_USE");
  EXPECT_EQ(client.ValueOf(1, 1), Values());
}

TEST_F(HostileHellosTest, BulkWithoutAHello) {
  const WireSession session(Coordinator(), Token());
  const auto bulk = session.OpenBulk();
  bulk->Send(Chunk(1, 0, "abc"));
  ExpectStatus(bulk->WaitEnd(), StatusCode::kInvalidArgument,
               "PROTOCOL_VIOLATION", {"hello"});
}

TEST_F(HostileHellosTest, ANinthBulkStreamOnALease) {
  Client client;
  const std::string bytes(kBulkChunkBytes + 50000, 'x');
  client.Send(InstallTransfer(9, 1, bytes.size(),
                              HashContent(bytes.data(), bytes.size())));
  ASSERT_TRUE(client.WaitDecision(1));
  client.bulk().Send(Chunk(1, 0, bytes.substr(0, kBulkChunkBytes)));
  std::vector<std::unique_ptr<BulkStream>> others;
  v1::BulkChunk hello;
  hello.mutable_hello()->set_session_id(client.session().id());
  hello.mutable_hello()->set_lease_token(client.session().lease().token());
  for (int i = 0; i < 8; ++i) {
    others.push_back(client.session().OpenBulk());
    others.back()->Send(hello);
  }
  // The worker refuses the stream that came last.
  const BulkStream* refused = nullptr;
  EXPECT_TRUE(Eventually([&] {
    for (const auto& other : others) {
      if (other->ended()) refused = other.get();
    }
    return refused != nullptr;
  }));
  for (const auto& other : others) {
    if (other.get() != refused) {
      EXPECT_FALSE(other->ended());
      continue;
    }
    ExpectStatus(other->WaitEnd(), StatusCode::kFailedPrecondition,
                 "LEASE_IN_USE", {"8 Bulk streams"});
  }
  client.bulk().Send(Chunk(1, kBulkChunkBytes, bytes.substr(kBulkChunkBytes)));
  EXPECT_EQ(client.ValueOf(9, 1), std::string(16, 'x'));
}

// This test is the last one, because it waits until the worker stops waiting
// for the right client.
TEST_F(HostileHellosTest, BulkUnderAnotherToken) {
  Client client;
  const auto bulk = client.session().OpenBulk();
  v1::BulkChunk hello;
  hello.mutable_hello()->set_session_id(client.session().id());
  hello.mutable_hello()->set_lease_token(std::string(16, 'x'));
  bulk->Send(hello);
  client.Send(InstallTransfer(
      9, 1, 100000, HashContent(std::string(100000, 'y').data(), 100000)));
  ASSERT_TRUE(client.WaitDecision(1));
  bulk->Send(Chunk(1, 0, std::string(100000, 'x')));
  EXPECT_FALSE(bulk->WaitEnd().ok());
  // The worker did not accept those bytes: the transfer still waits.
  const std::string bytes(100000, 'y');
  client.bulk().Send(Chunk(1, 0, bytes));
  EXPECT_EQ(client.ValueOf(9, 1), std::string(16, 'y'));
}

}  // namespace
}  // namespace djinn
