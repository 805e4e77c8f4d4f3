#include "client_lib/session/recipe.h"

#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "client_lib/session/operator_table.h"

namespace djinn {
namespace {

// Whatever their overloads.
const absl::flat_hash_set<absl::string_view>& CheapNames() {
  static const auto* const names = new absl::flat_hash_set<absl::string_view>{
      "aten::_to_copy",
      "aten::add",
      "aten::add_",
      "aten::arange",
      "aten::bitwise_and",
      "aten::bitwise_not",
      "aten::bitwise_or",
      "aten::clone",
      "aten::copy_",
      "aten::empty",
      "aten::eq",
      "aten::eye",
      "aten::fill",
      "aten::fill_",
      "aten::full",
      "aten::full_like",
      "aten::ge",
      "aten::gt",
      "aten::le",
      "aten::logical_and",
      "aten::logical_not",
      "aten::logical_or",
      "aten::lt",
      "aten::masked_fill",
      "aten::masked_fill_",
      "aten::mul",
      "aten::mul_",
      "aten::ne",
      "aten::new_empty",
      "aten::new_full",
      "aten::new_ones",
      "aten::new_zeros",
      "aten::ones",
      "aten::ones_like",
      "aten::scalar_tensor",
      "aten::sub",
      "aten::sub_",
      "aten::tril",
      "aten::tril_",
      "aten::triu",
      "aten::triu_",
      "aten::where",
      "aten::zero_",
      "aten::zeros",
      "aten::zeros_like",
  };
  return *names;
}

}  // namespace

bool IsCheap(uint32_t operator_id) {
  // A look by name costs more than most calls: each thread keeps what it found.
  thread_local std::vector<char> known;
  if (operator_id >= known.size()) known.resize(operator_id + 1, '?');
  char& cheap = known[operator_id];
  if (cheap == '?') {
    cheap = CheapNames().contains(OperatorTable::Global().Get(operator_id).name)
                ? 'y'
                : 'n';
  }
  return cheap == 'y';
}

std::shared_ptr<const Recipe> RecipeOf(
    const Call& call, std::vector<std::shared_ptr<const Recipe>> before) {
  if (!IsCheap(call.operator_id()) || call.unknown_results() != 0) {
    return nullptr;
  }
  auto recipe = std::make_shared<Recipe>();
  recipe->calls = 1;
  int made = 0;
  for (uint32_t i = 0; i < call.touches().size(); ++i) {
    const Touch& touch = call.touches()[i];
    if ((touch.access & kDraws) != 0) return nullptr;
    if (ChangesVersion(touch.access)) {
      ++made;
      recipe->made = i;
      recipe->size_bytes = touch.storage->size_bytes();
    }
    if ((touch.access & kBirth) != 0) {
      before[i] = nullptr;
      continue;
    }
    if (before[i] == nullptr) return nullptr;
    recipe->calls += before[i]->calls;
  }
  if (made != 1 || recipe->calls > Recipe::kMaxCalls) return nullptr;
  recipe->before = std::move(before);
  recipe->call = call;
  for (Touch& touch : recipe->call.touches()) touch.storage = StoragePtr();
  return recipe;
}

}  // namespace djinn
