// Generates jobs that arrive at random, as a stream of requests of one kind
// does.
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
  // Mean time between two arrivals, which are independent of each other
  // (Poisson). 0 means that all arrive at once.
  double every_seconds = 0;
  // The first job; the others are like it.
  SimulatedJob job;
  // Number of states. Their names are `job.state` followed by a number from 0;
  // the n-th is requested in proportion to 1 / (n + 1) (Zipf). 1 means the name
  // without a number.
  size_t states = 1;
  // A job's work is `job.work` multiplied or divided by up to 1 + spread.
  double spread = 0;
};

// Returns the jobs in order of arrival.
std::vector<SimulatedJob> Generate(const Stream& stream, Randomness* random);

// Draws uniformly from (0, 1].
double DrawUnit(Randomness* random);
// Draws between 1 / (1 + spread) and 1 + spread; a factor and its inverse are
// equally likely.
double DrawFactor(Randomness* random, double spread);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_SIMULATOR_GENERATOR_H_
