#include "coordinator/tables/work_table.h"

namespace djinn::coordinator {
namespace {

// The least share of a graph's predicted time at which its runs say something
// about a class of operators.
constexpr double kMinShare = 0.1;

std::string ProgramKey(const std::string& tenant, const std::string& program) {
  // The key is unambiguous because names have no zero byte.
  return tenant + '\0' + program;
}

}  // namespace

bool AreAlike(const SharedWork& a, const SharedWork& b) {
  const scheduler::Work none;
  const scheduler::Work& left = a == nullptr ? none : *a;
  const scheduler::Work& right = b == nullptr ? none : *b;
  return left.phase() == right.phase() &&
         left.cache_slots() == right.cache_slots();
}

bool GraphWorks::Put(const std::string& tenant, const std::string& fingerprint,
                     SharedWork own, SharedWork shown) {
  std::unique_ptr<Graph>& graph = graphs_[fingerprint];
  if (graph == nullptr) {
    graph = std::make_unique<Graph>();
    graph->fingerprint = fingerprint;
  }
  const auto [known, added] = graph->own.try_emplace(tenant);
  works_ += added ? 1 : 0;
  bool changed = !AreAlike(known->second, own);
  known->second = std::move(own);
  if (shown != nullptr) {
    changed |= !AreAlike(graph->shown, shown);
    graph->shown = std::move(shown);
  }
  order_.Take(tenant, graph.get(), 0);
  while (works_ > max_works_) {
    const auto let_go = order_.Release(nullptr);
    if (!let_go.has_value()) break;
    Graph* const left = let_go->item;
    left->own.erase(let_go->tenant);
    --works_;
    if (!left->holders.empty()) continue;
    graphs_.erase(graphs_.find(left->fingerprint));
  }
  return changed;
}

const GraphWorks::Graph* GraphWorks::Find(absl::string_view fingerprint) const {
  const auto found = graphs_.find(fingerprint);
  return found == graphs_.end() ? nullptr : found->second.get();
}

SharedWork WorkTable::OfGraphTo(absl::string_view tenant,
                                absl::string_view fingerprint) const {
  const auto* const graph = graphs_.Find(fingerprint);
  if (graph == nullptr) return nullptr;
  const auto own = graph->own.find(tenant);
  return own == graph->own.end() ? nullptr : own->second;
}

SharedWork WorkTable::OfGraph(absl::string_view fingerprint) const {
  const auto* const graph = graphs_.Find(fingerprint);
  if (graph == nullptr) return nullptr;
  const SharedWork& first = graph->own.begin()->second;
  for (const auto& [tenant, own] : graph->own) {
    if (own != first && !AreAlike(own, first)) return graph->shown;
  }
  return first;
}

void WorkTable::NoteProgram(Program program) {
  if (program.name.empty()) return;
  const std::string key = ProgramKey(program.tenant, program.name);
  const auto* const before = programs_.Find(key);
  if (before != nullptr && (*before)->graphs > program.graphs) return;
  NoteEnded(std::move(program));
}

void WorkTable::NoteEnded(Program program) {
  if (program.name.empty()) return;
  const std::string key = ProgramKey(program.tenant, program.name);
  const uint64_t bytes =
      sizeof(Program) + program.tenant.size() + program.name.size() +
      program.work->parts().size() * sizeof(scheduler::Work::Part);
  const auto noted = std::make_shared<const Program>(std::move(program));
  programs_.Put(noted->tenant, key, noted, bytes);
  memory_changed_ = true;
}

SharedWork WorkTable::OfProgram(const std::string& tenant,
                                const std::string& program) const {
  const auto* const found = programs_.Find(ProgramKey(tenant, program));
  return found == nullptr ? nullptr : (*found)->work;
}

void WorkTable::Learn(const std::string& fingerprint, const std::string& device,
                      const semantics::DeviceSpeed& speed, uint64_t runs,
                      absl::Duration time) {
  const SharedWork work = OfGraph(fingerprint);
  if (work == nullptr || runs == 0) return;
  const double predicted = scheduler::RooflineSeconds(*work, speed);
  const double measured =
      absl::ToDoubleSeconds(time) / static_cast<double>(runs);
  for (const scheduler::Work::Part& part : work->parts()) {
    const double share = scheduler::RooflineSeconds(part, speed);
    if (share < kMinShare * predicted) continue;
    factors_.Learn(part.op_class, part.phase, device, predicted, measured);
    memory_changed_ = true;
  }
}

void WorkTable::Restore(ProgramMemory memory) {
  for (const auto& program : memory.programs) NoteProgram(*program);
  factors_ = std::move(memory.factors);
  memory_changed_ = true;
}

std::optional<WorkTable::ProgramMemory> WorkTable::TakeProgramMemory() {
  if (!std::exchange(memory_changed_, false)) return std::nullopt;
  return ProgramMemory{programs_.Values(), factors_};
}

}  // namespace djinn::coordinator
