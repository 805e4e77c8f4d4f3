#include "coordinator/tables/work_table.h"

namespace djinn::coordinator {
namespace {

// Less of a structure's time says little about a class of operators.
constexpr double kMinShare = 0.1;

std::string ProgramKey(const std::string& tenant, const std::string& program) {
  // Neither can change what the other says: names have no zero byte.
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

bool StructureWorks::Put(const std::string& tenant,
                         const std::string& fingerprint, SharedWork own,
                         SharedWork shown) {
  std::unique_ptr<Structure>& structure = structures_[fingerprint];
  if (structure == nullptr) {
    structure = std::make_unique<Structure>();
    structure->fingerprint = fingerprint;
  }
  const auto [known, added] = structure->own.try_emplace(tenant);
  works_ += added ? 1 : 0;
  bool changed = !AreAlike(known->second, own);
  known->second = std::move(own);
  if (shown != nullptr) {
    changed |= !AreAlike(structure->shown, shown);
    structure->shown = std::move(shown);
  }
  order_.Take(tenant, structure.get(), 0);
  while (works_ > max_works_) {
    const auto let_go = order_.Release(nullptr);
    if (!let_go.has_value()) break;
    Structure* const left = let_go->item;
    left->own.erase(let_go->tenant);
    --works_;
    if (!left->holders.empty()) continue;
    structures_.erase(structures_.find(left->fingerprint));
  }
  return changed;
}

const StructureWorks::Structure* StructureWorks::Find(
    absl::string_view fingerprint) const {
  const auto found = structures_.find(fingerprint);
  return found == structures_.end() ? nullptr : found->second.get();
}

SharedWork WorkTable::OfStructureTo(absl::string_view tenant,
                                    absl::string_view fingerprint) const {
  const auto* const structure = structures_.Find(fingerprint);
  if (structure == nullptr) return nullptr;
  const auto own = structure->own.find(tenant);
  return own == structure->own.end() ? nullptr : own->second;
}

SharedWork WorkTable::OfStructure(absl::string_view fingerprint) const {
  const auto* const structure = structures_.Find(fingerprint);
  if (structure == nullptr) return nullptr;
  const SharedWork& first = structure->own.begin()->second;
  for (const auto& [tenant, own] : structure->own) {
    if (own != first && !AreAlike(own, first)) return structure->shown;
  }
  return first;
}

void WorkTable::NoteProgram(Program program) {
  if (program.name.empty()) return;
  const std::string key = ProgramKey(program.tenant, program.name);
  const auto* const before = programs_.Find(key);
  if (before != nullptr && (*before)->structures > program.structures) return;
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
  learnt_ = true;
}

SharedWork WorkTable::OfProgram(const std::string& tenant,
                                const std::string& program) const {
  const auto* const found = programs_.Find(ProgramKey(tenant, program));
  return found == nullptr ? nullptr : (*found)->work;
}

void WorkTable::Learn(const std::string& fingerprint, const std::string& device,
                      const semantics::DeviceSpeed& speed, uint64_t runs,
                      absl::Duration time) {
  const SharedWork work = OfStructure(fingerprint);
  if (work == nullptr || runs == 0) return;
  const double predicted = scheduler::RooflineSeconds(*work, speed);
  const double measured =
      absl::ToDoubleSeconds(time) / static_cast<double>(runs);
  for (const scheduler::Work::Part& part : work->parts()) {
    const double share = scheduler::RooflineSeconds(part, speed);
    if (share < kMinShare * predicted) continue;
    factors_.Learn(part.op_class, part.phase, device, predicted, measured);
    learnt_ = true;
  }
}

void WorkTable::Restore(Learnt learnt) {
  for (const auto& program : learnt.programs) NoteProgram(*program);
  factors_ = std::move(learnt.factors);
  learnt_ = true;
}

std::optional<WorkTable::Learnt> WorkTable::TakeLearnt() {
  if (!std::exchange(learnt_, false)) return std::nullopt;
  return Learnt{programs_.Values(), factors_};
}

}  // namespace djinn::coordinator
