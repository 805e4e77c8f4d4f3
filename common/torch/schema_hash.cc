#include "common/torch/schema_hash.h"

#include <xxhash.h>

#include <algorithm>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/strings/str_cat.h"

namespace djinn {
namespace {

// Puts the length before every text, so that no two schemas have the same
// encoding.
void AppendText(const std::string& text, std::string* out) {
  absl::StrAppend(out, text.size(), ":", text);
}

// Sorts the set, because its iteration order differs between processes.
void AppendAliasSet(const std::unordered_set<c10::Symbol>& symbols,
                    std::string* out) {
  std::vector<std::string> names;
  for (const c10::Symbol symbol : symbols)
    names.push_back(symbol.toQualString());
  std::sort(names.begin(), names.end());
  absl::StrAppend(out, names.size(), "{");
  for (const std::string& name : names) AppendText(name, out);
}

void AppendAlias(const c10::AliasInfo& alias, std::string* out) {
  out->push_back(alias.isWrite() ? '!' : '.');
  AppendAliasSet(alias.beforeSets(), out);
  AppendAliasSet(alias.afterSets(), out);
  absl::StrAppend(out, alias.containedTypes().size(), "[");
  for (const c10::AliasInfo& contained : alias.containedTypes()) {
    AppendAlias(contained, out);
  }
}

void AppendArguments(const std::vector<c10::Argument>& arguments,
                     std::string* out) {
  absl::StrAppend(out, arguments.size(), "(");
  for (const c10::Argument& argument : arguments) {
    AppendText(argument.name(), out);
    AppendText(argument.real_type()->repr_str(), out);
    absl::StrAppend(out, argument.N().value_or(-1),
                    argument.kwarg_only() ? "k" : "p");
    if (argument.alias_info() == nullptr) {
      out->push_back('-');
    } else {
      AppendAlias(*argument.alias_info(), out);
    }
  }
}

}  // namespace

uint64_t SchemaHash(const c10::FunctionSchema& schema) {
  std::string text;
  AppendText(schema.name(), &text);
  AppendText(schema.overload_name(), &text);
  AppendArguments(schema.arguments(), &text);
  AppendArguments(schema.returns(), &text);
  absl::StrAppend(&text, schema.is_vararg() ? "v" : "-",
                  schema.is_varret() ? "v" : "-");
  return XXH3_64bits(text.data(), text.size());
}

}  // namespace djinn
