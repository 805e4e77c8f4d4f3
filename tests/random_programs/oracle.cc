#include "tests/random_programs/oracle.h"

#include <ATen/Context.h>
#include <ATen/SequenceNumber.h>

#include <exception>
#include <limits>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/random_programs/operator_facts.h"
#include "tests/random_programs/undo.h"

namespace djinn::random_programs {
namespace {

constexpr int kGeneratorResource = std::numeric_limits<int>::max();
constexpr int SlotResource(int slot) { return -1 - slot; }

}  // namespace

Facts FactsOf(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {.defined = true,
          .dtype = tensor.scalar_type(),
          .sizes = tensor.sizes().vec(),
          .strides = tensor.strides().vec(),
          .offset = tensor.storage_offset(),
          .requires_grad = tensor.requires_grad(),
          .is_leaf = tensor.is_leaf(),
          .is_inference = tensor.is_inference()};
}

std::string Describe(const Facts& facts) {
  if (!facts.defined) return "undefined";
  return absl::StrCat(c10::toString(facts.dtype), "[",
                      absl::StrJoin(facts.sizes, ", "), "] strides [",
                      absl::StrJoin(facts.strides, ", "), "] offset ",
                      facts.offset, facts.requires_grad ? " requires_grad" : "",
                      facts.is_leaf ? "" : " not a leaf",
                      facts.is_inference ? " inference" : "");
}

void Poison::Add(const Poison& other) {
  if (other.empty()) return;
  certain = empty() ? other.certain : certain || other.certain;
  roots.insert(other.roots.begin(), other.roots.end());
}

Oracle::Oracle(const Program& program, bool failures, Noise* noise, bool fast)
    : machine_(at::kCPU, program.slots),
      failures_(failures),
      noise_(noise),
      fast_(fast) {
  at::manual_seed(program.seed);
  if (program.lanes == 1) return;
  for (int lane = 0; lane < program.lanes; ++lane) {
    lanes_.push_back(std::make_unique<LaneThread>());
  }
}

Oracle::Oracle(const Callable& callable, const Given& given, Noise* noise,
               bool fast)
    : machine_(at::kCPU, callable, given),
      failures_(false),
      noise_(noise),
      fast_(fast) {}

int Oracle::StorageId(const at::Tensor& tensor) {
  const auto [entry, added] = ids_.try_emplace(
      tensor.storage().unsafeGetStorageImpl(), storages_.size());
  if (added) storages_.push_back(tensor.storage());
  return entry->second;
}

Poison Oracle::PoisonOf(const at::Tensor& tensor) {
  const auto found = poison_.find(StorageId(tensor));
  if (found == poison_.end() || found->second.empty()) return {};
  Poison poison = found->second;
  // An empty tensor has no elements that could be missing.
  if (tensor.numel() == 0) poison.certain = false;
  return poison;
}

void Oracle::NoteUses(const Step& step, Expectation* expectation) {
  for (size_t i = 0; i < step.arguments.size(); ++i) {
    Step one;
    one.arguments = {step.arguments[i]};
    const bool written = step.kind == Step::Kind::kCall
                             ? IsWritten(step.op->schema().arguments()[i])
                             : step.kind == Step::Kind::kDrop;
    for (const int slot : SlotsOf(one)) {
      expectation->reads.insert(SlotResource(slot));
      if (step.kind == Step::Kind::kDrop) {
        expectation->writes.insert(SlotResource(slot));
        continue;
      }
      const at::Tensor& tensor = machine_.slot(slot);
      if (!tensor.defined()) continue;
      expectation->reads.insert(StorageId(tensor));
      if (written) expectation->writes.insert(StorageId(tensor));
    }
  }
  for (const int slot : step.results) {
    expectation->writes.insert(SlotResource(slot));
  }
  if (MayDraw(step)) expectation->writes.insert(kGeneratorResource);
  expectation->barrier =
      step.kind == Step::Kind::kSeed || IsBackward(step) ||
      step.kind == Step::Kind::kGrad || step.kind == Step::Kind::kClearGrad ||
      step.kind == Step::Kind::kUpdate ||
      step.kind == Step::Kind::kRequiresGrad ||
      step.kind == Step::Kind::kSetData || step.kind == Step::Kind::kSetFast ||
      step.kind == Step::Kind::kCallable || ChangesOnlyMetadata(step);
}

Poison Oracle::PoisonReadBy(const Step& step) {
  Poison poison;
  for (size_t i = 0; i < step.arguments.size(); ++i) {
    Step one;
    one.arguments = {step.arguments[i]};
    for (const int slot : SlotsOf(one)) {
      const at::Tensor& tensor = machine_.slot(slot);
      if (IsOverwritten(step, i) && Covers(tensor) && tensor.numel() > 0) {
        continue;
      }
      if (ReadsOnlyMetadata(step, i)) continue;
      poison.Add(PoisonOf(tensor));
    }
  }
  return poison;
}

void Oracle::Propagate(const Step& step, const Poison& read,
                       const std::vector<at::Tensor>& results,
                       bool fresh_only) {
  std::set<int> fresh;
  for (const at::Tensor& result : results) {
    if (!result.defined()) continue;
    const bool known = ids_.contains(result.storage().unsafeGetStorageImpl());
    const int id = StorageId(result);
    if (!known || fresh.contains(id)) {
      fresh.insert(id);
      if (!read.empty()) poison_[id] = read;
    }
  }
  if (fresh_only || ChangesOnlyMetadata(step)) return;
  for (size_t i = 0; i < step.arguments.size(); ++i) {
    if (!IsWritten(step.op->schema().arguments()[i])) continue;
    Step one;
    one.arguments = {step.arguments[i]};
    for (const int slot : SlotsOf(one)) {
      const at::Tensor& tensor = machine_.slot(slot);
      const int id = StorageId(tensor);
      if (tensor.numel() == 0) {
        Poison uncertain = read;
        uncertain.certain = false;
        if (poison_[id].empty()) poison_[id].Add(uncertain);
        continue;
      }
      if (read.empty()) {
        poison_.erase(id);
      } else if (read.certain || poison_[id].empty()) {
        poison_[id] = read;
      } else {
        poison_[id].Add(read);
      }
    }
  }
}

std::optional<std::vector<at::Tensor>> Oracle::ExecuteHarmlessly(
    const Step& step) {
  const Machine::Substitute harmless = [&](const c10::Argument& argument,
                                           const at::Tensor& tensor) {
    return Harmless(step, argument, tensor);
  };
  WriteScope write(step, machine_);
  try {
    return machine_.Execute(step, &harmless);
  } catch (const std::exception&) {
    write.Undo();
    return std::nullopt;
  }
}

bool Oracle::ResizedShared(const Step& step,
                           const std::vector<Facts>& before) const {
  for (const size_t output : Outputs(step)) {
    const at::Tensor& out = Operand(step, output, machine_);
    const std::vector<at::Tensor> operands = machine_.Operands(step);
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].is_same(out) && before[i].sizes == out.sizes()) break;
      if (!operands[i].is_same(out) && operands[i].is_alias_of(out)) {
        return true;
      }
    }
  }
  return false;
}

