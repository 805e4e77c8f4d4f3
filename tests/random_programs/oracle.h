// Determines what a program must do on a remote device by running it on the
// CPU.
//
// A call that raises on the CPU because of its operands' values raises nothing
// when it is captured: the worker finds the error. From then on the tensors
// that the call would have written or returned are poisoned. On the CPU these
// tensors hold placeholders, which the same call makes from harmless operands.
// Their metadata is right, their values mean nothing, and everything computed
// from them is poisoned as well.
#ifndef TESTS_RANDOM_PROGRAMS_ORACLE_H_
#define TESTS_RANDOM_PROGRAMS_ORACLE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/random_programs/lane_thread.h"
#include "tests/random_programs/machine.h"
#include "tests/random_programs/noise.h"
#include "tests/random_programs/program.h"

namespace djinn::random_programs {

// The properties of a tensor, apart from its elements, that must be equal on
// both devices.
struct Facts {
  bool defined = false;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t offset = 0;
  bool requires_grad = false;
  bool is_leaf = true;
  bool is_inference = false;

  bool operator==(const Facts&) const = default;
};
Facts FactsOf(const at::Tensor& tensor);
std::string Describe(const Facts& facts);

// Says why a value is missing. A root error is identified by the number of the
// step that failed.
struct Poison {
  std::set<int> roots;
  // False if the value may be either missing or equal to the CPU's: metadata
  // may suffice to compute the value, or only parts of a step depend on the
  // missing value.
  bool certain = true;

  bool empty() const { return roots.empty(); }
  void Add(const Poison& other);
};

struct Expectation {
  enum class Outcome {
    kSkipped,     // not executed on either side
    kDone,        // executed without an error
    kRaises,      // raises PyTorch's error at the call
    kRaisesRoot,  // raises the root error of a missing value that it needs
  };

  Outcome outcome = Outcome::kSkipped;
  std::string message;
  // The poison of kRaisesRoot, or of the value that a read returns.
  Poison poison;
  // The step creates a root error, or may create one.
  bool fails = false;
  bool may_fail = false;
  // Facts of the tensors that the step uses and returns, after the step.
  std::vector<Facts> operands;
  std::vector<Facts> results;
  // The value that a read returns.
  at::Tensor value;
  // The resources that order the steps of different lanes: storages, slots, the
  // generator.
  std::set<int> reads;
  std::set<int> writes;
  // Every other step is ordered before or after this one.
  bool barrier = false;
  // Slots whose values cannot be compared any more; emptied after the step.
  std::vector<int> forgotten;
  // The number of autograd nodes that the step numbers on any device, and the
  // number of nodes that it numbered only on the CPU, for placeholders or for a
  // step that was finally skipped.
  uint64_t nodes = 0;
  uint64_t more_nodes = 0;
};

// A tensor that is alive at the end, or its gradient.
struct FinalValue {
  int slot;
  bool gradient;
  Facts facts;
  at::Tensor value;
  Poison poison;
  // Equal for tensors that share a storage; -1 for an undefined gradient.
  int storage;
};

class Oracle {
 public:
  // Makes an oracle for a program. Without `failures`, it skips calls that
  // would fail on a worker. With `noise`, which outlives the oracle, it
  // disturbs steps in fast mode. `fast` says that the program begins in fast
  // mode.
  Oracle(const Program& program, bool failures, Noise* noise = nullptr,
         bool fast = false);

  Expectation Apply(const Step& step);
  std::vector<FinalValue> Finish();

  const Machine& machine() const { return machine_; }

 private:
  // Makes an oracle for the steps of a callable.
  Oracle(const Callable& callable, const Given& given, Noise* noise, bool fast);

  // Applies the step in the calling thread.
  Expectation ApplyHere(const Step& step);
  Expectation Call(const Step& step);
  // Calls a callable. Skips the call if one of its steps is not done.
  Expectation CallCallable(const Step& step);
  std::vector<at::Tensor> ExecuteDisturbed(const Step& step);
  // Returns whether the call resized an output that shares memory with another
  // operand.
  bool ResizedShared(const Step& step, const std::vector<Facts>& before) const;
  // Forgets the step's outputs, with what shares their memory or without.
  void ForgetOutputs(const Step& step, bool with_aliases,
                     Expectation* expected);
  // Returns the poison of what the step has written. Sets whether it fails.
  Poison PoisonWrittenBy(const Step& step, bool failed, Expectation* expected);
  void Forget(const std::function<bool(const at::Tensor&)>& forgotten,
              Expectation* expectation);
  // Makes the call on harmless operands. Returns nothing if the call raises
  // even then.
  std::optional<std::vector<at::Tensor>> ExecuteHarmlessly(const Step& step);
  void Propagate(const Step& step, const Poison& read,
                 const std::vector<at::Tensor>& results, bool fresh_only);
  Poison PoisonOf(const at::Tensor& tensor);
  Poison PoisonReadBy(const Step& step);
  int StorageId(const at::Tensor& tensor);
  void NoteUses(const Step& step, Expectation* expectation);

  Machine machine_;
  const bool failures_;
  Noise* const noise_;
  bool fast_;
  int position_ = -1;
  // True once a call has failed: its formula may fail again in a backward pass.
  bool failed_ = false;
  // True once a write was undone, which autograd still has noted.
  bool undone_ = false;
  // Keeps storages alive, so that no address is used twice.
  std::vector<c10::Storage> storages_;
  std::map<const c10::StorageImpl*, int> ids_;
  std::map<int, Poison> poison_;
  // Empty if the program has only one lane.
  std::vector<std::unique_ptr<LaneThread>> lanes_;
};

}  // namespace djinn::random_programs

#endif  // TESTS_RANDOM_PROGRAMS_ORACLE_H_
