// A session with a lease on a worker, made by speaking the wire itself: for
// benchmarks of the servers, without the client library and its costs.
//
// Never in one process with the client library, which has its own protos.
#ifndef TESTS_BENCH_WIRE_SESSION_H_
#define TESTS_BENCH_WIRE_SESSION_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "djinn/v1/execution.grpc.pb.h"
#include "djinn/v1/session.grpc.pb.h"
#include "grpcpp/grpcpp.h"

namespace djinn::bench {

// Deals connections out over as many channels as it has.
class Channels {
 public:
  explicit Channels(size_t count) : count_(count) {}

  absl::StatusOr<std::shared_ptr<grpc::Channel>> Next(
      const std::string& address);

 private:
  const size_t count_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  size_t next_ = 0;
};

struct WireSession {
  std::unique_ptr<grpc::ClientContext> context;
  // The session lasts as long as this.
  std::unique_ptr<
      grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionResponse>>
      attach;
  std::string session_id;
  v1::Lease lease;
};

absl::StatusOr<WireSession> OpenWireSession(const std::string& coordinator,
                                            const std::string& token,
                                            Channels* channels);

// The first message to the session's worker.
v1::ControlRequest HelloOf(const WireSession& session);

absl::StatusOr<std::string> ReadToken(const std::string& file);

}  // namespace djinn::bench

#endif  // TESTS_BENCH_WIRE_SESSION_H_
