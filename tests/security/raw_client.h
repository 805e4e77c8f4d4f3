// A client that sends raw messages, for tests of walls.
#ifndef TESTS_SECURITY_RAW_CLIENT_H_
#define TESTS_SECURITY_RAW_CLIENT_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/e2e/wire_client.h"
#include "tests/e2e/wire_messages.h"
#include "tests/security/walls.h"

namespace djinn {

// A client after its hello: storage 1 holds Values() at version 1; graph 1 is
// Add() and has run once, into storage 2 at version 1.
class RawClient {
 public:
  RawClient(const Walls& walls, const std::string& tenant) {
    // On a busy machine, an executor may take longer to start than gRPC waits
    // for its connection, or one that is about to be lost is still named.
    for (int attempt = 1;; ++attempt) {
      control_.reset();
      session_ = std::make_unique<WireSession>(walls.coordinator(),
                                               Walls::TokenOf(tenant));
      v1::ControlRequest request;
      *request.mutable_hello() = session_->Hello();
      control_ = session_->OpenControl();
      control_->Send(request);
      const auto hello = control_->Wait(
          [](const v1::ControlResponse& r) { return r.has_hello(); });
      if (hello.has_value()) break;
      const absl::Status end = control_->WaitEnd();
      // WaitEnd() returns UNKNOWN where the executor has not answered yet.
      const bool slow = absl::IsUnavailable(end) || absl::IsUnknown(end);
      if (!slow || attempt == kAttempts) {
        ADD_FAILURE() << "no hello for " << tenant << ": " << end;
        return;
      }
    }
    Send(Install(1, 0, Values()));
    Send(Define(1, Add()));
    Send(RunOf(1, 1, 1, 2));
    EXPECT_EQ(ValueOf(2, 1), FloatBytes({2, 4, 6, 8}));
  }

  WireSession& session() { return *session_; }
  ControlStream& control() { return *control_; }
  std::string address() const { return session_->lease().worker_address(); }

  uint64_t Send(v1::Ordered message) {
    message.set_sequence(++sequence_);
    v1::ControlRequest request;
    *request.mutable_ordered() = std::move(message);
    request.set_acknowledged_reply(handled_);
    control_->Send(request);
    return sequence_;
  }
  // Acknowledges the reply and all before it, with the next message. The worker
  // keeps some MiB of replies that were not.
  void Acknowledge(const v1::ControlResponse& reply) {
    handled_ = std::max(handled_, reply.reply_number());
  }
  std::string ValueOf(uint64_t storage, uint64_t version) {
    const uint64_t sequence = Send(Read(storage, version));
    const auto reply = control_->Wait([&](const v1::ControlResponse& r) {
      return r.has_read() && r.read().sequence() == sequence;
    });
    if (!reply.has_value()) return control_->WaitEnd().ToString();
    return reply->read().has_error() ? reply->read().ShortDebugString()
                                     : reply->read().value();
  }
  // Returns whether the session computes as before.
  bool Works() {
    const uint64_t storage = ++last_storage_;
    Send(RunOf(1, 1, 1, storage));
    return ValueOf(1, 1) == Values() &&
           ValueOf(2, 1) == FloatBytes({2, 4, 6, 8}) &&
           ValueOf(storage, 1) == FloatBytes({2, 4, 6, 8});
  }
  // Runs the graph on storage 1 as the graph's first slot, and waits for its
  // end. Returns the error in the answer, or the end of the stream.
  std::string Attack(v1::Graph graph) {
    const uint64_t id = ++last_graph_;
    const uint64_t storage = ++last_storage_;
    Send(Define(id, std::move(graph)));
    Send(RunOf(id, 1, 1, storage));
    return ValueOf(storage, 1);
  }

 private:
  static constexpr int kAttempts = 6;

  std::unique_ptr<WireSession> session_;
  std::unique_ptr<ControlStream> control_;
  uint64_t sequence_ = 0;
  uint64_t handled_ = 0;
  uint64_t last_storage_ = 100;
  uint64_t last_graph_ = 100;
};

inline v1::Argument Integer(int64_t value) {
  v1::Argument argument;
  argument.set_integer(value);
  return argument;
}
inline v1::Argument Integers(const std::vector<int64_t>& values) {
  v1::Argument argument;
  argument.mutable_integers();
  for (const int64_t value : values) {
    argument.mutable_integers()->add_values(value);
  }
  return argument;
}

}  // namespace djinn

#endif  // TESTS_SECURITY_RAW_CLIENT_H_
