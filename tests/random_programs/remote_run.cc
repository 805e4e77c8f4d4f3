#include "tests/random_programs/remote_run.h"

#include <ATen/Context.h>
#include <ATen/SequenceNumber.h>
#include <ATen/core/Formatting.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "djinn/djinn.h"
#include "tests/random_programs/tolerance.h"

namespace djinn::random_programs {
namespace {

using Outcome = Expectation::Outcome;

// Limits the wait for one step of another lane.
constexpr absl::Duration kTurnTimeout = absl::Minutes(2);

std::string Show(const at::Tensor& tensor) {
  std::ostringstream out;
  out.precision(17);
  const at::Tensor flat = tensor.reshape({-1});
  const int64_t shown = std::min<int64_t>(flat.numel(), 48);
  for (int64_t i = 0; i < shown; ++i) {
    out << (i > 0 ? ", " : "") << flat[i].item();
  }
  if (shown < flat.numel()) out << ", ...";
  return out.str();
}

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         (a.numel() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(),
                                        a.numel() * a.element_size()) == 0);
}

// Returns whether the elements have equal bits, except that all NaNs are equal.
// Both tensors are contiguous.
bool SameElements(const at::Tensor& a, const at::Tensor& b) {
  if (SameBits(a, b)) return true;
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes() ||
      !(a.is_floating_point() || a.is_complex())) {
    return false;
  }
  return SameBits(at::where(a.isnan(), at::zeros_like(a), a),
                  at::where(b.isnan(), at::zeros_like(b), b)) &&
         at::equal(a.isnan(), b.isnan());
}

// Maps error ids to the steps for which they may stand, as far as reads have
// shown this.
class RootIds {
 public:
  // Returns false if the id cannot stand for any of the roots.
  bool Observe(const std::string& id, const std::set<int>& roots) {
    if (id.empty()) return false;
    MutexLock lock(&mu_);
    const auto [entry, added] = roots_.try_emplace(id, roots);
    if (!added) {
      std::set<int> both;
      std::set_intersection(entry->second.begin(), entry->second.end(),
                            roots.begin(), roots.end(),
                            std::inserter(both, both.end()));
      entry->second = std::move(both);
    }
    if (entry->second.empty()) return false;
    for (const auto& [other, candidates] : roots_) {
      if (other != id && candidates.size() == 1 &&
          candidates == entry->second) {
        return false;
      }
    }
    return true;
  }

 private:
  Mutex mu_;
  std::map<std::string, std::set<int>> roots_ ABSL_GUARDED_BY(mu_);
};

class RemoteRun {
 public:
  RemoteRun(const Program& program,
            const std::vector<Expectation>& expectations,
            const Comparison& comparison)
      : program_(program),
        comparison_(comparison),
        may_be_fast_(comparison.mode == ExecutionMode::kFast ||
                     absl::c_any_of(program.steps,
                                    [](const Step& step) {
                                      return step.kind == Step::Kind::kSetFast;
                                    })),
        expectations_(expectations),
        tolerance_(program, expectations,
                   comparison.mode == ExecutionMode::kFast),
        machine_(Device(), program.slots),
        done_(program.steps.size()) {
    machine_.set_invoke([this](const Callable& callable, const Given& given) {
      return Invoke(callable, given);
    });
  }

  // Judges the result of Run(). A difference is allowed if a step in fast mode
  // may have caused it.
  std::optional<std::string> Judge(std::optional<std::string> difference,
                                   Tally* tally) {
    for (const auto& [id, registered] : registered_) {
      const uint64_t replays = registered.function->statistics().replays;
      tally->calls += registered.calls;
      tally->replays += replays;
      if (registered.callable->parameters > 0) {
        tally->replays_with_parameters += replays;
      }
      tally->replays_with_gradients += registered.replays_with_gradients;
    }
    if (!may_be_fast_) return difference;
    for (const Doubt& doubt : doubts_) {
      const bool allowed =
          doubt.final_value == nullptr
              ? tolerance_.AllowsRead(doubt.step, doubt.value)
              : tolerance_.AllowsAtTheEnd(*doubt.final_value, doubt.value);
      if (!allowed) return doubt.difference;
      ++tally->other_sums;
    }
    if (!difference.has_value()) return std::nullopt;
    const bool allowed = stopped_at_.has_value()
                             ? tolerance_.AllowsAnotherOutcome(*stopped_at_)
                             : tolerance_.AllowsAnotherOutcome();
    if (!allowed) return difference;
    ++tally->left_out;
    return std::nullopt;
  }

