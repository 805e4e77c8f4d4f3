// Makes jobs that arrive at random, as a stream of requests of one kind does.
#ifndef SCHEDULER_SIMULATOR_GENERATOR_H_
#define SCHEDULER_SIMULATOR_GENERATOR_H_

#include <cstddef>
#include <string>
#include <vector>

#include "scheduler/placement/candidates.h"
#include "scheduler/simulator/trace.h"

namespace djinn::scheduler {

struct Stream {
  size_t count = 0;
  double start_seconds = 0;
  // Mean time between two; they arrive independently of each other (Poisson).
  // 0: all at once.
  double every_seconds = 0;
  // The first; the others are alike.
  SimulatedJob job;
  // Names of states are `job.state` and a number from 0; the n-th is asked for
  // in proportion to 1 / (n + 1) (Zipf). 1: the name alone.
  size_t states = 1;
  // A job's work is `job.work` times or divided by up to 1 + spread.
  double spread = 0;
};

// In order of arrival.
std::vector<SimulatedJob> Generate(const Stream& stream, Randomness* random);

// Uniform in (0, 1].
double DrawUnit(Randomness* random);
// Between 1 / (1 + spread) and 1 + spread; a factor and its inverse are as
// likely.
double DrawFactor(Randomness* random, double spread);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_SIMULATOR_GENERATOR_H_
