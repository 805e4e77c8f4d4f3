#include "scheduler/simulator/summary.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

namespace djinn::scheduler {
namespace {

double Percentile(std::vector<double> values, size_t percent) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[(values.size() - 1) * percent / 100];
}

double P99(std::vector<double> values) {
  return Percentile(std::move(values), 99);
}

void SumUpWorkers(absl::Span<const double> busy_seconds,
                  SimulationResult* result) {
  const double count = static_cast<double>(busy_seconds.size());
  double busy = 0;
  for (const double seconds : busy_seconds) busy += seconds;
  result->busy_seconds = busy;
  double squares = 0;
  for (const double seconds : busy_seconds) {
    squares += std::pow(seconds - busy / count, 2);
  }
  result->imbalance = std::sqrt(squares / count) / (busy / count);
}

}  // namespace

void SumUp(const Trace& trace, absl::Span<const JobEnd> ends,
           absl::Span<const double> busy_seconds, SimulationResult* result) {
  std::vector<double> latencies;
  std::vector<double> interactive;
  double last = 0;
  std::map<JobClass, std::vector<double>> of_class;
  for (size_t index = 0; index < ends.size(); ++index) {
    const JobEnd& end = ends[index];
    const SimulatedJob& job = trace.jobs[index];
    ClassResult& of = result->classes[job.class_at_worker()];
    ++of.jobs;
    of.deadlines += job.has_deadline();
    of.unplaced += end.outcome == JobEnd::Outcome::kUnplaced;
    of.late += end.outcome == JobEnd::Outcome::kLate;
    if (end.outcome != JobEnd::Outcome::kFinished) continue;
    ++of.finished;
    const double latency = end.seconds - job.arrival_seconds;
    of.attained += job.has_deadline() && latency <= job.run_deadline_seconds;
    latencies.push_back(latency);
    of_class[job.class_at_worker()].push_back(latency);
    if (job.class_at_worker() != JobClass::kBatch) {
      interactive.push_back(latency);
    }
    last = std::max(last, end.seconds);
  }
  for (auto& [job_class, seconds] : of_class) {
    ClassResult& of = result->classes.at(job_class);
    of.p50_latency_seconds = Percentile(seconds, 50);
    of.p99_latency_seconds = P99(std::move(seconds));
  }
  result->refused = ends.size() - latencies.size();
  if (latencies.empty()) return;
  double sum = 0;
  for (const double latency : latencies) sum += latency;
  result->mean_latency_seconds = sum / static_cast<double>(latencies.size());
  result->p99_latency_seconds = P99(std::move(latencies));
  result->interactive_p99_seconds = P99(std::move(interactive));
  result->makespan_seconds = last - trace.jobs.front().arrival_seconds;
  SumUpWorkers(busy_seconds, result);
}

void CountTenants(const Trace& trace, absl::Span<const JobEnd> ends,
                  std::vector<TenantResult>* tenants) {
  for (size_t index = 0; index < ends.size(); ++index) {
    TenantResult& of = (*tenants)[trace.jobs[index].tenant];
    ++of.jobs;
    of.finished += ends[index].outcome == JobEnd::Outcome::kFinished;
  }
}

}  // namespace djinn::scheduler