  // Runs the program and returns the first difference. `final_values` outlives
  // this object.
  std::optional<std::string> Run(const std::vector<FinalValue>& final_values) {
    // Root errors of an earlier program may not have arrived yet.
    (void)Synchronize();
    const uint64_t errors_before = GetStatistics().root_errors;
    at::manual_seed(program_.seed);
    if (program_.lanes == 1) {
      RunLane(0);
    } else {
      std::vector<std::thread> threads;
      for (int lane = 0; lane < program_.lanes; ++lane) {
        threads.emplace_back([this, lane] { RunLane(lane); });
      }
      for (std::thread& thread : threads) thread.join();
    }
    {
      MutexLock lock(&mu_);
      if (over_) return difference_;
    }
    if (auto difference = CompareEnd(final_values)) return difference;
    // Collects root errors of poisoned values that were not read.
    (void)Synchronize();
    uint64_t expected = 0, possible = 0;
    for (size_t i = 0; i < expectations_.size(); ++i) {
      expected += expectations_[i].fails;
      possible += expectations_[i].fails || expectations_[i].may_fail;
      // Any number of formulas of a backward pass may fail.
      if (expectations_[i].may_fail &&
          program_.steps[i].kind == Step::Kind::kBackward) {
        possible += program_.steps.size();
      }
    }
    const uint64_t errors = GetStatistics().root_errors - errors_before;
    if (MayLoseWorker()) return std::nullopt;
    if (errors >= expected && errors <= possible) return std::nullopt;
    const std::vector<absl::Status> known = RootErrors();
    return absl::StrCat(
        "at the end: ", errors, " root errors, not ", expected,
        known.empty() ? ""
                      : absl::StrCat(", the last: ", known.back().ToString()));
  }

 private:
  // A value that differs from the CPU's, and may do so in fast mode.
  struct Doubt {
    size_t step = 0;
    const FinalValue* final_value = nullptr;  // null for a read at the step
    at::Tensor value;
    std::string difference;
  };

  // A callable, and the tensors to which it refers in the present call.
  struct Registered {
    const Callable* callable = nullptr;
    Given given;
    std::optional<CompiledFunction> function;
    uint64_t calls = 0;
    uint64_t replays_with_gradients = 0;
  };

  std::vector<at::Tensor> Invoke(const Callable& callable, const Given& given) {
    // Steps that call a callable are ordered, so they never run concurrently.
    Registered& registered = registered_[callable.id];
    registered.given.parameters = given.parameters;
    registered.given.attribute = given.attribute;
    // Releases the tensors after the call, so that they may be freed.
    const absl::Cleanup forget = [&] { registered.given = {}; };
    if (!registered.function.has_value()) Register(callable, &registered);
    CompiledFunction& function = *registered.function;
    const uint64_t before = function.statistics().replays;
    std::vector<at::Tensor> results = function(given.arguments);
    ++registered.calls;
    if (at::GradMode::is_enabled() && LeavesGradients(callable, given)) {
      registered.replays_with_gradients +=
          function.statistics().replays - before;
    }
    return results;
  }

  static void Register(const Callable& callable, Registered* registered) {
    registered->callable = &callable;
    CompileOptions options;
    if (callable.same_parameters) {
      options.parameters = registered->given.parameters;
    } else if (callable.parameters > 0) {
      options.read_parameters = [registered] {
        return registered->given.parameters;
      };
    }
    if (callable.uses_attribute()) {
      options.key = [registered] {
        std::ostringstream key;
        key << registered->given.attribute;
        return key.str();
      };
    }
    registered->function.emplace(
        [registered](const std::vector<at::Tensor>& arguments) {
          Given given = registered->given;
          given.arguments = arguments;
          return Perform(*registered->callable, given, Device());
        },
        std::move(options));
  }

  static bool LeavesGradients(const Callable& callable, const Given& given) {
    return absl::c_any_of(callable.steps, IsBackward) &&
           absl::c_any_of(given.parameters, [](const at::Tensor& tensor) {
             return tensor.requires_grad();
           });
  }

