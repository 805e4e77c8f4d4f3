// Measures the shortest time of a round trip and of a transfer without Djinn,
// over a bare gRPC stream and over a raw TCP socket. This process also runs the
// other ends.
#ifndef TESTS_BENCH_FLOORS_H_
#define TESTS_BENCH_FLOORS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace djinn::bench {

// Fills `size` bytes, a multiple of 8. The bytes of different seeds differ
// everywhere.
void Fill(uint64_t seed, void* bytes, size_t size);
// Returns whether Fill(seed) gives these bytes.
bool IsFilled(uint64_t seed, const void* bytes, size_t size);

// Measures a gRPC stream of bytes to a callback server that returns each
// message. Not thread-safe.
class GrpcPingPong {
 public:
  // `address` is "unix:PATH" or "127.0.0.1:0".
  static absl::StatusOr<std::unique_ptr<GrpcPingPong>> Start(
      const std::string& address);
  ~GrpcPingPong();

  // Sends a message of `request_bytes` and waits for an answer of
  // `reply_bytes`, `count` times. Both sizes are at least 8. Appends the
  // seconds of each round trip. Returns DataLoss for a wrong answer.
  absl::Status Exchange(size_t request_bytes, size_t reply_bytes, int count,
                        std::vector<double>* seconds);

 private:
  class Impl;
  explicit GrpcPingPong(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

// Measures a TCP connection over loopback, whose receiver copies into fresh
// memory. Not thread-safe.
class RawSocket {
 public:
  static absl::StatusOr<std::unique_ptr<RawSocket>> Start();
  ~RawSocket();

  // Sends `size` bytes from Fill(seed), and returns the seconds until the
  // receiver has all of them. Returns DataLoss if the receiver has other bytes.
  absl::StatusOr<double> Move(uint64_t seed, size_t size);

 private:
  RawSocket(int near, int far);
  // Receives and answers, in a thread of its own.
  void Serve();

  const int near_, far_;
  std::thread server_;
};

}  // namespace djinn::bench

#endif  // TESTS_BENCH_FLOORS_H_
