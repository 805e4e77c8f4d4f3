// Says what the operators of steps do with their arguments, as far as names and
// schemas tell.
#ifndef TESTS_RANDOM_PROGRAMS_OPERATOR_FACTS_H_
#define TESTS_RANDOM_PROGRAMS_OPERATOR_FACTS_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>

#include <cstddef>
#include <vector>

#include "absl/strings/string_view.h"
#include "tests/random_programs/machine.h"
#include "tests/random_programs/program.h"

namespace djinn::random_programs {

// Returns whether the error depends on elements, or on how a kernel was
// compiled. The client knows neither when it captures a call.
bool FoundByTheWorker(absl::string_view message);

// Returns whether harmless operands would hide the error.
bool IsAboutOutputs(absl::string_view message);

// Returns whether the call changes no element of its first argument.
bool ChangesOnlyMetadata(const Step& step);

bool IsWritten(const c10::Argument& argument);

// Returns whether the call overwrites the argument without reading it: an
// output, or the first argument of some operators.
bool IsOverwritten(const Step& step, size_t argument);

// Returns whether the argument's elements do not matter.
bool ReadsOnlyMetadata(const Step& step, size_t argument);

// Returns the positions of the step's outputs among its arguments.
std::vector<size_t> Outputs(const Step& step);
const at::Tensor& Operand(const Step& step, size_t argument,
                          const Machine& machine);

// Returns whether the view covers every byte of its storage.
bool Covers(const at::Tensor& tensor);

// Returns whether PyTorch promises no result of the step, so that nothing can
// be compared. The cases are:
//
// The CPU's median of an expanded tensor reads unwritten memory.
//
// Outside inference mode, an inference tensor has no gradient, even if one is
// asked for. The exception is a composite that combines it with a tensor of its
// own, as dropout() does on the CPU.
//
// The value of an output with several elements in one place depends on the
// order in which they are written. Workers refuse such outputs.
bool NothingIsPromised(const Step& step, const Machine& machine);

// Returns an operand on which a call cannot fail because of its values.
at::Tensor Harmless(const Step& step, const c10::Argument& argument,
                    const at::Tensor& tensor);

// Returns whether the call writes an inference tensor outside inference mode.
bool WritesInferenceTensor(const Step& step, const Machine& machine);

// Returns whether the call may draw from the generator.
bool MayDraw(const Step& step);

// Returns whether the call reads elements to determine the sizes of its
// results.
bool NeedsValues(const Step& step, const Machine& machine);

}  // namespace djinn::random_programs

#endif  // TESTS_RANDOM_PROGRAMS_OPERATOR_FACTS_H_
