// The rule table under construction, and the families of rules that fill it.
#ifndef CLIENT_LIB_SHAPE_RULE_TABLE_H_
#define CLIENT_LIB_SHAPE_RULE_TABLE_H_

#include <initializer_list>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "c10/util/Exception.h"
#include "client_lib/shape/call_arguments.h"
#include "client_lib/shape/shape_rules.h"

namespace djinn {

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
