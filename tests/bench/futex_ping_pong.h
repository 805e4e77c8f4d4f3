// The floor of a round trip between two processes of one machine: a word in
// shared memory that goes up and down, with one futex wake in each direction
// and nothing else.
#ifndef TESTS_BENCH_FUTEX_PING_PONG_H_
#define TESTS_BENCH_FUTEX_PING_PONG_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace djinn::bench {

// Not thread-safe.
class FutexPingPong {
 public:
  // Forks the other process, which calls nothing but futex().
  static absl::StatusOr<std::unique_ptr<FutexPingPong>> Start();
  ~FutexPingPong();

  // Appends each round trip's seconds. Unavailable when the other process does
  // not answer for a second.
  absl::Status Exchange(int count, std::vector<double>* seconds);

 private:
  // Counts up: odd ones are for the other process.
  struct Page {
    std::atomic<uint32_t> turn;
    std::atomic<uint32_t> over;
  };

  FutexPingPong(Page* page, pid_t child) : page_(page), child_(child) {}
  static void Answer(Page* page);

  Page* const page_;
  const pid_t child_;
};

}  // namespace djinn::bench

#endif  // TESTS_BENCH_FUTEX_PING_PONG_H_
