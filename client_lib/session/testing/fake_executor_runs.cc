// Executes graphs and runs for the fake executor. They have no operators: they
// change versions and poison.
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/session/testing/fake_executor.h"
#include "common/srg/canonical.h"
#include "common/srg/proto_codec.h"
#include "common/srg/size_hole.h"
#include "common/srg/validate.h"

namespace djinn {

void FakeExecutor::Supply(const v1::DefineGraph& supply) {
  const auto found = defined_.find(supply.graph_id());
  if (supply.graph_id() != needed_ || found == defined_.end()) {
    Violation(absl::StrCat("supply of ", supply.graph_id()));
    return;
  }
  const absl::StatusOr<srg::Graph> graph = srg::FromProto(supply.graph());
  if (!graph.ok() || srg::Fingerprint(*graph) != found->second.fingerprint) {
    Violation("supply of another graph");
  }
  evicted_.erase(needed_);
  needed_ = 0;
}

void FakeExecutor::CarryDefine(const v1::DefineGraph& define) {
  for (const uint64_t id : define.forget_ids()) {
    if (defined_.erase(id) == 0) {
      Violation(absl::StrCat("forgets graph ", id));
    }
    evicted_.erase(id);
  }
  if (define.graph_id() <= last_graph_) Violation("graph id again");
  last_graph_ = define.graph_id();
  absl::StatusOr<srg::Graph> graph = srg::FromProto(define.graph());
  if (!graph.ok()) {
    Violation(graph.status().ToString());
    return;
  }
  absl::StatusOr<srg::GraphFacts> facts = srg::Validate(*graph, {});
  if (!facts.ok()) {
    Violation(facts.status().ToString());
    return;
  }
  std::string fingerprint = srg::Fingerprint(*graph);
  defined_[define.graph_id()] = {*std::move(graph), *std::move(facts),
                                 std::move(fingerprint)};
  if (defined_.size() > limits_.max_graphs()) {
    Violation("too many graphs");
  }
  v1::ControlResponse response;
  response.mutable_admitted()->set_graph_id(define.graph_id());
  response.mutable_admitted()->set_cache_hit(true);
  response.mutable_admitted()->set_fingerprint(
      script_.wrong_fingerprints ? std::string(32, 'x')
                                 : defined_[define.graph_id()].fingerprint);
  Reply(std::move(response));
}

bool FakeExecutor::Expand(v1::Run* run, FakeWorkerGraph* defined) {
  const srg::Graph& graph = defined->graph;
  if (run->has_repeat()) {
    if (run->repeat().place() >= defined->remembered.size()) {
      Violation("a repeat of nothing remembered");
      return false;
    }
    const FakeWorkerGraph::Remembered& before =
        defined->remembered[run->repeat().place()];
    v1::Run whole = *run;
    const v1::Repeat& repeat = run->repeat();
    if (run->bindings_size() > 0) Violation("bindings of a repeat");
    uint64_t next = repeat.first_new_storage();
    uint64_t versions = 0;
    int listed = 0;
    uint64_t listed_storage = 0;
    // Slots and holes until the next one that is listed.
    uint32_t gap = 0;
    for (uint32_t i = 0; i < graph.slots.size(); ++i) {
      v1::Binding& binding = *whole.add_bindings();
      const srg::Slot::Kind kind = graph.slots[i].kind;
      if (listed < repeat.slot_gaps_size() &&
          repeat.slot_gaps(listed) == gap++) {
        listed_storage += static_cast<uint64_t>(repeat.storages(listed));
        binding.set_storage(listed_storage);
        binding.set_base_version(
            repeat.base_versions_size() > 0 ? repeat.base_versions(listed) : 1);
        ++listed;
        gap = 0;
      } else if (kind == srg::Slot::Kind::kCreated ||
                 kind == srg::Slot::Kind::kResult) {
        binding.set_storage(next++);
      } else {
        binding.set_storage(before.storages[i]);
        binding.set_base_version(storages_[binding.storage()].version);
        versions += binding.base_version();
      }
      binding.set_writes(defined->facts.slots[i].writes);
      binding.set_reads(defined->facts.slots[i].reads);
    }
    if (listed != repeat.storages_size()) Violation("slots of a repeat");
    if (versions != repeat.version_sum()) Violation("versions of a repeat");
    if (repeat.same_final_slots()) {
      whole.mutable_final_slots()->Add(before.final_slots.begin(),
                                       before.final_slots.end());
    }
    whole.mutable_float_holes()->Assign(before.floats.begin(),
                                        before.floats.end());
    int changed = 0;
    uint32_t hole = 0;
    for (const uint32_t holes_between : repeat.float_gaps()) {
      hole += holes_between;
      if (hole >= before.floats.size()) {
        Violation("float holes of a repeat");
        return false;
      }
      whole.set_float_holes(static_cast<int>(hole++),
                            run->float_holes(changed++));
    }
    *run = std::move(whole);
  }
  if (!run->has_repeat()) defined->remembered.clear();
  if (run->remember()) {
    defined->remembered.emplace_back();
  } else if (!run->has_repeat()) {
    return true;
  }
  if (defined->remembered.size() > srg::kMaxRememberedRuns) {
    Violation("too many runs to remember");
  }
  FakeWorkerGraph::Remembered& kept =
      run->remember() ? defined->remembered.back()
                      : defined->remembered[run->repeat().place()];
  kept.storages.clear();
  for (const v1::Binding& binding : run->bindings()) {
    kept.storages.push_back(binding.storage());
  }
  kept.floats.assign(run->float_holes().begin(), run->float_holes().end());
  kept.final_slots.assign(run->final_slots().begin(), run->final_slots().end());
  return true;
}

bool FakeExecutor::CarryRun(const v1::Ordered& message) {
  if (script_.hold_runs) return false;
  v1::Run run = message.run();
  const auto found = defined_.find(run.graph_id());
  if (found == defined_.end()) {
    Violation(absl::StrCat("run of undefined graph ", run.graph_id()));
    return true;
  }
  const auto& operators = found->second.graph.operators;
  if (std::any_of(operators.begin(), operators.end(),
                  [&](const srg::Operator& one) {
                    return one.name == script_.held_operator;
                  })) {
    return false;
  }
  if (evicted_.count(run.graph_id()) > 0) {
    if (needed_ == run.graph_id()) return false;
    needed_ = run.graph_id();
    v1::ControlResponse response;
    response.mutable_need()->set_graph_id(needed_);
    Reply(std::move(response));
    return false;
  }
  FakeWorkerGraph& defined = found->second;
  if (!Expand(&run, &defined)) return true;
  const absl::StatusOr<srg::Graph> graph =
      srg::AtSize(defined.graph, run.size());
  const absl::StatusOr<srg::GraphFacts> facts =
      graph.ok() ? srg::Validate(*graph, {}) : graph.status();
  if (!facts.ok() || (run.size() != 0 && defined.graph.size_hole.empty())) {
    Violation(absl::StrCat("no graph at size ", run.size()));
    return true;
  }
  seen_.runs.push_back(run);
  ++session_runs_;
  const size_t slots = graph->slots.size();
  if (static_cast<size_t>(run.bindings_size()) != slots) {
    Violation("wrong number of bindings");
    return true;
  }
  if (static_cast<uint32_t>(run.float_holes_size()) !=
          graph->float_hole_count ||
      static_cast<uint32_t>(run.scalar_tensors_size()) !=
          graph->scalar_tensor_hole_count ||
      run.reply_metadata() != (facts->unknown_results > 0)) {
    Violation("wrong holes");
  }
  uint64_t poison = std::exchange(script_.fail_next_run, 0);
  if (poison != 0) {
    v1::ControlResponse response;
    *response.mutable_poisoned() = Detail(poison);
    response.mutable_poisoned()->set_sequence(message.sequence());
    response.mutable_poisoned()->set_node(0);
    if (!script_.run_failure.empty()) {
      response.mutable_poisoned()->set_reason(script_.run_failure);
    }
    Reply(std::move(response));
  }
  std::set<uint64_t> bound;
  for (size_t i = 0; i < slots; ++i) {
    const v1::Binding& binding = run.bindings(static_cast<int>(i));
    const srg::Slot& slot = graph->slots[i];
    const srg::SlotFacts& slot_facts = facts->slots[i];
    const bool created_here = slot.kind == srg::Slot::Kind::kCreated ||
                              slot.kind == srg::Slot::Kind::kResult;
    if (!bound.insert(binding.storage()).second) Violation("bound twice");
    if (binding.writes() != slot_facts.writes ||
        binding.reads() != slot_facts.reads) {
      Violation(absl::StrCat("slot ", i, ": writes ", binding.writes(),
                             " reads ", binding.reads(), " instead of ",
                             slot_facts.writes, ", ", slot_facts.reads));
    }
    if (created_here != (binding.base_version() == 0)) {
      Violation(absl::StrCat("slot ", i, ": wrong creation"));
    }
    FakeStorage& storage = Written(binding.storage(), binding.base_version());
    storage.version = binding.base_version() + binding.writes();
    if (created_here) {
      storage.bytes.assign(slot.kind == srg::Slot::Kind::kCreated
                               ? slot.created_bytes
                               : slot_facts.required_bytes,
                           '\0');
    } else if (slot.kind == srg::Slot::Kind::kBound &&
               storage.bytes.size() < slot_facts.required_bytes) {
      Violation(absl::StrCat("slot ", i, ": storage too small"));
    }
    if (slot_facts.reads && storage.poison != 0) poison = storage.poison;
  }
  for (int i = 0; i < run.bindings_size(); ++i) {
    const v1::Binding& binding = run.bindings(i);
    if (binding.writes() == 0) continue;
    FakeStorage& storage = storages_[binding.storage()];
    storage.poison = poison;
    // The contents show which message wrote last.
    std::fill(storage.bytes.begin(), storage.bytes.end(),
              static_cast<char>(message.sequence()));
  }
  for (int i = 1; i < run.final_slots_size(); ++i) {
    if (run.final_slots(i) <= run.final_slots(i - 1)) Violation("final order");
  }
  for (const uint32_t slot : run.final_slots()) {
    storages_.erase(run.bindings(static_cast<int>(slot)).storage());
  }
  if (run.reply_metadata()) {
    v1::ControlResponse response;
    *response.mutable_metadata() = script_.metadata;
    response.mutable_metadata()->set_sequence(message.sequence());
    if (poison != 0) {
      *response.mutable_metadata()->mutable_error() = Detail(poison);
    }
    Reply(std::move(response));
  }
  return true;
}

}  // namespace djinn
