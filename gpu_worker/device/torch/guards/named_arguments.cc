#include "gpu_worker/device/torch/guards/named_arguments.h"

#include <utility>
#include <variant>

namespace djinn::worker {
namespace {

std::optional<srg::TensorView> ViewOf(const TensorSource& source) {
  std::optional<srg::TensorView> view;
  if (const auto* operand = std::get_if<Operand>(&source)) {
    view.emplace(operand->view);
  } else if (const auto* scalar = std::get_if<srg::ScalarTensor>(&source)) {
    view.emplace().data_type = scalar->data_type;
  }
  return view;
}

}  // namespace

std::optional<srg::TensorView> NamedArguments::View(
    absl::string_view name) const {
  const Place* const place = FindPlace(name);
  const auto* source =
      place == nullptr ? nullptr : std::get_if<TensorSource>(&place->source);
  return source == nullptr ? std::nullopt : ViewOf(*source);
}

std::vector<srg::TensorView> NamedArguments::Views(
    absl::string_view name) const {
  std::vector<srg::TensorView> views;
  const Place* const place = FindPlace(name);
  const auto* list = place == nullptr
                         ? nullptr
                         : std::get_if<TensorListSource>(&place->source);
  if (list == nullptr) return views;
  for (const TensorSource& entry : list->entries) {
    std::optional<srg::TensorView> view = ViewOf(entry);
    if (view.has_value()) views.push_back(*std::move(view));
  }
  return views;
}

std::optional<bool> NamedArguments::Boolean(absl::string_view name) const {
  const c10::IValue* const value = FindValue(name);
  if (value == nullptr || !value->isBool()) return std::nullopt;
  return value->toBool();
}

std::optional<int64_t> NamedArguments::Integer(absl::string_view name) const {
  const c10::IValue* const value = FindValue(name);
  if (value == nullptr || !value->isInt()) return std::nullopt;
  return value->toInt();
}

std::optional<std::vector<int64_t>> NamedArguments::Integers(
    absl::string_view name) const {
  const c10::IValue* const value = FindValue(name);
  if (value == nullptr || !value->isIntList()) return std::nullopt;
  return value->toIntVector();
}

std::optional<std::vector<bool>> NamedArguments::Booleans(
    absl::string_view name) const {
  const c10::IValue* const value = FindValue(name);
  if (value == nullptr || !value->isBoolList()) return std::nullopt;
  const c10::List<bool> list = value->toBoolList();
  return std::vector<bool>(list.begin(), list.end());
}

std::optional<std::string> NamedArguments::Text(absl::string_view name) const {
  const c10::IValue* const value = FindValue(name);
  if (value == nullptr || !value->isString()) return std::nullopt;
  return value->toStringRef();
}

const Place* NamedArguments::FindPlace(absl::string_view name) const {
  for (const Place& place : call_.places) {
    if (schema_.arguments()[place.argument].name() == name) return &place;
  }
  return nullptr;
}

const c10::IValue* NamedArguments::FindValue(absl::string_view name) const {
  for (size_t i = 0; i < call_.values.size(); ++i) {
    if (schema_.arguments()[i].name() == name) return &call_.values[i];
  }
  return nullptr;
}

}  // namespace djinn::worker
