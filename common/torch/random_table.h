// Decides which operator calls draw random numbers, and from which generator.
#ifndef COMMON_TORCH_RANDOM_TABLE_H_
#define COMMON_TORCH_RANDOM_TABLE_H_

#include "ATen/core/dispatch/Dispatcher.h"
#include "ATen/core/ivalue.h"
#include "c10/util/ArrayRef.h"

namespace djinn {

enum class DrawSource {
  kNone,
  // The call draws from the generator in an argument. None there means the
  // default generator; a graph always names a generator.
  kGeneratorArgument,
  // The call draws from the device's default generator, which the schema does
  // not mention, as dropout does. The node has an implicit_generator_slot.
  kDefaultGenerator,
};

// Returns where the call draws from. `arguments` are the call's, one per schema
// argument. Among their values only a boolean `train` matters: in evaluation
// mode, dropout and recurrent layers draw nothing. Floating-point values do not
// matter, because they vary between runs of one graph.
DrawSource DrawSourceOf(const c10::OperatorHandle& op,
                        c10::ArrayRef<c10::IValue> arguments);

}  // namespace djinn

#endif  // COMMON_TORCH_RANDOM_TABLE_H_
