#include "common/torch/random_table.h"

#include <cstddef>

namespace djinn {
namespace {

bool IsGenerator(const c10::Type& type) {
  if (const auto* optional = type.castRaw<c10::OptionalType>()) {
    return IsGenerator(*optional->getElementType());
  }
  return type.kind() == c10::TypeKind::GeneratorType;
}

}  // namespace

DrawSource DrawSourceOf(const c10::OperatorHandle& op,
                        c10::ArrayRef<c10::IValue> arguments) {
  const c10::FunctionSchema& schema = op.schema();
  bool evaluating = false;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (IsGenerator(*argument.real_type())) {
      return DrawSource::kGeneratorArgument;
    }
    if (argument.name() == "train" && i < arguments.size() &&
        arguments[i].isBool()) {
      evaluating = !arguments[i].toBool();
    }
  }
  if (evaluating || !op.hasTag(at::Tag::nondeterministic_seeded)) {
    return DrawSource::kNone;
  }
  return DrawSource::kDefaultGenerator;
}

}  // namespace djinn
