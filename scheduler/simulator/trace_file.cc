#include "scheduler/simulator/trace_file.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "scheduler/quota/quota_reader.h"
#include "scheduler/semantics/cost/meaning.h"
#include "scheduler/simulator/generator.h"

namespace djinn::scheduler {
namespace {

constexpr uint64_t kMaxWorkers = 1'000'000;
constexpr uint64_t kMaxJobs = 10'000'000;

semantics::Phase ReadPhase(ConfigMap* map, absl::string_view key,
                           const std::string& name) {
  for (int phase = 1; phase < semantics::kPhaseCount; ++phase) {
    if (name == PhaseName(static_cast<semantics::Phase>(phase))) {
      return static_cast<semantics::Phase>(phase);
    }
  }
  map->Error(key, absl::StrCat("there is no phase \"", name, "\""));
  return semantics::Phase::kUnspecified;
}

semantics::OpClass ReadClass(ConfigMap* map) {
  const std::string name = map->String("class", "other");
  const auto op_class = semantics::FindOpClass(name);
  if (!op_class.has_value()) {
    map->Error("class",
               absl::StrCat("there is no class of operators \"", name, "\""));
  }
  return op_class.value_or(semantics::OpClass::kOther);
}

// The priority and deadline of a job, or of all jobs of a tenant.
struct Urgency {
  std::optional<JobClass> priority;
  double run_deadline_seconds = std::numeric_limits<double>::infinity();
};
using Urgencies = std::vector<Urgency>;

Urgency ReadUrgency(ConfigMap* map, Urgency urgency) {
  const std::string name = map->String("priority", "");
  if (!name.empty()) {
    urgency.priority.reset();
    for (const JobClass job_class :
         {JobClass::kBatch, JobClass::kInteractive, JobClass::kRealtime}) {
      if (name == JobClassName(job_class)) urgency.priority = job_class;
    }
    if (!urgency.priority.has_value()) {
      map->Error("priority", absl::StrCat("there is no class \"", name, "\""));
    }
  }
  urgency.run_deadline_seconds =
      map->Number("run_deadline", urgency.run_deadline_seconds);
  if (urgency.run_deadline_seconds == 0) {
    map->Error("run_deadline", "must be more than 0");
  }
  return urgency;
}

void ReadWorkers(ConfigMap map, std::vector<WorkerFacts>* workers) {
  WorkerFacts facts;
  const std::string name = map.RequiredString("name");
  facts.device = map.String("device", "");
  facts.memory_bytes = map.Size("memory", 0);
  facts.speed.flops_per_second = map.Number("flops_per_second", 0);
  facts.speed.bytes_per_second = map.Number("bytes_per_second", 0);
  facts.speed.seconds_per_call = map.Number("seconds_per_call", 0);
  if (!IsKnown(facts.speed)) {
    map.Error("flops_per_second", "is required, as is bytes_per_second");
  }
  facts.price_per_second = map.Number("price_per_hour", 0) / 3600;
  facts.link_bytes_per_second =
      static_cast<double>(map.Size("link_bandwidth", 1'000'000'000));
  facts.capabilities = map.Strings("capabilities");
  for (const std::string& phase : map.Strings("phases")) {
    facts.phases |= 1u << static_cast<int>(ReadPhase(&map, "phases", phase));
  }
  const uint64_t count = map.UInt("count", 1, 1, kMaxWorkers);
  for (uint64_t i = 0; i < count; ++i) {
    facts.id = count == 1 ? name : absl::StrCat(name, i);
    workers->push_back(facts);
  }
}

// Reads the quotas of a tenant or a cohort for the resources that the simulator
// models. Other resources count as unknown keys.
template <typename Holder>
void ReadModelledQuotas(ConfigMap map, const QuotaOwner& owner,
                        Holder* holder) {
  constexpr Resource kModelled[] = {Resource::kMemoryBytes};
  ReadQuotas(&map, owner, kModelled, &holder->quotas);
  holder->device_rate = ReadRateQuota(&map, "device_seconds_per_second",
                                      RateUnit::kSeconds, owner);
}

SimulatedTenant ReadTenant(ConfigMap map) {
  SimulatedTenant tenant;
  tenant.name = map.RequiredString("name");
  tenant.weight = map.Number("weight", 1);
  tenant.cohort = map.String("cohort", "");
  CheckCohortName(&map, "cohort", tenant.cohort);
  ConfigMap limits = map.Map("limits");
  if (limits.Has("memory")) tenant.limit_bytes = limits.Size("memory", 0);
  ReadModelledQuotas(map.Map("quota"), TenantAsOwner(tenant.cohort), &tenant);
  return tenant;
}

SimulatedCohort ReadCohort(ConfigMap map) {
  SimulatedCohort cohort;
  cohort.name = map.RequiredString("name");
  CheckCohortName(&map, "name", cohort.name);
  cohort.weight = map.Number("weight", 1);
  ReadModelledQuotas(map.Map("quota"), CohortAsOwner(cohort.name), &cohort);
  return cohort;
}

// `urgencies` holds the default for each tenant.
SimulatedJob ReadJob(ConfigMap map, const Trace& trace,
                     const Urgencies& urgencies) {
  SimulatedJob job;
  Urgency urgency;
  const std::string tenant = map.RequiredString("tenant");
  const auto found = std::find_if(
      trace.tenants.begin(), trace.tenants.end(),
      [&](const SimulatedTenant& other) { return other.name == tenant; });
  if (found == trace.tenants.end()) {
    map.Error("tenant", absl::StrCat("there is no tenant \"", tenant, "\""));
  } else {
    job.tenant = static_cast<size_t>(found - trace.tenants.begin());
    urgency = urgencies[job.tenant];
  }
  urgency = ReadUrgency(&map, urgency);
  job.priority = urgency.priority;
  job.run_deadline_seconds = urgency.run_deadline_seconds;
  job.state = map.String("state", "");
  job.state_bytes = map.Size("state_size", 0);
  if (job.state.empty() && job.state_bytes > 0) {
    map.Error("state_size", "there is no state beside it");
  }
  const std::string phase = map.String("phase", "");
  if (!phase.empty()) job.work.phase = ReadPhase(&map, "phase", phase);
  job.work.op_class = ReadClass(&map);
  // Accepts numbers such as 1e13.
  const auto count = [&map](const char* key) {
    return static_cast<uint64_t>(std::min(map.Number(key, 0), 1e18));
  };
  job.work.cost.flops = count("flops");
  job.work.cost.read_bytes = count("bytes");
  job.work.calls = count("calls");
  return job;
}

Stream ReadStream(ConfigMap map, const Trace& trace,
                  const Urgencies& urgencies) {
  Stream stream;
  stream.count = map.UInt("count", 1, 1, kMaxJobs);
  stream.start_seconds = map.Number("start", 0);
  stream.every_seconds = map.Number("every", 0);
  stream.states = map.UInt("states", 1, 1, kMaxJobs);
  stream.spread = map.Number("spread", 0);
  stream.job = ReadJob(map.Map("job"), trace, urgencies);
  return stream;
}

// Sorts jobs; those that arrive together keep their order.
void SortByArrival(std::vector<SimulatedJob>* jobs) {
  std::vector<std::pair<double, size_t>> order;
  for (size_t i = 0; i < jobs->size(); ++i) {
    order.emplace_back((*jobs)[i].arrival_seconds, i);
  }
  std::sort(order.begin(), order.end());
  std::vector<SimulatedJob> sorted;
  for (const auto& [arrival, i] : order) sorted.push_back((*jobs)[i]);
  *jobs = std::move(sorted);
}

}  // namespace

absl::StatusOr<Trace> ReadTrace(ConfigReader reader) {
  Trace trace;
  ConfigMap root = reader.root();
  trace.seed = root.UInt("seed", 1);
  trace.noise = root.Number("noise", 0);
  trace.lease_request_timeout_seconds =
      root.Number("lease_request_timeout", trace.lease_request_timeout_seconds);
  trace.line_patience_seconds =
      root.Number("line_patience", trace.lease_request_timeout_seconds / 2);
  trace.reclaim_spares_for_seconds =
      root.Number("reclaim_spares_for", trace.reclaim_spares_for_seconds);
  trace.reclaim_loss_limit_seconds =
      root.Number("reclaim_loss_limit", trace.reclaim_loss_limit_seconds);
  for (ConfigMap& map : root.Maps("workers")) {
    ReadWorkers(map, &trace.workers);
  }
  Urgencies urgencies;
  for (ConfigMap& map : root.Maps("tenants")) {
    trace.tenants.push_back(ReadTenant(map));
    urgencies.push_back(ReadUrgency(&map, Urgency()));
  }
  for (ConfigMap& map : root.Maps("cohorts")) {
    trace.cohorts.push_back(ReadCohort(map));
  }
  for (ConfigMap& map : root.Maps("jobs")) {
    const double at = map.Number("at", 0);
    trace.jobs.push_back(ReadJob(map, trace, urgencies));
    trace.jobs.back().arrival_seconds = at;
  }
  std::vector<Stream> streams;
  for (ConfigMap& map : root.Maps("streams")) {
    streams.push_back(ReadStream(map, trace, urgencies));
  }
  DJINN_RETURN_IF_ERROR(reader.Finish());
  Randomness random(trace.seed);
  for (const Stream& stream : streams) {
    std::vector<SimulatedJob> jobs = Generate(stream, &random);
    trace.jobs.insert(trace.jobs.end(), std::make_move_iterator(jobs.begin()),
                      std::make_move_iterator(jobs.end()));
  }
  SortByArrival(&trace.jobs);
  return trace;
}

}  // namespace djinn::scheduler