void Oracle::Forget(const std::function<bool(const at::Tensor&)>& forgotten,
                    Expectation* expectation) {
  std::vector<int> slots;
  for (int slot = 0; slot < machine_.size(); ++slot) {
    if (!machine_.slot(slot).defined() || !forgotten(machine_.slot(slot))) {
      continue;
    }
    slots.push_back(slot);
  }
  for (const int slot : slots) machine_.Empty(slot);
  expectation->forgotten = std::move(slots);
}

void Oracle::ForgetOutputs(const Step& step, bool with_aliases,
                           Expectation* expected) {
  Forget(
      [&](const at::Tensor& tensor) {
        return absl::c_any_of(Outputs(step), [&](size_t output) {
          const at::Tensor& out = Operand(step, output, machine_);
          return with_aliases ? tensor.is_alias_of(out) : tensor.is_same(out);
        });
      },
      expected);
}

Poison Oracle::PoisonWrittenBy(const Step& step, bool failed,
                               Expectation* expected) {
  // Checks a second time now that outputs have their new sizes, because an
  // output of the right size may overwrite the whole memory.
  Poison written = PoisonReadBy(step);
  if (failed) {
    expected->fails = written.empty();
    failed_ = true;
    // The device may compute an output's new value without reading the missing
    // old value, and fail later.
    expected->may_fail =
        !written.empty() && (!written.certain || !Outputs(step).empty());
    if (expected->fails) {
      written = {.roots = {position_}};
    } else if (expected->may_fail) {
      written.roots.insert(position_);
    }
  }
  if (absl::StrContains(step.op->schema().name(), "_like")) {
    written.certain = false;
  }
  return written;
}

