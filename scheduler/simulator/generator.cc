#include "scheduler/simulator/generator.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace djinn::scheduler {
namespace {

// Draws an index below `count` with the weights 1, 1/2, 1/3, ...
size_t DrawZipf(Randomness* random, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; ++i) sum += 1.0 / static_cast<double>(i + 1);
  double rest = DrawUnit(random) * sum;
  for (size_t i = 0; i + 1 < count; ++i) {
    rest -= 1.0 / static_cast<double>(i + 1);
    if (rest <= 0) return i;
  }
  return count - 1;
}

uint64_t Times(uint64_t number, double factor) {
  return static_cast<uint64_t>(
      std::llround(static_cast<double>(number) * factor));
}

}  // namespace

absl::string_view JobClassName(JobClass job_class) {
  switch (job_class) {
    case JobClass::kBatch:
      return "batch";
    case JobClass::kInteractive:
      return "interactive";
    case JobClass::kRealtime:
      return "realtime";
  }
  return "";
}

double DrawUnit(Randomness* random) {
  return static_cast<double>(((*random)() >> 11) + 1) * 0x1p-53;
}

double DrawFactor(Randomness* random, double spread) {
  return std::pow(1 + spread, 2 * DrawUnit(random) - 1);
}

std::vector<SimulatedJob> Generate(const Stream& stream, Randomness* random) {
  std::vector<SimulatedJob> jobs;
  double now = stream.start_seconds;
  for (size_t i = 0; i < stream.count; ++i) {
    SimulatedJob job = stream.job;
    job.arrival_seconds = now;
    if (stream.states > 1) {
      absl::StrAppend(&job.state, DrawZipf(random, stream.states));
    }
    const double factor = DrawFactor(random, stream.spread);
    job.work.cost.flops = Times(job.work.cost.flops, factor);
    job.work.cost.read_bytes = Times(job.work.cost.read_bytes, factor);
    jobs.push_back(std::move(job));
    now -= stream.every_seconds * std::log(DrawUnit(random));
  }
  return jobs;
}

}  // namespace djinn::scheduler
