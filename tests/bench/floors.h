// Measures the least time of a round trip and of a transfer without Djinn: a
// bare gRPC stream and a raw TCP socket. The other end of each answers in this
// process.
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

// Measures a gRPC stream of bytes to a callback server that echoes. Not
// thread-safe.
class GrpcPingPong {
 public:
  // `address` is "unix:PATH" or "127.0.0.1:0".
  static absl::StatusOr<std::unique_ptr<GrpcPingPong>> Start(
      const std::string& address);
  ~GrpcPingPong();

  // Sends a message of `request_bytes` and waits for one of `reply_bytes`,
  // `count` times; both have at least 8 bytes. Appends each round trip's
  // seconds. Returns DataLoss for a wrong answer.
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

  // Moves Fill(seed) of this size and returns the seconds until the receiver
  // has all of it. Returns DataLoss when the receiver has other bytes.
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
