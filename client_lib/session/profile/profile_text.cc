// Formats a profile as human-readable tables and as a trace for
// chrome://tracing.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "djinn/profile.h"
#include "nlohmann/json.hpp"

namespace djinn {
namespace {

std::string Text(absl::Duration time) {
  return absl::StrFormat("%.1f us", absl::ToDoubleMicroseconds(time));
}

double Share(absl::Duration part, absl::Duration whole) {
  return whole > absl::ZeroDuration() ? 100 * absl::FDivDuration(part, whole)
                                      : 0.0;
}

absl::Duration Median(std::vector<absl::Duration> times) {
  const auto middle = times.begin() + times.size() / 2;
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

using Json = nlohmann::ordered_json;

// Collects the events of a trace.
class Trace {
 public:
  void Name(absl::string_view what, int64_t process, int64_t thread,
            absl::string_view name) {
    events_.push_back({{"ph", "M"},
                       {"name", std::string(what)},
                       {"pid", process},
                       {"tid", thread},
                       {"args", {{"name", std::string(name)}}}});
  }
  void Slice(int64_t process, int64_t thread, absl::string_view name,
             absl::Duration began, absl::Duration took) {
    events_.push_back({{"ph", "X"},
                       {"name", std::string(name)},
                       {"pid", process},
                       {"tid", thread},
                       {"ts", Microseconds(began)},
                       {"dur", Microseconds(took)}});
  }
  std::string Finish() && {
    const Json trace = {{"displayTimeUnit", "ns"},
                        {"traceEvents", std::move(events_)}};
    return trace.dump(/*indent=*/-1, /*indent_char=*/' ',
                      /*ensure_ascii=*/false, Json::error_handler_t::replace) +
           "\n";
  }

 private:
  // Returns the time in microseconds, rounded to nanoseconds.
  static double Microseconds(absl::Duration time) {
    return std::round(absl::ToDoubleNanoseconds(time)) / 1000;
  }

  Json events_ = Json::array();
};

}  // namespace

const char* NameOf(Stage stage) {
  switch (stage) {
    case Stage::kCapture:
      return "capture";
    case Stage::kEncode:
      return "encode";
    case Stage::kClientQueue:
      return "client queue";
    case Stage::kTransit:
      return "transit";
    case Stage::kDecode:
      return "decode";
    case Stage::kAdmission:
      return "admission";
    case Stage::kWorkerQueue:
      return "worker queue";
    case Stage::kBind:
      return "bind";
    case Stage::kExecute:
      return "execute";
    case Stage::kReply:
      return "reply";
    case Stage::kTransitBack:
      return "transit back";
    case Stage::kHandOver:
      return "hand over";
  }
  return "";
}

const char* NameOf(ExecutionPath way) {
  switch (way) {
    case ExecutionPath::kPlain:
      return "plain";
    case ExecutionPath::kPacked:
      return "packed";
    case ExecutionPath::kFailed:
      return "failed";
  }
  return "";
}

std::string Profile::OperatorTable() const {
  absl::Duration all;
  for (const OperatorProfile& op : operators) all += op.total;
  std::string table =
      absl::StrFormat("%-44s %-6s %-6s %8s %14s %12s %6s\n", "operator", "mode",
                      "way", "calls", "total", "mean", "share");
  for (const OperatorProfile& op : operators) {
    absl::StrAppendFormat(
        &table, "%-44s %-6s %-6s %8d %14s %12s %5.1f%%\n", op.name,
        op.fast ? "fast" : "strict", NameOf(op.way), op.calls, Text(op.total),
        Text(op.total / static_cast<int64_t>(op.calls)), Share(op.total, all));
  }
  if (dropped_nodes + dropped_runs > 0) {
    absl::StrAppendFormat(&table, "no room for %d nodes and %d runs\n",
                          dropped_nodes, dropped_runs);
  }
  for (const std::string& remark : remarks) {
    absl::StrAppend(&table, remark, "\n");
  }
  return table;
}

std::string Profile::StageTable() const {
  std::string table = absl::StrFormat("%-14s %12s %12s %6s\n", "stage", "mean",
                                      "median", "share");
  if (requests.empty()) return table + "no request\n";
  const auto count = static_cast<int64_t>(requests.size());
  std::vector<absl::Duration> walls;
  absl::Duration wall;
  for (const RequestProfile& request : requests) {
    walls.push_back(request.ended - request.began);
    wall += walls.back();
  }
  absl::Duration sum;
  for (size_t stage = 0; stage < kStageCount; ++stage) {
    std::vector<absl::Duration> times;
    absl::Duration total;
    for (const RequestProfile& request : requests) {
      times.push_back(request.stages[stage]);
      total += times.back();
    }
    sum += total;
    absl::StrAppendFormat(&table, "%-14s %12s %12s %5.1f%%\n",
                          NameOf(static_cast<Stage>(stage)),
                          Text(total / count), Text(Median(std::move(times))),
                          Share(total, wall));
  }
  absl::StrAppendFormat(&table, "%-14s %12s\n", "sum", Text(sum / count));
  absl::StrAppendFormat(&table, "%-14s %12s %12s  %d requests\n", "wall",
                        Text(wall / count), Text(Median(std::move(walls))),
                        count);
  if (dropped_requests > 0) {
    absl::StrAppendFormat(&table, "no room for %d requests\n",
                          dropped_requests);
  }
  return table;
}

std::string Profile::ChromeTrace() const {
  // Larger than any process id.
  constexpr int64_t kFirstWorker = int64_t{1} << 32;
  const int64_t self = getpid();
  Trace trace;
  trace.Name("process_name", self, 0, "client");
  for (size_t device = 0; device < workers.size(); ++device) {
    if (workers[device].empty()) continue;
    trace.Name("process_name", kFirstWorker + static_cast<int64_t>(device), 0,
               absl::StrCat("worker ", workers[device], ", device ", device));
  }
  for (const RequestProfile& request : requests) {
    trace.Slice(self, request.thread, "request", request.began,
                request.ended - request.began);
    absl::Duration at = request.began;
    for (size_t stage = 0; stage < kStageCount; ++stage) {
      const absl::Duration took = request.stages[stage];
      if (took <= absl::ZeroDuration()) continue;
      trace.Slice(self, request.thread, NameOf(static_cast<Stage>(stage)), at,
                  took);
      at += took;
    }
  }
  for (const RunProfile& run : runs) {
    const int64_t process = kFirstWorker + run.device;
    trace.Slice(process, 0, absl::StrCat("run ", run.sequence), run.looked_up,
                run.ended - run.looked_up);
    trace.Slice(process, 0, "look up", run.looked_up,
                run.bound - run.looked_up);
    trace.Slice(process, 0, "bind", run.bound, run.started - run.bound);
    for (const NodeProfile& node : run.nodes) {
      const OperatorProfile& op = operators[node.operator_index];
      trace.Slice(process, 0,
                  op.way == ExecutionPath::kPlain
                      ? op.name
                      : absl::StrCat(op.name, " (", NameOf(op.way), ")"),
                  node.began, node.took);
    }
  }
  return std::move(trace).Finish();
}

}  // namespace djinn
