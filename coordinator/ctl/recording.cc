#include "coordinator/ctl/recording.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/net/proto_duration.h"
#include "coordinator/ctl/names.h"
#include "scheduler/placement/work.h"
#include "scheduler/semantics/roofline.h"

namespace djinn::ctl {
namespace {

// As YAML reads it back, whatever is in it.
std::string Quoted(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
      absl::StrAppendFormat(&quoted, "\\x%02x", static_cast<unsigned char>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string Number(double value) { return absl::StrFormat("%.9g", value); }

bool HasSpeed(const v1::WorkerInfo& worker) {
  return worker.speed().flops_per_second() > 0 &&
         worker.speed().bytes_per_second() > 0;
}

std::string Describe(const v1::WorkerInfo& worker) {
  std::vector<std::string> phases;
  for (const int phase : worker.phases()) {
    phases.push_back(Name(static_cast<v1::Phase>(phase)));
  }
  std::string text = absl::StrCat(
      "  - name: ", Quoted(worker.worker_id()),
      "\n    device: ", Quoted(worker.device()),
      "\n    memory: ", worker.memory_bytes(),
      "\n    flops_per_second: ", Number(worker.speed().flops_per_second()),
      "\n    bytes_per_second: ", Number(worker.speed().bytes_per_second()),
      "\n    seconds_per_call: ", Number(worker.speed().seconds_per_call()),
      "\n    price_per_hour: ", Number(worker.price_per_hour()), "\n");
  if (worker.link_bytes_per_second() > 0) {
    absl::StrAppend(
        &text, "    link_bandwidth: ", worker.link_bytes_per_second(), "\n");
  }
  if (!phases.empty()) {
    absl::StrAppend(&text, "    phases: [", absl::StrJoin(phases, ", "), "]\n");
  }
  return text;
}

// As the trace's reader has it.
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
  std::map<std::string, const v1::WorkerInfo*> known;
  std::string text = "workers:\n";
  for (const v1::WorkerInfo& worker : workers) {
    if (!HasSpeed(worker)) continue;
    known[worker.worker_id()] = &worker;
    absl::StrAppend(&text, Describe(worker));
  }
  // Jobs of tenants that are configured no more, too.
  std::map<std::string, double> weights;
  for (const v1::RecordedJob& job : jobs) weights[job.tenant()] = 1;
  for (const v1::TenantInfo& tenant : tenants) {
    weights[tenant.tenant()] = tenant.weight();
  }
  absl::StrAppend(&text, "tenants:\n");
  for (const auto& [name, weight] : weights) {
    absl::StrAppend(&text, "  - {name: ", Quoted(name),
                    ", weight: ", Number(weight), "}\n");
  }
  // A program's state is its largest graph's.
  std::map<std::pair<std::string, std::string>, uint64_t> state_bytes;
  for (const v1::RecordedJob& job : jobs) {
    uint64_t& bytes = state_bytes[{job.tenant(), job.program()}];
    bytes = std::max(bytes, job.content_bytes());
  }
  size_t left_out = 0;
  absl::StrAppend(&text, "jobs:\n");
  for (const v1::RecordedJob& job : jobs) {
    const auto worker = known.find(job.worker_id());
    if (worker == known.end()) {
      ++left_out;
      continue;
    }
    const JobWork work = WorkOf(job, *worker->second);
    absl::StrAppend(&text, "  - {at: ",
                    Number(absl::ToDoubleSeconds(FromProtoDuration(job.at()))),
                    ", tenant: ", Quoted(job.tenant()));
    const uint64_t state = state_bytes.at({job.tenant(), job.program()});
    if (state > 0) {
      // A program without a name has one, too.
      absl::StrAppend(&text, ", state: ", Quoted("program " + job.program()),
                      ", state_size: ", state);
    }
    if (job.phase() != v1::PHASE_UNSPECIFIED) {
      absl::StrAppend(&text, ", phase: ", Name(job.phase()));
    }
    if (!job.op_class().empty()) {
      absl::StrAppend(&text, ", class: ", job.op_class());
    }
    absl::StrAppend(&text, ", flops: ", Number(work.flops),
                    ", bytes: ", Number(work.bytes),
                    ", calls: ", Number(work.calls), "}  # ", job.runs(),
                    " runs of ", job.fingerprint().substr(0, 12), " on ",
                    worker->second->worker_id(), "\n");
  }
  if (left_out > 0) {
    absl::StrAppend(
        &text, "# ", left_out,
        " jobs of workers whose speed is not known are left out.\n");
  }
  return text;
}

}  // namespace djinn::ctl
