#include "coordinator/persistence/program_memory.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/log/log.h"
#include "djinn/v1/coordinator_state.pb.h"
#include "scheduler/semantics/patterns/operators.h"

namespace djinn::coordinator {
namespace {

constexpr char kProgram[] = "program/";
constexpr char kFactors[] = "factors/";
// Must change whenever operations, bytes or calls are counted in another way:
// measurements against the old counts do not apply to the new ones.
constexpr uint32_t kVersion = 1;

using State = std::map<std::string, std::string>;

std::string KeyOf(absl::string_view tenant, absl::string_view name) {
  // Both names may have a "/". The length says where the tenant's name ends, so
  // that the programs of two tenants never share a key.
  return absl::StrCat(kProgram, tenant.size(), "/", tenant, "/", name);
}

std::string Encode(const WorkTable::Program& program) {
  v1::StoredProgram stored;
  stored.set_version(kVersion);
  stored.set_tenant(program.tenant);
  stored.set_name(program.name);
  stored.set_graphs(program.graphs);
  for (const scheduler::Work::Part& part : program.work->parts()) {
    v1::StoredProgram::Part* const out = stored.add_parts();
    out->set_op_class(std::string(semantics::OpClassName(part.op_class)));
    out->set_phase(static_cast<v1::Phase>(part.phase));
    out->set_flops(part.cost.flops);
    out->set_read_bytes(part.cost.read_bytes);
    out->set_written_bytes(part.cost.written_bytes);
    out->set_calls(part.calls);
  }
  return stored.SerializeAsString();
}

std::string Encode(const semantics::CostFactors::Logarithms& learned) {
  v1::StoredFactors stored;
  stored.set_version(kVersion);
  for (const auto& [of, logarithm] : learned) {
    v1::StoredFactors::Factor* const out = stored.add_factors();
    out->set_op_class(std::string(semantics::OpClassName(of.first)));
    out->set_phase(static_cast<v1::Phase>(of.second));
    out->set_natural_logarithm(logarithm);
  }
  return stored.SerializeAsString();
}

// Returns the class and phase of a part or factor; nothing if they are not
// known.
template <typename Message>
std::optional<std::pair<semantics::OpClass, semantics::Phase>> KindOf(
    const Message& message) {
  const auto op_class = semantics::FindOpClass(message.op_class());
  if (!op_class.has_value() || message.phase() < 0 ||
      message.phase() >= semantics::kPhaseCount) {
    return std::nullopt;
  }
  return std::pair(*op_class, static_cast<semantics::Phase>(message.phase()));
}

std::shared_ptr<const WorkTable::Program> DecodeProgram(
    const std::string& key, const std::string& value) {
  v1::StoredProgram stored;
  if (!stored.ParseFromString(value) || stored.version() != kVersion ||
      key != KeyOf(stored.tenant(), stored.name()) || stored.graphs() == 0 ||
      stored.graphs() > WorkTable::kMaxGraphs) {
    return nullptr;
  }
  auto work = std::make_shared<scheduler::Work>();
  for (const v1::StoredProgram::Part& part : stored.parts()) {
    const auto kind = KindOf(part);
    if (!kind.has_value()) return nullptr;
    work->Add({kind->first,
               kind->second,
               {part.flops(), part.read_bytes(), part.written_bytes()},
               part.calls()});
  }
  return std::make_shared<const WorkTable::Program>(
      WorkTable::Program{stored.tenant(), stored.name(), std::move(work),
                         static_cast<size_t>(stored.graphs())});
}

bool DecodeFactors(absl::string_view device, const std::string& value,
                   semantics::CostFactors* factors) {
  v1::StoredFactors stored;
  if (!stored.ParseFromString(value) || stored.version() != kVersion) {
    return false;
  }
  semantics::CostFactors::Logarithms learned;
  for (const v1::StoredFactors::Factor& factor : stored.factors()) {
    const auto kind = KindOf(factor);
    if (!kind.has_value()) return false;
    learned[*kind] = factor.natural_logarithm();
  }
  return factors->Restore(device, std::move(learned));
}

void ReadEach(const State& state, absl::string_view prefix,
              absl::FunctionRef<bool(const State::value_type&)> read) {
  for (auto entry = state.lower_bound(std::string(prefix));
       entry != state.end() && absl::StartsWith(entry->first, prefix);
       ++entry) {
    if (read(*entry)) continue;
    log::Warning("program memory entry is unreadable; left out",
                 {{"key", entry->first}});
  }
}

}  // namespace

State EncodeProgramMemory(const WorkTable::ProgramMemory& memory) {
  State state;
  for (const auto& program : memory.programs) {
    state[KeyOf(program->tenant, program->name)] = Encode(*program);
  }
  memory.factors.ForEach([&](absl::string_view device, const auto& factors) {
    state[absl::StrCat(kFactors, device)] = Encode(factors);
  });
  return state;
}

WorkTable::ProgramMemory DecodeProgramMemory(const State& state) {
  WorkTable::ProgramMemory memory;
  ReadEach(state, kProgram, [&](const State::value_type& entry) {
    auto program = DecodeProgram(entry.first, entry.second);
    if (program == nullptr) return false;
    memory.programs.push_back(std::move(program));
    return true;
  });
  ReadEach(state, kFactors, [&](const State::value_type& entry) {
    return DecodeFactors(absl::StripPrefix(entry.first, kFactors), entry.second,
                         &memory.factors);
  });
  return memory;
}

}  // namespace djinn::coordinator
