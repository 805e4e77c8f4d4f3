// Makes operands for any operator from its schema, good and hostile ones.
//
// The same seed makes the same operands. Not thread-safe.
#ifndef TESTS_SECURITY_OPERAND_MAKER_H_
#define TESTS_SECURITY_OPERAND_MAKER_H_

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/function_schema.h"
#include "ATen/core/stack.h"

namespace djinn {

class OperandMaker {
 public:
  explicit OperandMaker(uint64_t seed) : random_(seed) {}

  // Returns whether a graph can hold a call of the operator.
  static bool Supports(const c10::FunctionSchema& schema);

  // Returns operands for a call. In half of the calls all are plausible; in the
  // others, each may be hostile: sizes, strides and types that do not fit,
  // numbers and indices far out of range, one element that is repeated 2^33
  // times.
  torch::jit::Stack Make(const c10::FunctionSchema& schema);

  // Returns a number below `count`, which is more than 0.
  size_t Below(size_t count) { return random_() % count; }
  bool OneIn(size_t count) { return Below(count) == 0; }

 private:
  template <typename T>
  T Pick(std::initializer_list<T> values) {
    return values.begin()[Below(values.size())];
  }
  bool Hostile() { return hostile_ && OneIn(3); }

  c10::IValue MakeValue(const c10::Type& type, const std::string& name);
  at::Tensor MakeTensor(const std::string& name);
  std::vector<int64_t> MakeSizes();
  int64_t MakeInteger();

  std::mt19937_64 random_;
  // Whether the call is hostile, and the sizes and type of its tensors.
  bool hostile_ = false;
  std::vector<int64_t> sizes_;
  at::ScalarType type_ = at::kFloat;
};

}  // namespace djinn

#endif  // TESTS_SECURITY_OPERAND_MAKER_H_
