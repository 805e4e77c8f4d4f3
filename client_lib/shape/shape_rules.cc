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

}  // namespace djinn
