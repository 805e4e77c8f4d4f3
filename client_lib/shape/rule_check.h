// Compares shape rules with the results of the CPU's kernels.
#ifndef CLIENT_LIB_SHAPE_RULE_CHECK_H_
#define CLIENT_LIB_SHAPE_RULE_CHECK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/ivalue.h"

namespace djinn {

// Runs the operator on the CPU, and its rule on tensors with the same metadata
// and no data. Fails the test unless dtypes, sizes and strides of all results
// are equal. Missing arguments at the end have the schema's defaults.
void CheckRule(const std::string& name, std::vector<c10::IValue> arguments);

// Checks a rule as CheckRule() does. The rule must leave a result's layout
// unknown if the layout on the CPU depends on the number of threads.
void CheckRuleForAnyThreads(const std::string& name,
                            std::vector<c10::IValue> arguments);

// Fails the test unless both the operator and its rule throw.
void CheckRejected(const std::string& name, std::vector<c10::IValue> arguments);

// Fails the test unless the rule throws. Does not run the operator, because its
// CPU kernel would read or write out of bounds.
void CheckRefused(const std::string& name, std::vector<c10::IValue> arguments);

// Returns a contiguous CPU tensor of small positive values.
at::Tensor Make(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat);

// Returns zeros of an index dtype.
at::Tensor MakeIndex(at::IntArrayRef sizes, at::ScalarType dtype = at::kLong);

// Returns a 0-dimensional tensor that promotes like a Python number.
at::Tensor MakeNumber(double value);

// Returns tensors of these sizes in every relevant layout: contiguous,
// transposed, rotated, sliced from larger ones, every other element, expanded,
// and channels-last if the rank allows it.
std::vector<at::Tensor> Layouts(at::IntArrayRef sizes,
                                at::ScalarType dtype = at::kFloat);

// Returns tensors of several shapes and layouts, including scalars and empty
// tensors.
std::vector<at::Tensor> Zoo(at::ScalarType dtype = at::kFloat);

// Returns pairs that broadcast.
std::vector<std::pair<at::Tensor, at::Tensor>> Pairs(
    at::ScalarType left = at::kFloat, at::ScalarType right = at::kFloat);

c10::IValue Ints(std::vector<int64_t> values);
c10::IValue Mask(std::vector<bool> values);
c10::IValue None();

}  // namespace djinn

#endif  // CLIENT_LIB_SHAPE_RULE_CHECK_H_