Expectation Oracle::Call(const Step& step) {
  Expectation expected;
  if (NothingIsPromised(step, machine_)) return expected;
  const Poison read = PoisonReadBy(step);
  const bool draws = MayDraw(step);
  // If it is uncertain whether a call reads a missing value, it is uncertain
  // whether the call draws. A composite may also draw before it reads the
  // value.
  if (draws && !read.empty() &&
      (!read.certain || absl::StrContains(step.op->schema().name(), "_like") ||
       absl::StrContains(step.op->schema().name(), "dropout"))) {
    return expected;
  }
  if (NeedsValues(step, machine_) && !read.empty()) {
    if (!read.certain) return expected;
    expected.outcome = Expectation::Outcome::kRaisesRoot;
    expected.poison = read;
    machine_.Store(step, {});
    return expected;
  }
  DrawScope draw(step);
  WriteScope write(step, machine_);
  std::vector<Facts> before;
  for (const at::Tensor& operand : machine_.Operands(step)) {
    before.push_back(FactsOf(operand));
  }
  std::vector<at::Tensor> results;
  std::optional<std::string> message;
  try {
    results = ExecuteDisturbed(step);
    if (!read.empty()) draw.Undo();
  } catch (const std::exception& error) {
    const bool drew = draw.Drew();
    draw.Undo();
    message = MessageOf(error);
    // PyTorch notices this error only after the call was executed.
    const bool too_late =
        absl::StrContains(*message, "inplace update to inference tensor");
    if (!too_late || draws || !read.empty()) write.Undo();
    std::optional<std::vector<at::Tensor>> placeholders;
    if (!too_late && !IsAboutOutputs(*message) && failures_ &&
        !NeedsValues(step, machine_)) {
      const uint64_t nodes_before = at::sequence_number::peek();
      placeholders = ExecuteHarmlessly(step);
      expected.more_nodes = at::sequence_number::peek() - nodes_before;
    }
    draw.Undo();
    if (!placeholders.has_value()) {
      // PyTorch does not promise what a call draws before it raises.
      if (drew || (draws && too_late)) return expected;
      if (!read.empty() || FoundByTheWorker(*message)) return expected;
      if (too_late) {
        Propagate(step, read, {}, /*fresh_only=*/false);
      } else if (WritesInferenceTensor(step, machine_)) {
        // The device decides which of the two errors comes first.
        return expected;
      }
      expected.outcome = Expectation::Outcome::kRaises;
      expected.message = *message;
      // It is unknown whether an output had taken the result's size when the
      // call failed. If the output has grown over operands, their values are
      // uncertain as well.
      const bool grew = too_late && ResizedShared(step, before);
      ForgetOutputs(step, /*with_aliases=*/grew, &expected);
      machine_.Store(step, {});
      return expected;
    }
    results = *std::move(placeholders);
  }
  if (ResizedShared(step, before)) {
    // PyTorch promises no values for operands over which an output grows.
    write.Undo();
    undone_ = true;
    draw.Undo();
    ForgetOutputs(step, /*with_aliases=*/true, &expected);
    return expected;
  }
  Propagate(step, PoisonWrittenBy(step, message.has_value(), &expected),
            results, /*fresh_only=*/false);
  machine_.Store(step, results);
  expected.outcome = Expectation::Outcome::kDone;
  for (const at::Tensor& result : results) {
    expected.results.push_back(FactsOf(result));
  }
  return expected;
}

std::vector<at::Tensor> Oracle::ExecuteDisturbed(const Step& step) {
  const Noise::Scope disturbed(fast_ ? noise_ : nullptr, step, machine_);
  return machine_.Execute(step);
}

Expectation Oracle::CallCallable(const Step& step) {
  Expectation expected;
  for (const at::Tensor& operand : machine_.Operands(step)) {
    if (!PoisonOf(operand).empty()) return expected;
  }
  const Given given = machine_.GivenBy(step);
  std::vector<Facts> before;
  for (int slot = 0; slot < machine_.size(); ++slot) {
    before.push_back(FactsOf(machine_.slot(slot)));
  }
  DrawScope draw(step);
  WriteScope write(given);
  const GradientScope mode(step.mode);
  Oracle inside(*step.callable, given, noise_, fast_);
  for (const Step& inner : step.callable->steps) {
    if (inside.Apply(inner).outcome == Expectation::Outcome::kDone) continue;
    write.Undo();
    draw.Undo();
    undone_ = true;
    // Tensors whose shape or graph has changed cannot be restored.
    std::vector<at::Tensor> others;
    for (int slot = 0; slot < machine_.size(); ++slot) {
      if (FactsOf(machine_.slot(slot)) == before[slot]) continue;
      others.push_back(machine_.slot(slot));
    }
    Forget(
        [&](const at::Tensor& tensor) {
          return absl::c_any_of(others, [&](const at::Tensor& other) {
            return tensor.is_same(other);
          });
        },
        &expected);
    return expected;
  }
  const std::vector<at::Tensor> results =
      inside.machine_.Outputs(*step.callable);
  machine_.Store(step, results);
  expected.outcome = Expectation::Outcome::kDone;
  for (const at::Tensor& result : results) {
    expected.results.push_back(FactsOf(result));
  }
  return expected;
}

