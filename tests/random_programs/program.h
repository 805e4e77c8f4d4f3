// A random program: a list of steps over numbered slots that hold tensors.
//
// It is data, so that it can be executed on two devices, cut down step by
// step, and printed as something that reads like PyTorch.
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

// The device the program runs on.
struct ThisDevice {};

// Within a callable: the number that a call of it is given.
struct Attribute {};

// Constants, a CPU tensor among them, are IValues.
using Argument =
    std::variant<c10::IValue, Slot, SlotList, ThisDevice, Attribute>;

// Normal: as what is around it. A step of a callable is in the mode that the
// call is in, one of a program has gradients.
enum class Mode { kNormal, kNoGrad, kInference };

struct Callable;

struct Step {
  enum class Kind {
    kCall,          // an operator, by name
    kUpload,        // a CPU tensor, arguments[0], moved to the device
    kDrop,          // the slot is emptied
    kRead,          // the value is looked at
    kSeed,          // manual_seed(arguments[0])
    kRequiresGrad,  // requires_grad_(arguments[1])
    kBackward,      // backward(ones, retain_graph = arguments[1])
    kLearn,         // backward(ones), if arguments[0] requires a gradient
    kGrad,          // results[0] = arguments[0].grad
    kClearGrad,     // the gradient is zeroed, or taken away: arguments[1]
    kUpdate,        // arguments[0] -= arguments[1] * its gradient, if any
    kSetData,       // arguments[0].set_data(arguments[1])
    kSetFast,       // the execution mode: fast if arguments[0], else strict
    kCallable,      // `callable` of the tensors in arguments[0], while it
                    // refers to those in arguments[1], and its attribute is
                    // arguments[2]
  };

  Kind kind = Kind::kCall;
  // Of a call.
  std::optional<c10::OperatorHandle> op;
  // Of a call: one for each argument of the schema.
  std::vector<Argument> arguments;
  std::vector<int> results;
  std::shared_ptr<const Callable> callable;
  Mode mode = Mode::kNormal;
  int lane = 0;

  std::string name() const;
};

// What is executed as a whole: calls over slots of its own, of which the
// first take its arguments, and the next ones the parameters it refers to. A
// remote device registers it.
struct Callable {
  // Tells those of a program apart.
  int id = 0;
  int arguments = 0;
  int parameters = 0;
  // All calls refer to the same tensors.
  bool same_parameters = false;
  int slots = 0;
  std::vector<Step> steps;
  // The slots it returns, each cut from its graph if `detached`.
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

// Whether it is, or may be, a backward pass.
bool IsBackward(const Step& step);

// "aten::add.Tensor" as the dispatcher knows it. Dies when there is none.
c10::OperatorHandle FindOperator(const std::string& name);

// Readable pseudo-PyTorch, a line per step.
std::string Print(const Step& step);
std::string Print(const Callable& callable);
std::string Print(const Program& program);

}  // namespace djinn::random_programs

#endif  // TESTS_RANDOM_PROGRAMS_PROGRAM_H_
