#include "coordinator/ctl/recording.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/proto_duration.h"
#include "coordinator/ctl/table.h"
#include "scheduler/placement/work.h"
#include "scheduler/semantics/cost/roofline.h"

namespace djinn::ctl {
namespace {

bool HasSpeed(const v1::WorkerInfo& worker) {
  return worker.speed().flops_per_second() > 0 &&
         worker.speed().bytes_per_second() > 0;
}

// Emits a name that may be any text.
void EmitText(const char* key, const std::string& text, YAML::Emitter* out) {
  *out << YAML::Key << key << YAML::Value << YAML::DoubleQuoted << text;
}

template <typename Value>
void EmitValue(const char* key, const Value& value, YAML::Emitter* out) {
  *out << YAML::Key << key << YAML::Value << value;
}

void EmitWorker(const v1::WorkerInfo& worker, YAML::Emitter* out) {
  *out << YAML::BeginMap;
  EmitText("name", worker.worker_id(), out);
  EmitText("device", worker.device(), out);
  EmitValue("memory", worker.memory_bytes(), out);
  EmitValue("flops_per_second", worker.speed().flops_per_second(), out);
  EmitValue("bytes_per_second", worker.speed().bytes_per_second(), out);
  EmitValue("seconds_per_call", worker.speed().seconds_per_call(), out);
  EmitValue("price_per_hour", worker.price_per_hour(), out);
  if (worker.link_bytes_per_second() > 0) {
    EmitValue("link_bandwidth", worker.link_bytes_per_second(), out);
  }
  if (worker.phases_size() > 0) {
    *out << YAML::Key << "phases" << YAML::Value << YAML::Flow
         << YAML::BeginSeq;
    for (const int phase : worker.phases()) {
      *out << Name(static_cast<v1::Phase>(phase));
    }
    *out << YAML::EndSeq;
  }
  *out << YAML::EndMap;
}

// The greatest number that the trace reader accepts.
constexpr double kMost = 1e18;

struct JobWork {
  double flops = 0;
  double bytes = 0;
  double calls = 0;
};

JobWork WorkOf(const v1::RecordedJob& job, const v1::WorkerInfo& worker) {
  const semantics::DeviceSpeed speed = {worker.speed().flops_per_second(),
                                        worker.speed().bytes_per_second(),
                                        worker.speed().seconds_per_call()};
  const double took =
      absl::ToDoubleSeconds(FromProtoDuration(job.device_time()));
  scheduler::Work::Part part;
  part.cost.flops = static_cast<uint64_t>(std::min(job.flops(), kMost));
  part.cost.read_bytes = static_cast<uint64_t>(std::min(job.bytes(), kMost));
  part.calls = job.calls();
  const double best = scheduler::RooflineSeconds(part, speed);
  if (best <= 0) return {.flops = took * speed.flops_per_second};
  const double factor = took / best;
  return {job.flops() * factor, job.bytes() * factor,
          static_cast<double>(job.calls()) * factor};
}

}  // namespace

std::string TraceOf(const std::vector<v1::WorkerInfo>& workers,
                    const std::vector<v1::TenantInfo>& tenants,
                    const std::vector<v1::RecordedJob>& jobs) {
  YAML::Emitter out;
  out.SetDoublePrecision(9);
  out << YAML::BeginMap << YAML::Key << "workers" << YAML::Value
      << YAML::BeginSeq;
  std::map<std::string, const v1::WorkerInfo*> known;
  for (const v1::WorkerInfo& worker : workers) {
    if (!HasSpeed(worker)) continue;
    known[worker.worker_id()] = &worker;
    EmitWorker(worker, &out);
  }
  // Includes tenants that are no longer configured.
  std::map<std::string, double> weights;
  for (const v1::RecordedJob& job : jobs) weights[job.tenant()] = 1;
  for (const v1::TenantInfo& tenant : tenants) {
    weights[tenant.tenant()] = tenant.weight();
  }
  out << YAML::EndSeq << YAML::Key << "tenants" << YAML::Value
      << YAML::BeginSeq;
  for (const auto& [name, weight] : weights) {
    out << YAML::Flow << YAML::BeginMap;
    EmitText("name", name, &out);
    EmitValue("weight", weight, &out);
    out << YAML::EndMap;
  }
  // The state of a program is as large as that of its largest job.
  std::map<std::pair<std::string, std::string>, uint64_t> state_bytes;
  for (const v1::RecordedJob& job : jobs) {
    uint64_t& bytes = state_bytes[{job.tenant(), job.program()}];
    bytes = std::max(bytes, job.content_bytes());
  }
  size_t left_out = 0;
  out << YAML::EndSeq << YAML::Key << "jobs" << YAML::Value << YAML::BeginSeq;
  for (const v1::RecordedJob& job : jobs) {
    const auto worker = known.find(job.worker_id());
    if (worker == known.end()) {
      ++left_out;
      continue;
    }
    const JobWork work = WorkOf(job, *worker->second);
    out << YAML::Flow << YAML::BeginMap;
    EmitValue("at", absl::ToDoubleSeconds(FromProtoDuration(job.at())), &out);
    EmitText("tenant", job.tenant(), &out);
    const uint64_t state = state_bytes.at({job.tenant(), job.program()});
    if (state > 0) {
      // A program without a name may also have a state.
      EmitText("state", "program " + job.program(), &out);
      EmitValue("state_size", state, &out);
    }
    if (job.phase() != v1::PHASE_UNSPECIFIED) {
      EmitValue("phase", Name(job.phase()), &out);
    }
    if (!job.op_class().empty()) {
      EmitValue("class", std::string(job.op_class()), &out);
    }
    EmitValue("flops", work.flops, &out);
    EmitValue("bytes", work.bytes, &out);
    EmitValue("calls", work.calls, &out);
    out << YAML::EndMap
        << YAML::Comment(absl::StrCat(job.runs(), " runs of ",
                                      job.fingerprint().substr(0, 12), " on ",
                                      worker->second->worker_id()));
  }
  out << YAML::EndSeq << YAML::EndMap;
  std::string text = absl::StrCat(out.c_str(), "\n");
  if (left_out > 0) {
    absl::StrAppend(
        &text, "# ", left_out,
        " jobs of workers whose speed is not known are left out.\n");
  }
  return text;
}

}  // namespace djinn::ctl
