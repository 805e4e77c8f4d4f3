// Compares shape rules with what the CPU's kernels really return.
#ifndef CLIENT_LIB_SHAPE_RULE_CHECK_H_
#define CLIENT_LIB_SHAPE_RULE_CHECK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/ivalue.h"

namespace djinn {

// Runs the operator on the CPU and its rule on tensors that have the same
// metadata and no data; a test failure unless dtypes, sizes and strides of all
// results agree. Missing arguments at the end are taken from the schema.
void CheckRule(const std::string& name, std::vector<c10::IValue> arguments);

// The same for a rule that leaves a result's layout open where the CPU's
// depends on the number of threads.
void CheckRuleForAnyThreads(const std::string& name,
                            std::vector<c10::IValue> arguments);

// A test failure unless both the operator and its rule throw.
void CheckRejected(const std::string& name, std::vector<c10::IValue> arguments);

// A test failure unless the rule throws, where the CPU must not be asked: its
// kernel would read or write beside the operands.
void CheckRefused(const std::string& name, std::vector<c10::IValue> arguments);

// A contiguous CPU tensor of small positive values.
at::Tensor Make(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat);

// Zeroes, as indices.
at::Tensor MakeIndex(at::IntArrayRef sizes, at::ScalarType dtype = at::kLong);

// A 0-dimensional tensor that promotes like a Python number.
at::Tensor MakeNumber(double value);

// Tensors of these sizes in every layout that matters: contiguous, transposed,
// rotated, cut out of larger ones, every other element, expanded, channels-last
// where the rank allows it.
std::vector<at::Tensor> Layouts(at::IntArrayRef sizes,
                                at::ScalarType dtype = at::kFloat);

// Of several shapes too, with scalars and empty ones among them.
std::vector<at::Tensor> Zoo(at::ScalarType dtype = at::kFloat);

// Pairs that broadcast.
std::vector<std::pair<at::Tensor, at::Tensor>> Pairs(
    at::ScalarType left = at::kFloat, at::ScalarType right = at::kFloat);

c10::IValue Ints(std::vector<int64_t> values);
c10::IValue Mask(std::vector<bool> values);
c10::IValue None();

}  // namespace djinn

#endif  // CLIENT_LIB_SHAPE_RULE_CHECK_H_
