// Checks a run before it changes anything, and poisons the outputs of a run
// that executes nothing.
#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/srg/switches.h"
#include "djinn/v1/execution.pb.h"
#include "gpu_worker/plan/run_executor.h"

namespace djinn::worker {
namespace {

absl::Status Violation(absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, "PROTOCOL_VIOLATION",
                   absl::StrCat("run: ", what));
}

absl::Status CheckBinding(const BoundRun::Binding& binding,
                          const StorageTable& storages) {
  if (binding.storage == 0) return Violation("storage 0");
  if (binding.base_version == 0) {
    if (storages.Used(binding.storage)) {
      return Violation(absl::StrCat("storage ", binding.storage,
                                    " is created although its id was used"));
    }
    if (binding.writes == 0 || binding.reads) {
      return Violation(
          absl::StrCat("storage ", binding.storage,
                       " is created without a write or read before"));
    }
    return absl::OkStatus();
  }
  if (binding.existing == nullptr) {
    return Violation(
        absl::StrCat("storage ", binding.storage, " does not exist"));
  }
  if (binding.existing->version != binding.base_version) {
    return Violation(absl::StrCat("storage ", binding.storage, " has version ",
                                  binding.existing->version, ", not ",
                                  binding.base_version));
  }
  return absl::OkStatus();
}

absl::Status CheckBindings(const BoundRun& run, const StorageTable& storages) {
  absl::flat_hash_set<uint64_t> bound;
  bound.reserve(run.bindings.size());
  for (const BoundRun::Binding& binding : run.bindings) {
    DJINN_RETURN_IF_ERROR(CheckBinding(binding, storages));
    if (!bound.insert(binding.storage).second) {
      return Violation(
          absl::StrCat("storage ", binding.storage, " is bound twice"));
    }
  }
  for (size_t i = 0; i < run.final_slots.size(); ++i) {
    if (run.final_slots[i] >= run.bindings.size() ||
        (i > 0 && run.final_slots[i] <= run.final_slots[i - 1])) {
      return Violation("final slots are out of range or not ascending");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRefusedRun(const BoundRun& run,
                             const StorageTable& storages) {
  if (const size_t most = srg::GraphCaps().max_slots;
      run.bindings.size() > most) {
    return Violation(absl::StrCat(run.bindings.size(),
                                  " bindings; no graph has more than ", most,
                                  " slots"));
  }
  return CheckBindings(run, storages);
}

absl::Status CheckRun(const Plan& plan, const BoundRun& run,
                      const StorageTable& storages) {
  const srg::Graph& graph = plan.graph();
  const srg::GraphFacts& facts = plan.facts();
  if (run.bindings.size() != graph.slots.size()) {
    return Violation(absl::StrCat(run.bindings.size(), " bindings for ",
                                  graph.slots.size(), " slots"));
  }
  DJINN_RETURN_IF_ERROR(CheckBindings(run, storages));
  for (size_t i = 0; i < run.bindings.size(); ++i) {
    const BoundRun::Binding& binding = run.bindings[i];
    const srg::Slot::Kind kind = graph.slots[i].kind;
    const bool created =
        kind == srg::Slot::Kind::kCreated || kind == srg::Slot::Kind::kResult;
    if (created != (binding.base_version == 0)) {
      return Violation(
          absl::StrCat("slot ", i, " of storage ", binding.storage,
                       created ? " is not created" : " is created"));
    }
    if (binding.writes != facts.slots[i].writes ||
        binding.reads != facts.slots[i].reads) {
      return Violation(absl::StrCat(
          "slot ", i, " of storage ", binding.storage, ": ", binding.writes,
          binding.reads ? " writes and a read" : " writes", ", but ",
          facts.slots[i].writes,
          facts.slots[i].reads ? " and a read" : " and no read",
          " in the graph"));
    }
    if (!created &&
        binding.existing->generator != (kind == srg::Slot::Kind::kGenerator)) {
      return Violation(absl::StrCat("slot ", i, " of storage ", binding.storage,
                                    ": generators and tensors differ"));
    }
  }
  const v1::Run& message = *run.message;
  if (run.floats.size() != graph.float_hole_count ||
      static_cast<uint32_t>(message.scalar_tensors_size()) !=
          graph.scalar_tensor_hole_count) {
    return Violation("number of hole values");
  }
  for (int i = 0; i < message.scalar_tensors_size(); ++i) {
    if (static_cast<int64_t>(message.scalar_tensors(i).size()) !=
        srg::ElementSize(facts.scalar_tensor_types[i])) {
      return Violation(absl::StrCat("size of scalar tensor ", i));
    }
  }
  if (message.reply_metadata() != (facts.unknown_results > 0)) {
    return Violation("reply_metadata");
  }
  if (!v1::ExecutionMode_IsValid(message.mode())) {
    return Violation(absl::StrCat("execution mode ", message.mode()));
  }
  if (message.has_switches()) {
    const auto switches = srg::FromProto(message.switches());
    if (!switches.ok()) return Violation(switches.status().message());
  }
  return absl::OkStatus();
}

void PoisonRun(const Plan* plan, const BoundRun& run, const RootError& error,
               StorageTable* storages) {
  for (size_t i = 0; i < run.bindings.size(); ++i) {
    const BoundRun::Binding& binding = run.bindings[i];
    if (binding.writes == 0) continue;
    Storage* storage = binding.existing;
    if (storage == nullptr) {
      storage = storages->Create(binding.storage);
      storage->size_bytes = plan == nullptr ? 0 : plan->created_bytes()[i];
      storage->size_known = storage->size_bytes > 0;
    }
    storage->version = binding.base_version + binding.writes;
    if (!storage->generator) storage->poison = error;
  }
  for (const uint32_t slot : run.final_slots) {
    storages->Remove(run.bindings[slot].storage);
  }
}

}  // namespace djinn::worker
