#include "gpu_worker/session/observe/run_trace.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/proto_duration.h"

namespace djinn::worker {
namespace {

// Returns the name of an enum's value in lower case, without its prefix.
std::string Word(absl::string_view name, absl::string_view prefix) {
  return absl::AsciiStrToLower(absl::StripPrefix(name, prefix));
}

}  // namespace

void RunTrace::NoteNodes(const Plan& plan, const NodeTimer& timer) {
  std::vector<NodeTime> times = timer.times();
  omitted_nodes_ = timer.dropped();
  if (times.size() > kMaxNodes) {
    omitted_nodes_ += times.size() - kMaxNodes;
    const auto end = times.begin() + kMaxNodes;
    std::nth_element(times.begin(), end, times.end(),
                     [](const NodeTime& a, const NodeTime& b) {
                       return a.ended - a.began > b.ended - b.began;
                     });
    times.erase(end, times.end());
    std::sort(
        times.begin(), times.end(),
        [](const NodeTime& a, const NodeTime& b) { return a.began < b.began; });
  }
  nodes_.reserve(times.size());
  for (const NodeTime& time : times) {
    const uint32_t index = plan.graph().nodes[time.node].operator_index;
    nodes_.push_back({plan.graph().operators[index].FullName(), time.began,
                      time.ended, time.failed});
  }
}

void RunTrace::Export(const v1::RunRecord& record, const Place& place,
                      uint64_t seed, SpanSink* sink) const {
  SpanIds ids(seed);
  const auto make = [&](uint64_t parent, absl::string_view name,
                        Span::SpanKind kind, absl::Duration began,
                        absl::Duration ended, uint64_t* id) {
    TraceContext self = context_;
    self.span_id = *id = ids.Next();
    Span span = MakeSpan(self, parent, name, kind, place.wall.At(began),
                         place.wall.At(ended));
    AddText("djinn.tenant", place.tenant, &span);
    AddText("djinn.worker", place.worker_id, &span);
    return span;
  };
  const absl::Duration arrived = place.now - FromProtoDuration(record.age());
  const bool begun = record.has_served();
  const absl::Duration turn =
      arrived + (begun ? FromProtoDuration(record.waited())
                       : FromProtoDuration(record.age()));
  const absl::Duration ended =
      begun ? turn + FromProtoDuration(record.served()) : turn;
  uint64_t run_id, id;
  Span run = make(context_.span_id, "run", Span::SPAN_KIND_SERVER, arrived,
                  ended, &run_id);
  AddText("djinn.session", place.session_id, &run);
  AddText("djinn.graph", record.fingerprint(), &run);
  AddNumber("djinn.run", static_cast<int64_t>(record.number()), &run);
  AddNumber("djinn.size", record.size(), &run);
  AddText("djinn.mode", record.fast() ? "fast" : "strict", &run);
  AddText("djinn.phase", Word(v1::Phase_Name(record.phase()), "PHASE_"), &run);
  AddText("djinn.state", Word(v1::RunRecord::State_Name(record.state()), ""),
          &run);
  if (record.has_failure()) {
    SetFailed(record.failure().reason(), &run);
    if (!record.failure().operator_name().empty()) {
      AddText("djinn.operator", record.failure().operator_name(), &run);
    }
  }
  sink->Add(std::move(run));

  absl::Duration batching;
  for (const v1::RunWait& wait : record.waits()) {
    if (wait.gate() == v1::RUN_GATE_BATCH) {
      batching += FromProtoDuration(wait.time());
    }
  }
  batching = std::min(batching, turn - arrived);
  Span queue = make(run_id, "queue", Span::SPAN_KIND_INTERNAL, arrived,
                    turn - batching, &id);
  for (const v1::RunWait& wait : record.waits()) {
    AddSeconds(absl::StrCat("djinn.wait.",
                            Word(v1::RunGate_Name(wait.gate()), "RUN_GATE_")),
               FromProtoDuration(wait.time()), &queue);
  }
  sink->Add(std::move(queue));
  if (batching > absl::ZeroDuration()) {
    sink->Add(make(run_id, "batching", Span::SPAN_KIND_INTERNAL,
                   turn - batching, turn, &id));
  }
  if (!begun) return;

  uint64_t turn_id;
  Span turn_span =
      make(run_id, "turn", Span::SPAN_KIND_INTERNAL, turn, ended, &turn_id);
  if (record.has_planned()) {
    AddSeconds("djinn.planned", FromProtoDuration(record.planned()),
               &turn_span);
  }
  if (record.yield_count() > 0) {
    AddNumber("djinn.yields", static_cast<int64_t>(record.yield_count()),
              &turn_span);
    AddSeconds("djinn.yielded", FromProtoDuration(record.yielded_for()),
               &turn_span);
  }
  // The number of companions, because their names are other tenants'.
  AddNumber("djinn.companions", record.companions_size(), &turn_span);
  sink->Add(std::move(turn_span));
  if (record.state() == v1::RunRecord::REFUSED) return;

  uint64_t execute_id;
  Span execute = make(turn_id, "execute", Span::SPAN_KIND_INTERNAL,
                      executed_ ? std::max(began_, turn) : turn,
                      executed_ ? std::min(ended_, ended) : ended, &execute_id);
  AddSeconds("djinn.device_time", FromProtoDuration(record.device_time()),
             &execute);
  if (!untimed_.empty()) AddText("djinn.nodes_untimed", untimed_, &execute);
  if (omitted_nodes_ > 0) {
    AddNumber("djinn.omitted_nodes", static_cast<int64_t>(omitted_nodes_),
              &execute);
  }
  sink->Add(std::move(execute));
  for (const Node& node : nodes_) {
    Span span = make(execute_id, node.name, Span::SPAN_KIND_INTERNAL,
                     node.began, node.ended, &id);
    if (node.failed) SetFailed("NODE_FAILED", &span);
    sink->Add(std::move(span));
  }
}

}  // namespace djinn::worker
