// What a program must do on a remote device, known from running it on the CPU.
//
// A call that raises on the CPU because of its operands' values raises nothing
// when it is captured: the worker finds out. From then on the tensors it would
// have written or returned are poisoned. On the CPU those hold placeholders,
// made by the same call on harmless operands: their metadata is right, their
// values mean nothing, and everything computed from them is poisoned, too.
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

// What must be equal of two tensors beside their elements.
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

// Why a value is missing. A root error goes by the number of the step that
// failed.
struct Poison {
  std::set<int> roots;
  // False where the value may be missing or be the CPU's: metadata may suffice
  // to compute it, or only parts of a step depend on what is missing.
  bool certain = true;

  bool empty() const { return roots.empty(); }
  void Add(const Poison& other);
};

struct Expectation {
  enum class Outcome {
    kSkipped,     // not executed on either side
    kDone,        //
    kRaises,      // PyTorch's error, at the call
    kRaisesRoot,  // needs a value that is missing: the root error, at the call
  };

  Outcome outcome = Outcome::kSkipped;
  std::string message;
  // Of kRaisesRoot, and of what a read shows.
  Poison poison;
  // A root error is born, or may be.
  bool fails = false;
  bool may_fail = false;
  // Of the tensors the step uses and of those it returns, after it.
  std::vector<Facts> operands;
  std::vector<Facts> results;
  // A read's value.
  at::Tensor value;
  // What orders steps of different lanes: storages, slots, the generator.
  std::set<int> reads;
  std::set<int> writes;
  // Ordered among all steps.
  bool barrier = false;
  // Slots that hold nothing comparable any more; emptied after the step.
  std::vector<int> forgotten;
  // How many nodes autograd numbers for it, on any device, and how many more
  // were numbered here: for placeholders, or for what was skipped after all.
  uint64_t nodes = 0;
  uint64_t more_nodes = 0;
};

// A tensor that is alive at the end, or the gradient of one.
struct FinalValue {
  int slot;
  bool gradient;
  Facts facts;
  at::Tensor value;
  Poison poison;
  // Equal for tensors that share one; -1 for a gradient that is none.
  int storage;
};

class Oracle {
 public:
  // Without failures, a call that would fail on a worker is skipped. With
  // noise, which must outlive it, what is executed in fast mode is
  // disturbed; `fast`: the program begins in it.
  Oracle(const Program& program, bool failures, Noise* noise = nullptr,
         bool fast = false);

  Expectation Apply(const Step& step);
  std::vector<FinalValue> Finish();

  const Machine& machine() const { return machine_; }

 private:
  // Of the steps of a callable.
  Oracle(const Callable& callable, const Given& given, Noise* noise, bool fast);

  // In the thread that calls it.
  Expectation ApplyHere(const Step& step);
  Expectation Call(const Step& step);
  // Skipped where a step of the callable is anything but done.
  Expectation CallCallable(const Step& step);
  std::vector<at::Tensor> ExecuteDisturbed(const Step& step);
  // Whether the call gave an output that shares memory with another operand a
  // new size.
  bool ResizedShared(const Step& step, const std::vector<Facts>& before) const;
  void Forget(const std::function<bool(const at::Tensor&)>& forgotten,
              Expectation* expectation);
  // The call on harmless operands; nothing when it raises all the same.
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
  // A call failed: its formula may fail again in a backward pass.
  bool failed_ = false;
  // A write was undone, but not what autograd noted about it.
  bool undone_ = false;
  // Kept, so that no address comes again.
  std::vector<c10::Storage> storages_;
  std::map<const c10::StorageImpl*, int> ids_;
  std::map<int, Poison> poison_;
  // Empty where there is only one lane.
  std::vector<std::unique_ptr<LaneThread>> lanes_;
};

// Whether the call looks at elements to know how large its results are.
bool NeedsValues(const Step& step, const Machine& machine);
bool MayDraw(const Step& step);

}  // namespace djinn::random_programs

#endif  // TESTS_RANDOM_PROGRAMS_ORACLE_H_
