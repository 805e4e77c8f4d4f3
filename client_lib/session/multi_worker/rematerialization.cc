#include "client_lib/session/multi_worker/rematerialization.h"

#include <utility>
#include <variant>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "client_lib/session/model/operator_table.h"
#include "client_lib/session/model/repeatable.h"
#include "common/srg/graph.h"

namespace djinn {
namespace {

// Memory that the computation may take beyond that of a fetch.
constexpr uint64_t kMaxExcess = 4;
constexpr uint64_t kFreeBytes = 64 << 10;

// Includes every overload of each name.
const absl::flat_hash_set<absl::string_view>& CheapNames() {
  static const auto* const names = new absl::flat_hash_set<absl::string_view>{
      "aten::add",          "aten::add_",
      "aten::arange",       "aten::bitwise_and",
      "aten::bitwise_not",  "aten::bitwise_or",
      "aten::clone",        "aten::copy_",
      "aten::eq",           "aten::eye",
      "aten::fill",         "aten::fill_",
      "aten::full",         "aten::full_like",
      "aten::ge",           "aten::gt",
      "aten::le",           "aten::logical_and",
      "aten::logical_not",  "aten::logical_or",
      "aten::lt",           "aten::masked_fill",
      "aten::masked_fill_", "aten::mul",
      "aten::mul_",         "aten::ne",
      "aten::new_full",     "aten::new_ones",
      "aten::new_zeros",    "aten::ones",
      "aten::ones_like",    "aten::scalar_tensor",
      "aten::sub",          "aten::sub_",
      "aten::tril",         "aten::tril_",
      "aten::triu",         "aten::triu_",
      "aten::where",        "aten::zero_",
      "aten::zeros",        "aten::zeros_like",
  };
  return *names;
}

bool IsCheapName(absl::string_view name) { return CheapNames().contains(name); }

bool IsOfWholeNumbersOnly(absl::string_view name) {
  for (const absl::string_view one :
       {"aten::add", "aten::add_", "aten::arange", "aten::sub", "aten::sub_"}) {
    if (name == one) return true;
  }
  return false;
}

bool IsReal(const srg::TensorView& view) {
  switch (view.data_type) {
    case srg::DataType::kBool:
    case srg::DataType::kUint8:
    case srg::DataType::kInt8:
    case srg::DataType::kInt16:
    case srg::DataType::kInt32:
    case srg::DataType::kInt64:
    case srg::DataType::kUint16:
    case srg::DataType::kUint32:
    case srg::DataType::kUint64:
      return false;
    default:
      return true;
  }
}

// Returns whether a tensor of the call has real elements.
bool UsesRealNumbers(const Call& call) {
  const srg::Node node = NodeOf(call);
  bool real = false;
  srg::ForEachOperand(
      node, [&](const srg::TensorView& view) { real |= IsReal(view); });
  for (const srg::Result& result : node.results) {
    const auto* const view = std::get_if<srg::TensorView>(&result);
    real |= view == nullptr || IsReal(*view);
  }
  return real;
}

// Builds what cheap and other rematerializations have in common. Returns null
// if the call draws, writes no value or several, has unknown results, or takes
// large intermediates.
std::shared_ptr<Rematerialization> Compose(
    const Call& call,
    std::vector<std::shared_ptr<const Rematerialization>> before) {
  if (call.unknown_results() != 0) return nullptr;
  auto rematerialization = std::make_shared<Rematerialization>();
  rematerialization->calls = 1;
  int made = 0;
  for (uint32_t i = 0; i < call.touches().size(); ++i) {
    const Touch& touch = call.touches()[i];
    if ((touch.access & kDraws) != 0) return nullptr;
    if (ChangesVersion(touch.access)) {
      ++made;
      rematerialization->made = i;
      rematerialization->size_bytes = touch.storage->size_bytes();
    }
    if ((touch.access & kCreates) != 0) {
      before[i] = nullptr;
    } else if (before[i] != nullptr) {
      rematerialization->calls += before[i]->calls;
      rematerialization->bytes += before[i]->bytes;
    }
  }
  rematerialization->bytes += rematerialization->size_bytes;
  if (made != 1 || rematerialization->calls > Rematerialization::kMaxCalls ||
      rematerialization->bytes >
          kMaxExcess * rematerialization->size_bytes + kFreeBytes) {
    return nullptr;
  }
  rematerialization->before = std::move(before);
  rematerialization->call = call;
  for (Touch& touch : rematerialization->call.touches())
    touch.storage = StoragePtr();
  return rematerialization;
}

}  // namespace

bool IsCheap(uint32_t operator_id) {
  return HoldsFor<IsCheapName>(operator_id);
}

Rematerialization::~Rematerialization() {
  if (footprints != nullptr) {
    footprints->fetch_sub(footprint, std::memory_order_relaxed);
  }
}

std::shared_ptr<Rematerialization> RematerializationOf(
    const Call& call,
    std::vector<std::shared_ptr<const Rematerialization>> before) {
  if (!IsCheap(call.operator_id())) return nullptr;
  for (size_t i = 0; i < before.size(); ++i) {
    if ((call.touches()[i].access & kCreates) != 0) continue;
    if (before[i] == nullptr || !before[i]->cheap()) return nullptr;
  }
  std::shared_ptr<Rematerialization> rematerialization =
      Compose(call, std::move(before));
  if (rematerialization == nullptr) return nullptr;
  if (IsOfWholeNumbersOnly(
          OperatorTable::Global().Get(call.operator_id()).name) &&
      UsesRealNumbers(call)) {
    return nullptr;
  }
  return rematerialization;
}

std::shared_ptr<Rematerialization> WeighedRematerializationOf(
    const Call& call,
    std::vector<std::shared_ptr<const Rematerialization>> before,
    std::vector<std::shared_ptr<HeldValue>> held) {
  if (!IsRepeatable(call.operator_id())) return nullptr;
  uint32_t calls = 1;
  for (const auto& rematerialization : before)
    calls += rematerialization ? rematerialization->calls : 0;
  for (size_t i = 0; i < before.size(); ++i) {
    const uint8_t access = call.touches()[i].access;
    if ((access & kCreates) != 0) {
      held[i] = nullptr;
      continue;
    }
    // No storage holds the overwritten value any more.
    if (ChangesVersion(access)) held[i] = nullptr;
    if (calls > Rematerialization::kMaxCalls && held[i] != nullptr)
      before[i] = nullptr;
    if (before[i] == nullptr && held[i] == nullptr) return nullptr;
  }
  std::shared_ptr<Rematerialization> rematerialization =
      Compose(call, std::move(before));
  if (rematerialization == nullptr) return nullptr;
  rematerialization->held = std::move(held);
  rematerialization->footprint = static_cast<int64_t>(
      sizeof(Rematerialization) + call.bytes().size() +
      call.floats().size() * sizeof(double) +
      call.scalar_tensors().size() * sizeof(ScalarValue) +
      call.touches().size() * (sizeof(Touch) + sizeof(HeldValue) +
                               sizeof(std::shared_ptr<Rematerialization>) +
                               sizeof(std::shared_ptr<HeldValue>)));
  return rematerialization;
}

}  // namespace djinn
