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

void WorkTable::NoteProgram(const std::string& tenant,
                            const std::string& program, SharedWork work,
                            size_t structures) {
  if (program.empty()) return;
  const std::string key = ProgramKey(tenant, program);
  const Program* const before = programs_.Find(key);
  if (before != nullptr && before->structures > structures) return;
  programs_.Put(tenant, key, {std::move(work), structures});
}

SharedWork WorkTable::OfProgram(const std::string& tenant,
                                const std::string& program) const {
  const Program* const found = programs_.Find(ProgramKey(tenant, program));
  return found == nullptr ? nullptr : found->work;
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
  }
}

}  // namespace djinn::coordinator
