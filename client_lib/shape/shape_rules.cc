#include "client_lib/shape/shape_rules.h"

#include "client_lib/shape/rule_table.h"

namespace djinn {
namespace {

RuleTable* BuildTable() {
  auto* table = new RuleTable;
  AddPointwiseRules(table);
  AddReductionRules(table);
  AddIndexingRules(table);
  AddFactoryRules(table);
  AddNormalizationRules(table);
  AddConvolutionRules(table);
  AddPoolingRules(table);
  AddAttentionRules(table);
  AddLinalgRules(table);
  AddFftRules(table);
  AddRecurrentRules(table);
  AddForeachRules(table);
  AddLossRules(table);
  return table;
}

}  // namespace

const ShapeRule* FindShapeRule(const std::string& name) {
  static const RuleTable* const table = BuildTable();
  return table->Find(name);
}

c10::DimVector CallArguments::Integers(size_t index) const {
  c10::DimVector result;
  if (!Has(index)) return result;
  if (values_[index].isInt()) {
    result.push_back(values_[index].toInt());
    return result;
  }
  for (const c10::IValue& element : values_[index].toListRef()) {
    result.push_back(element.toSymInt().expect_int());
  }
  return result;
}

std::vector<bool> CallArguments::Booleans(size_t index) const {
  std::vector<bool> result;
  for (const c10::IValue& element : values_[index].toListRef()) {
    result.push_back(element.toBool());
  }
  return result;
}

std::vector<at::Tensor> CallArguments::Tensors(size_t index) const {
  std::vector<at::Tensor> result;
  if (!Has(index)) return result;
  for (const c10::IValue& element : values_[index].toListRef()) {
    result.push_back(element.isNone() ? at::Tensor() : element.toTensor());
  }
  return result;
}

}  // namespace djinn
