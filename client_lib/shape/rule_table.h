// The rule table under construction, and the families of rules that fill it.
#ifndef CLIENT_LIB_SHAPE_RULE_TABLE_H_
#define CLIENT_LIB_SHAPE_RULE_TABLE_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/ivalue.h"
#include "c10/core/Scalar.h"
#include "c10/core/ScalarType.h"
#include "c10/util/ArrayRef.h"
#include "c10/util/DimVector.h"
#include "c10/util/Exception.h"
#include "client_lib/shape/shape_rules.h"

namespace djinn {

// Reads the arguments of one boxed call by position, in the types that shape
// rules need. Refers to the arguments, which must outlive this object. Reading
// a value in a type that it does not have throws c10::Error.
class CallArguments {
 public:
  explicit CallArguments(c10::ArrayRef<c10::IValue> values) : values_(values) {}

  // Returns whether the argument is neither None nor an undefined tensor.
  bool Has(size_t index) const {
    const c10::IValue& value = values_[index];
    return !value.isNone() &&
           !(value.isTensor() && !value.toTensor().defined());
  }

  const at::Tensor& Tensor(size_t index) const {
    return values_[index].toTensor();
  }
  int64_t Integer(size_t index) const {
    return values_[index].toSymInt().expect_int();
  }
  bool Boolean(size_t index) const { return values_[index].toBool(); }
  double Real(size_t index) const { return values_[index].toDouble(); }
  c10::Scalar Scalar(size_t index) const { return values_[index].toScalar(); }
  std::string Text(size_t index) const { return values_[index].toStringRef(); }

  std::optional<c10::ScalarType> DtypeIfAny(size_t index) const {
    if (!Has(index)) return std::nullopt;
    return values_[index].toScalarType();
  }
  c10::ScalarType DtypeOr(size_t index, c10::ScalarType absent) const {
    return DtypeIfAny(index).value_or(absent);
  }

  c10::ArrayRef<c10::IValue> List(size_t index) const {
    return values_[index].toListRef();
  }
  // Returns an empty list if the argument is None.
  c10::DimVector Integers(size_t index) const;
  std::vector<bool> Booleans(size_t index) const;
  // Returns the elements of a Tensor[] or Tensor?[]. An element that is None
  // becomes an undefined tensor.
  std::vector<at::Tensor> Tensors(size_t index) const;

 private:
  const c10::ArrayRef<c10::IValue> values_;
};

using Results = std::vector<ResultMeta>;

class RuleTable {
 public:
  // Adds one rule, a callable from CallArguments to Results, for several
  // operators that have no rule yet.
  template <typename Rule>
  void Add(std::initializer_list<std::string> names, Rule rule) {
    for (const std::string& name : names) {
      const bool added =
          rules_
              .emplace(name,
                       [rule](c10::ArrayRef<c10::IValue> arguments) {
                         return rule(CallArguments(arguments));
                       })
              .second;
      TORCH_INTERNAL_ASSERT(added, "two shape rules for ", name);
    }
  }

  const ShapeRule* Find(const std::string& name) const {
    const auto it = rules_.find(name);
    return it == rules_.end() ? nullptr : &it->second;
  }

 private:
  std::unordered_map<std::string, ShapeRule> rules_;
};

void AddPointwiseRules(RuleTable* table);
void AddReductionRules(RuleTable* table);
void AddIndexingRules(RuleTable* table);
void AddFactoryRules(RuleTable* table);
void AddNormalizationRules(RuleTable* table);
void AddConvolutionRules(RuleTable* table);
void AddPoolingRules(RuleTable* table);
void AddAttentionRules(RuleTable* table);
void AddLinalgRules(RuleTable* table);
void AddFftRules(RuleTable* table);
void AddRecurrentRules(RuleTable* table);
void AddForeachRules(RuleTable* table);
void AddLossRules(RuleTable* table);

}  // namespace djinn

#endif  // CLIENT_LIB_SHAPE_RULE_TABLE_H_