Expectation Oracle::Apply(const Step& step) {
  Expectation expected;
  const auto apply = [&] {
    const uint64_t before = at::sequence_number::peek();
    expected = ApplyHere(step);
    expected.nodes = at::sequence_number::peek() - before;
    if (expected.outcome == Expectation::Outcome::kSkipped) {
      expected.more_nodes = expected.nodes;
    }
    expected.nodes -= expected.more_nodes;
  };
  if (lanes_.empty()) {
    apply();
  } else {
    lanes_[step.lane]->Run(apply);
  }
  return expected;
}

Expectation Oracle::ApplyHere(const Step& step) {
  ++position_;
  Expectation expected;
  if (!machine_.Ready(step)) {
    machine_.Store(step, {});
    return expected;
  }
  Expectation uses;
  NoteUses(step, &uses);
  if (step.kind == Step::Kind::kCall) {
    expected = Call(step);
  } else if (step.kind == Step::Kind::kCallable) {
    expected = CallCallable(step);
  } else {
    if (step.kind == Step::Kind::kSetFast) {
      fast_ = std::get<c10::IValue>(step.arguments[0]).toBool();
    }
    // Skips an update, whose result would be missing if the gradient is.
    if (step.kind == Step::Kind::kUpdate && !poison_.empty()) return expected;
    Poison anything;
    if (IsBackward(step)) {
      for (const auto& [id, poison] : poison_) anything.Add(poison);
      // The formula of a call that failed may fail, too.
      if (failed_) anything.roots.insert(position_);
      anything.certain = false;
      // Some formulas read elements, and so may raise the root error.
      expected.poison = anything;
    } else if (step.kind == Step::Kind::kRead) {
      expected.poison = PoisonOf(machine_.slot(SlotsOf(step)[0]));
    }
    try {
      const std::vector<at::Tensor> results = ExecuteDisturbed(step);
      expected.outcome = Expectation::Outcome::kDone;
      if (step.kind == Step::Kind::kRead) {
        expected.value = results[0];
      } else {
        Propagate(step, {}, results, /*fresh_only=*/true);
        machine_.Store(step, results);
        for (const at::Tensor& result : results) {
          expected.results.push_back(FactsOf(result));
        }
      }
      expected.may_fail = anything.roots.contains(position_);
      if (!anything.empty()) {
        for (int slot = 0; slot < machine_.size(); ++slot) {
          const at::Tensor& tensor = machine_.slot(slot);
          if (!tensor.defined() || !tensor.is_leaf()) continue;
          if (tensor.grad().defined()) {
            poison_[StorageId(tensor.grad())].Add(anything);
          }
        }
      }
    } catch (const std::exception& error) {
      expected.outcome = Expectation::Outcome::kRaises;
      expected.message = MessageOf(error);
      machine_.Store(step, {});
      if ((undone_ && absl::StrContains(expected.message,
                                        "modified by an inplace operation")) ||
          absl::StrContains(expected.message, "zerotensors are immutable") ||
          absl::StrContains(expected.message, "does not have a device")) {
        // The CPU cannot add to a gradient that is a zero tensor, which has no
        // memory, and some of its formulas ask for the device of an undefined
        // gradient. A remote device has no zero tensors.
        expected.outcome = Expectation::Outcome::kSkipped;
        Forget([](const at::Tensor&) { return true; }, &expected);
      }
    }
  }
  for (const int slot : expected.forgotten) {
    uses.writes.insert(SlotResource(slot));
  }
  expected.reads = std::move(uses.reads);
  expected.writes = std::move(uses.writes);
  expected.barrier = uses.barrier;
  if (expected.outcome == Expectation::Outcome::kSkipped) {
    machine_.Store(step, {});
    return expected;
  }
  if (step.kind != Step::Kind::kDrop) {
    for (const at::Tensor& operand : machine_.Operands(step)) {
      expected.operands.push_back(FactsOf(operand));
    }
  }
  for (const at::Tensor& result : machine_.Operands(step)) {
    if (result.defined()) expected.reads.insert(StorageId(result));
  }
  return expected;
}

std::vector<FinalValue> Oracle::Finish() {
  std::vector<FinalValue> values;
  for (int slot = 0; slot < machine_.size(); ++slot) {
    const at::Tensor& tensor = machine_.slot(slot);
    if (!tensor.defined()) continue;
    const auto add = [&](bool gradient, const at::Tensor& value) {
      values.push_back({slot, gradient, FactsOf(value),
                        value.detach().clone(at::MemoryFormat::Contiguous),
                        PoisonOf(value), StorageId(value)});
    };
    add(/*gradient=*/false, tensor);
    if (!tensor.is_leaf() || !tensor.requires_grad()) continue;
    if (tensor.grad().defined()) {
      add(/*gradient=*/true, tensor.grad());
    } else {
      values.push_back({slot, /*gradient=*/true, {}, {}, {}, -1});
    }
  }
  return values;
}

}  // namespace djinn::random_programs