  void RunLane(int lane) {
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      if (program_.steps[i].lane != lane && program_.lanes > 1) continue;
      std::optional<std::string> difference = AwaitTurn(i);
      if (!difference.has_value()) {
        if (IsOver()) return;
        if (comparison_.before_step) comparison_.before_step(i);
        const uint64_t before = at::sequence_number::peek();
        difference = RunStep(i);
        const uint64_t nodes = at::sequence_number::peek() - before;
        if (!difference.has_value()) difference = CompareNodes(i, nodes);
        for (const int slot : expectations_[i].forgotten) machine_.Empty(slot);
      }
      MutexLock lock(&mu_);
      done_[i] = true;
      if (difference.has_value() && !over_) {
        difference_ = absl::StrCat("at step ", i, ": ", *difference);
        stopped_at_ = i;
        over_ = true;
      }
      changed_.SignalAll();
      if (over_) return;
    }
  }

  bool IsOver() {
    MutexLock lock(&mu_);
    return over_;
  }

  bool MustPrecede(size_t earlier, size_t later) const {
    if (program_.steps[earlier].lane == program_.steps[later].lane) {
      return false;
    }
    const Expectation& a = expectations_[earlier];
    const Expectation& b = expectations_[later];
    const auto touches = [](const std::set<int>& writes, const Expectation& e) {
      return std::any_of(writes.begin(), writes.end(), [&](int resource) {
        return e.reads.contains(resource) || e.writes.contains(resource);
      });
    };
    return a.barrier || b.barrier || touches(a.writes, b) ||
           touches(b.writes, a);
  }

  std::optional<std::string> AwaitTurn(size_t step) {
    std::vector<size_t> needed;
    for (size_t i = 0; i < step; ++i) {
      if (program_.lanes > 1 && MustPrecede(i, step)) needed.push_back(i);
    }
    MutexLock lock(&mu_);
    while (!over_ &&
           !std::all_of(needed.begin(), needed.end(),
                        [this](size_t i) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
                          return done_[i];
                        })) {
      if (changed_.WaitWithTimeout(&mu_, kTurnTimeout)) {
        return "another lane did not get on";
      }
    }
    return std::nullopt;
  }

  std::optional<std::string> RunStep(size_t index) {
    const Step& step = program_.steps[index];
    const Expectation& expected = expectations_[index];
    if (expected.outcome == Outcome::kSkipped) {
      machine_.Store(step, {});
      return std::nullopt;
    }
    if (step.kind == Step::Kind::kSetFast) {
      SetExecutionMode(std::get<c10::IValue>(step.arguments[0]).toBool()
                           ? ExecutionMode::kFast
                           : ExecutionMode::kStrict);
    }
    std::vector<at::Tensor> results;
    try {
      results = machine_.Execute(step);
    } catch (const Error& error) {
      machine_.Store(step, {});
      const auto difference = CompareRootError(error, expected);
      if (!difference.has_value()) EndAfter(step);
      return difference;
    } catch (const std::exception& error) {
      machine_.Store(step, {});
      const std::string message = MessageOf(error);
      if (!expected.poison.empty() &&
          (expected.may_fail ||
           absl::StrContains(message, "modified by an inplace operation"))) {
        // The CPU's graph may hold the placeholder of an operand instead.
        EndAfter(step);
        return std::nullopt;
      }
      return CompareError(message, expected);
    }
    if (expected.outcome == Outcome::kRaises) {
      if (IsNoErrorHere(expected.message)) {
        machine_.Store(step, {});
        return std::nullopt;
      }
      return absl::StrCat("raised nothing; the CPU said: ", expected.message);
    }
    if (expected.outcome == Outcome::kRaisesRoot) {
      if (MayLoseWorker()) {
        // The CPU did not make the call, so its values differ from here on.
        machine_.Store(step, {});
        MutexLock lock(&mu_);
        over_ = true;
        return std::nullopt;
      }
      return "raised nothing, although a value it needs is missing";
    }
    if (step.kind == Step::Kind::kRead) {
      auto difference =
          CompareRead(results[0], expected.value, expected.poison);
      if (!difference.has_value() || !may_be_fast_ ||
          !expected.poison.empty()) {
        return difference;
      }
      MutexLock lock(&mu_);
      doubts_.push_back(
          {.step = index,
           .value = results[0],
           .difference = absl::StrCat("at step ", index, ": ", *difference)});
      return std::nullopt;
    }
    machine_.Store(step, results);
    if (step.kind == Step::Kind::kDrop) return std::nullopt;
    return CompareFacts(step, results, expected);
  }

  std::optional<std::string> CompareRootError(const Error& error,
                                              const Expectation& expected) {
    if (error.reason() != "OPERATOR_FAILED" || expected.poison.empty()) {
      return absl::StrCat("raised ", error.reason(), ": ", MessageOf(error),
                          expected.outcome == Outcome::kRaises
                              ? "; the CPU said: " + expected.message
                              : "");
    }
    if (!MayLoseWorker() &&
        !ids_.Observe(error.error_id(), expected.poison.roots)) {
      return absl::StrCat("raised another root error, ", error.error_id(), ": ",
                          MessageOf(error));
    }
    return std::nullopt;
  }

  // Compares the numbers of autograd's nodes. If several threads made a graph,
  // the order of sums depends on these numbers: see LaneThread.
  std::optional<std::string> CompareNodes(size_t index, uint64_t nodes) {
    const Expectation& expected = expectations_[index];
    if (expected.outcome == Outcome::kRaisesRoot) {
      // The CPU did not start the call, so its numbering lags behind from this
      // step on.
      MutexLock lock(&mu_);
      over_ |= nodes > 0 && program_.lanes > 1;
      return std::nullopt;
    }
    if (nodes != expected.nodes && !IsOver()) {
      return absl::StrCat("autograd numbered ", nodes, " nodes, on the CPU ",
                          expected.nodes);
    }
    for (uint64_t i = 0; i < expected.more_nodes; ++i) {
      at::sequence_number::get_and_increment();
    }
    return std::nullopt;
  }

  // Returns whether the error occurs only on the CPU. PyTorch does not make
  // views of an inference tensor that got the data of a normal tensor. On the
  // CPU, the parts of some operators are such views; a remote device does not
  // need them, because it receives the operator as a whole.
  static bool IsNoErrorHere(absl::string_view error) {
    return absl::StrContains(error, "tensors do not track version counter");
  }

  // Ends the comparison after a backward pass that raised, because it is
  // unknown which part of it was executed.
  void EndAfter(const Step& step) {
    MutexLock lock(&mu_);
    over_ |= IsBackward(step);
  }

  std::optional<std::string> CompareError(const std::string& message,
                                          const Expectation& expected) const {
    if (expected.outcome != Outcome::kRaises) {
      return absl::StrCat("raised: ", message);
    }
    if (!comparison_.same_messages || message == expected.message)
      return std::nullopt;
    return absl::StrCat("raised: ", message,
                        "\n  the CPU said: ", expected.message);
  }

  bool MayLoseWorker() const { return comparison_.before_step != nullptr; }

  std::optional<std::string> CompareRead(const at::Tensor& value,
                                         const at::Tensor& expected,
                                         const Poison& poison) const {
    if (!poison.empty() && poison.certain && !MayLoseWorker()) {
      return absl::StrCat("read ", Show(value), ", which must be missing");
    }
    // If a value may be missing, the CPU's value may come from placeholders.
    if (!poison.empty() || SameElements(value, expected)) return std::nullopt;
    return absl::StrCat("read ", Describe(FactsOf(value)), " ", Show(value),
                        "\n  the CPU has ", Describe(FactsOf(expected)), " ",
                        Show(expected));
  }

  std::optional<std::string> CompareFacts(
      const Step& step, const std::vector<at::Tensor>& results,
      const Expectation& expected) const {
    if (results.size() != expected.results.size()) {
      return absl::StrCat("returned ", results.size(), " tensors, not ",
                          expected.results.size());
    }
    for (size_t i = 0; i < results.size(); ++i) {
      const Facts facts = FactsOf(results[i]);
      if (facts == expected.results[i]) continue;
      return absl::StrCat("returned ", Describe(facts), "\n  the CPU has ",
                          Describe(expected.results[i]));
    }
    const std::vector<at::Tensor> operands = machine_.Operands(step);
    for (size_t i = 0; i < operands.size(); ++i) {
      const Facts facts = FactsOf(operands[i]);
      if (facts == expected.operands[i]) continue;
      return absl::StrCat("operand ", i, " became ", Describe(facts),
                          "\n  the CPU has ", Describe(expected.operands[i]));
    }
    return std::nullopt;
  }

  std::optional<std::string> CompareEnd(
      const std::vector<FinalValue>& final_values) {
    std::map<int, const c10::StorageImpl*> storages;
    std::map<const c10::StorageImpl*, int> owners;
    for (const FinalValue& expected : final_values) {
      const at::Tensor& owner_tensor = machine_.slot(expected.slot);
      const at::Tensor tensor =
          expected.gradient ? owner_tensor.grad() : owner_tensor;
      const std::string where = absl::StrCat("at the end: v", expected.slot,
                                             expected.gradient ? ".grad" : "");
      const Facts facts = FactsOf(tensor);
      if (facts != expected.facts) {
        return absl::StrCat(where, " is ", Describe(facts), "\n  the CPU has ",
                            Describe(expected.facts));
      }
      if (!tensor.defined()) continue;
      const c10::StorageImpl* const storage =
          tensor.storage().unsafeGetStorageImpl();
      const auto shared =
          storages.try_emplace(expected.storage, storage).first->second;
      const auto owner =
          owners.try_emplace(storage, expected.storage).first->second;
      if (shared != storage || owner != expected.storage) {
        return absl::StrCat(where, " shares its storage with other tensors ",
                            "than on the CPU");
      }
      if (auto difference = CompareFinalValue(tensor, expected, where)) {
        return absl::StrCat(where, ": ", *difference);
      }
    }
    return std::nullopt;
  }

  std::optional<std::string> CompareFinalValue(const at::Tensor& tensor,
                                               const FinalValue& expected,
                                               const std::string& where) {
    Expectation read;
    read.outcome = Outcome::kDone;
    read.poison = expected.poison;
    try {
      const at::Tensor value =
          tensor.detach().cpu().clone(at::MemoryFormat::Contiguous);
      auto difference = CompareRead(value, expected.value, expected.poison);
      if (!difference.has_value() || !may_be_fast_ ||
          !expected.poison.empty()) {
        return difference;
      }
      MutexLock lock(&mu_);
      doubts_.push_back({.final_value = &expected,
                         .value = value,
                         .difference = absl::StrCat(where, ": ", *difference)});
      return std::nullopt;
    } catch (const Error& error) {
      return CompareRootError(error, read);
    } catch (const std::exception& error) {
      return CompareError(MessageOf(error), read);
    }
  }

  const Program& program_;
  const Comparison comparison_;
  const bool may_be_fast_;
  const std::vector<Expectation>& expectations_;
  Tolerance tolerance_;
  // Callables by their id.
  std::map<int, Registered> registered_;
  Machine machine_;
  RootIds ids_;
  Mutex mu_;
  CondVar changed_;
  std::vector<bool> done_ ABSL_GUARDED_BY(mu_);
  // True if nothing is left to do, because a difference was found or can no
  // longer be found.
  bool over_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<std::string> difference_ ABSL_GUARDED_BY(mu_);
  // The following members are complete once the lanes have ended.
  std::optional<size_t> stopped_at_;
  std::vector<Doubt> doubts_;
};

class ModeScope {
 public:
  explicit ModeScope(ExecutionMode mode) : before_(CurrentExecutionMode()) {
    SetExecutionMode(mode);
  }
  ModeScope(const ModeScope&) = delete;
  ModeScope& operator=(const ModeScope&) = delete;
  ~ModeScope() { SetExecutionMode(before_); }

 private:
  const ExecutionMode before_;
};

}  // namespace

std::optional<std::string> FindDifference(
    const Program& program, const std::vector<Expectation>& expectations,
    const std::vector<FinalValue>& final_values, const Comparison& comparison,
    Tally* tally) {
  const ModeScope mode(comparison.mode);
  RemoteRun run(program, expectations, comparison);
  return run.Judge(run.Run(final_values), tally);
}

}  // namespace djinn::random_programs
