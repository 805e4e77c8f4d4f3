#include "coordinator/work_table.h"

namespace djinn::coordinator {
namespace {

// Less of a structure's time says little about a class of operators.
constexpr double kMinShare = 0.1;

std::string ProgramKey(const std::string& tenant, const std::string& program) {
  // Neither can change what the other says: names have no zero byte.
  return tenant + '\0' + program;
}

}  // namespace

SharedWork WorkTable::OfStructure(const std::string& fingerprint) const {
  const SharedWork* const found = structures_.Find(fingerprint);
  return found == nullptr ? nullptr : *found;
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
