// The floor for moving bytes: a raw TCP socket over loopback to a process of
// its own, the receiver copying into fresh memory.
#ifndef TESTS_BENCH_RAW_SOCKET_PEER_H_
#define TESTS_BENCH_RAW_SOCKET_PEER_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "tests/bench/child_process.h"

namespace djinn::bench {

// Not thread-safe.
class RawSocketPeer {
 public:
  static absl::StatusOr<std::unique_ptr<RawSocketPeer>> Start();
  ~RawSocketPeer();

  // Moves Fill(seed) of this size and returns the seconds until the receiver
  // has it all. DataLoss when it has something else.
  absl::StatusOr<double> Upload(uint64_t seed, size_t size);
  absl::StatusOr<double> Download(uint64_t seed, size_t size);

 private:
  RawSocketPeer(std::unique_ptr<ChildProcess> server, int socket)
      : server_(std::move(server)), socket_(socket) {}

  const std::unique_ptr<ChildProcess> server_;
  const int socket_;
};

}  // namespace djinn::bench

#endif  // TESTS_BENCH_RAW_SOCKET_PEER_H_
