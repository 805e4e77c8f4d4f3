#include "scheduler/semantics/analysis/context.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"

namespace djinn::semantics {
namespace {

// Smaller values often have equal sizes by chance.
constexpr uint64_t kMinBytes = 256;

}  // namespace

std::optional<Context::Key> Context::KeyOf(const srg::TensorView* view) {
  if (view == nullptr || !IsFloating(view->data_type) ||
      view->sizes.size() < 2) {
    return std::nullopt;
  }
  const absl::StatusOr<uint64_t> extent = srg::ExtentBytes(*view);
  if (!extent.ok() || *extent < kMinBytes) return std::nullopt;
  return Key(view->data_type, *extent);
}

void Context::Table::Put(Key key, Value value) {
  const auto [it, added] = values_.try_emplace(key);
  if (added) {
    it->second.age = ages_.insert(ages_.end(), key);
  } else {
    ages_.splice(ages_.end(), ages_, it->second.age);
  }
  it->second.value = std::move(value);
  if (values_.size() <= kMaxValues) return;
  values_.erase(ages_.front());
  ages_.pop_front();
}

const Context::Table::Value* Context::Table::Find(Key key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second.value;
}

Context::Table::Value* Context::Table::Find(Key key) {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second.value;
}

void Context::RememberEmbedding(Key key, const srg::TensorView& view) {
  Table::Value* const known = made_.Find(key);
  if (known == nullptr) {
    made_.Put(key, {{}, view.sizes, true});
  } else if (known->left_sizes == view.sizes) {
    known->embedding = true;
  }
}

std::optional<Origin> Context::LeftBy(const srg::TensorView& view) const {
  const Table::Value* const found = FindLeft(view);
  if (found == nullptr) return std::nullopt;
  return found->origin;
}

bool Context::IsLeftByEmbedding(const srg::TensorView& view) const {
  const Table::Value* const found = FindLeft(view);
  return found != nullptr && found->embedding;
}

const Context::Table::Value* Context::FindLeft(
    const srg::TensorView& view) const {
  const std::optional<Key> key = KeyOf(&view);
  if (!key.has_value()) return nullptr;
  const Table::Value* const found = made_.Find(*key);
  if (found == nullptr || found->left_sizes.empty()) return nullptr;
  const auto& sizes = view.sizes;
  const auto& made = found->left_sizes;
  if (sizes.size() > 2 && sizes[sizes.size() - 2] == 1) return nullptr;
  const bool flattened = made.size() == 4 && sizes.size() == 3;
  return sizes == made || flattened ? found : nullptr;
}

void Context::ForgetProjections(Key key) {
  projections_.remove_if([&](const Left& other) { return other.key == key; });
}

void Context::RememberProjection(const Projection& left) {
  RememberMoved(left.key, left.sizes.back(), left);
}

void Context::RememberMoved(Key key, int64_t width, const Projection& left) {
  projections_.push_back({key, width, left});
  if (projections_.size() > kMaxProjections) projections_.pop_front();
}

std::vector<Projection> Context::ProjectionsIn(Key key) const {
  std::vector<Projection> found;
  for (const Left& left : projections_) {
    if (left.key == key) found.push_back(left.made);
  }
  return found;
}

void Context::RememberJoined(Key key, int64_t width) {
  for (const Left& left : projections_) {
    const bool same = left.made.part
                          ? key.first == left.key.first &&
                                key.second <= left.key.second && width >= 0
                          : key == left.key;
    if (!same || (width >= 0 && width != left.width) || IsJoined(left.made)) {
      continue;
    }
    joined_.push_back(left.made);
    if (joined_.size() > kMaxProjections) joined_.pop_front();
  }
}

bool Context::IsUnitLeft(Key key, int64_t width) const {
  return absl::c_any_of(projections_, [&](const Left& left) {
    return left.made.unit && left.key == key && left.width == width;
  });
}

void Context::RememberTokens(const srg::Dimensions& sizes, Origin origin) {
  tokens_.remove_if([&](const auto& other) { return other.first == sizes; });
  tokens_.emplace_back(sizes, origin);
  if (tokens_.size() > kMaxProjections) tokens_.pop_front();
}

std::optional<Origin> Context::TokensOf(const srg::Dimensions& sizes) const {
  for (const auto& [known, origin] : tokens_) {
    if (known == sizes) return origin;
  }
  return std::nullopt;
}

bool Context::IsJoined(const Projection& left) const {
  return absl::c_linear_search(joined_, left);
}

std::optional<Origin> Context::Find(const Table& table, Key key) const {
  const Table::Value* const found = table.Find(key);
  if (found == nullptr) return std::nullopt;
  Origin origin = found->origin;
  // Prefill and decode steps sometimes make values of equal sizes. The program
  // changes from prefill to decode only once.
  if (origin.phase == Phase::kLlmPrefill && last_ == Phase::kLlmDecode) {
    origin.phase = Phase::kLlmDecode;
  }
  return origin;
}

}  // namespace djinn::semantics
