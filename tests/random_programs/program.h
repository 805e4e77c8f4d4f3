// Represents a random program: a list of steps over numbered slots that hold
// tensors.
//
// A program is data, so that it can be executed on two devices, reduced step by
// step, and printed in a form like PyTorch code.
#ifndef TESTS_RANDOM_PROGRAMS_PROGRAM_H_
#define TESTS_RANDOM_PROGRAMS_PROGRAM_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace djinn::random_programs {

// A slot's number; kNoTensor stands for "no tensor" in lists.
struct Slot {
  int index;
};
inline constexpr int kNoTensor = -1;

// An argument of type Tensor[] or Tensor?[].
struct SlotList {
  std::vector<int> indices;
};

// Stands for the device on which the program runs.
struct ThisDevice {};

// Stands for the number that a call passes to its callable.
struct Attribute {};

// Constants, including CPU tensors, are IValues.
using Argument =
    std::variant<c10::IValue, Slot, SlotList, ThisDevice, Attribute>;

// The mode of a step. kNormal keeps the mode around the step: the mode of the
// call for a step of a callable, and a mode that records gradients for a step
// of a program.
enum class Mode { kNormal, kNoGrad, kInference };

struct Callable;

struct Step {
  enum class Kind {
    kCall,          // an operator, by name
    kUpload,        // a CPU tensor, arguments[0], moved to the device
    kDrop,          // empties the slot
    kRead,          // reads the value
    kSeed,          // manual_seed(arguments[0])
    kRequiresGrad,  // requires_grad_(arguments[1])
    kBackward,      // backward(ones, retain_graph = arguments[1])
    kLearn,         // backward(ones), if arguments[0] requires a gradient
    kGrad,          // results[0] = arguments[0].grad
    kClearGrad,     // zeroes the gradient, or removes it if arguments[1]
    kUpdate,        // arguments[0] -= arguments[1] * its gradient, if any
    kSetData,       // arguments[0].set_data(arguments[1])
    kSetFast,       // the execution mode: fast if arguments[0], else strict
    kCallable,      // `callable` of the tensors in arguments[0], while it
                    // refers to those in arguments[1], and its attribute is
                    // arguments[2]
  };

  Kind kind = Kind::kCall;
  // The operator of a kCall.
  std::optional<c10::OperatorHandle> op;
  // The arguments; in a kCall, one for each argument of the schema.
  std::vector<Argument> arguments;
  std::vector<int> results;
  std::shared_ptr<const Callable> callable;
  Mode mode = Mode::kNormal;
  int lane = 0;

  std::string name() const;
};

// A function that is executed as a whole. It consists of calls over slots of
// its own. The first slots take its arguments, and the next ones the parameters
// to which it refers. A remote device registers the function.
struct Callable {
  // Distinguishes the callables of a program.
  int id = 0;
  int arguments = 0;
  int parameters = 0;
  // All calls refer to the same parameters.
  bool same_parameters = false;
  int slots = 0;
  std::vector<Step> steps;
  // The slots that the callable returns. If `detached`, each result is detached
  // from its autograd graph.
  std::vector<int> outputs;
  bool detached = false;

  bool uses_attribute() const;
};

struct Program {
  uint64_t seed = 0;
  int lanes = 1;
  int slots = 0;
  std::vector<Step> steps;
};

// Returns whether the step is, or may be, a backward pass.
bool IsBackward(const Step& step);

// Returns the operator that the dispatcher knows by a name such as
// "aten::add.Tensor". Ends the process if there is none.
c10::OperatorHandle FindOperator(const std::string& name);

// Return readable pseudo-PyTorch, a line per step.
std::string Print(const Step& step);
std::string Print(const Callable& callable);
std::string Print(const Program& program);

}  // namespace djinn::random_programs

#endif  // TESTS_RANDOM_PROGRAMS_PROGRAM_H_
