// The floor for a round trip: a bare gRPC stream to a bare server in a process
// of its own.
#ifndef TESTS_BENCH_PING_PONG_PEER_H_
#define TESTS_BENCH_PING_PONG_PEER_H_

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/bench/child_process.h"

namespace djinn::bench {

// One open stream. Not thread-safe.
class PingPongStream {
 public:
  static absl::StatusOr<std::unique_ptr<PingPongStream>> Open(
      const std::string& address);
  ~PingPongStream();

  // Sends a message with `request_bytes` of payload and waits for one with
  // `reply_bytes`, `count` times. Appends each round trip's seconds. DataLoss
  // when an answer is not what was asked for.
  absl::Status Exchange(size_t request_bytes, size_t reply_bytes, int count,
                        std::vector<double>* seconds);

 private:
  class Impl;
  explicit PingPongStream(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

// A running server and a stream to each of its addresses, by name: "unix" or
// "tcp", a slash, and the way of serving: "callback" or "sync".
class PingPongPeer {
 public:
  static absl::StatusOr<std::unique_ptr<PingPongPeer>> Start();

  std::map<std::string, std::unique_ptr<PingPongStream>>& streams() {
    return streams_;
  }

 private:
  explicit PingPongPeer(std::unique_ptr<ChildProcess> server)
      : server_(std::move(server)) {}

  const std::unique_ptr<ChildProcess> server_;
  // Closed before the server ends.
  std::map<std::string, std::unique_ptr<PingPongStream>> streams_;
};

}  // namespace djinn::bench

#endif  // TESTS_BENCH_PING_PONG_PEER_H_
