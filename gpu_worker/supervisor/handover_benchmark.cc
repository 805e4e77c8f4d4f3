// Measures how long the device takes to pass from one executor to another while
// both want it: from the end of one's turn to the begin of the other's.
//
// Prints one line. Two threads stand for two executors; they have words and
// events of their own, as processes have.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "gpu_worker/supervisor/arbiter.h"
#include "gpu_worker/supervisor/turn_word.h"

namespace djinn::worker {
namespace {

constexpr int kTurns = 20'000;
// A turn is about as long as a small kernel.
constexpr absl::Duration kTurn = absl::Microseconds(50);

struct LastTurn {
  uint64_t executor = 0;
  absl::Duration end;
};

// The gate lets one executor at a time read and write `last`.
void Compute(uint64_t executor, SharedTurnGate* gate, LastTurn* last,
             std::vector<double>* microseconds) {
  Clock* const clock = Clock::Real();
  for (int i = 0; i < kTurns; ++i) {
    if (!gate->TryEnter()) gate->Enter();
    const absl::Duration begin = clock->Monotonic();
    if (last->executor != executor && last->executor != 0) {
      microseconds->push_back(absl::ToDoubleMicroseconds(begin - last->end));
    }
    while (clock->Monotonic() < begin + kTurn) {
    }
    *last = {executor, clock->Monotonic()};
    gate->Leave();
  }
}

void Measure() {
  Arbiter arbiter(Clock::Real());
  std::vector<std::unique_ptr<SharedTurnGate>> gates;
  for (uint64_t executor = 1; executor <= 2; ++executor) {
    Arbiter::Seat seat = arbiter.Add(executor).value();
    gates.push_back(std::make_unique<SharedTurnGate>(
        TurnWord::Map(seat.word.get()).value(), std::move(seat.event)));
  }
  LastTurn last;
  std::vector<double> microseconds[2];
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 2; ++i) {
    threads.emplace_back(Compute, i + 1, gates[i].get(), &last,
                         &microseconds[i]);
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<double> all = std::move(microseconds[0]);
  all.insert(all.end(), microseconds[1].begin(), microseconds[1].end());
  std::sort(all.begin(), all.end());
  if (all.empty()) {
    std::printf("the device never changed hands\n");
    return;
  }
  std::printf("%zu hand-overs: p50 %.1f us, p90 %.1f us, p99 %.1f us\n",
              all.size(), all[all.size() / 2], all[all.size() * 9 / 10],
              all[all.size() * 99 / 100]);
}

}  // namespace
}  // namespace djinn::worker

int main() {
  djinn::worker::Measure();
  return 0;
}
