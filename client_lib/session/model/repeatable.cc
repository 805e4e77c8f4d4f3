#include "client_lib/session/model/repeatable.h"

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client_lib/session/model/operator_table.h"
#include "common/srg/graph.h"

namespace djinn {
namespace {

// The kind of computation: operations per element of the largest tensor.
enum class Work : uint8_t {
  kNone = 0,
  kOne = 1,
  kFunction = 4,
  kRows = 5,
  // The operator is a matrix product, which sums over the left operand's last
  // dimension. The left operand is the first operand, or the second one for
  // kAddedProduct.
  kProduct = 100,
  kAddedProduct = 101,
};

struct Group {
  Work work;
  const char* names;
};

// Includes every overload and the in-place form of each name.
constexpr Group kGroups[] = {
    {Work::kOne,
     "add sub rsub mul div neg abs reciprocal square sqrt rsqrt clamp "
     "clamp_min "
     "clamp_max minimum maximum where masked_fill eq ne lt le gt ge floor ceil "
     "round trunc sign relu leaky_relu hardtanh addcmul addcdiv lerp "
     "bitwise_and bitwise_or bitwise_not bitwise_xor logical_and logical_or "
     "logical_not logical_xor outer sum mean amax amin"},
    {Work::kFunction,
     "exp exp2 expm1 log log2 log10 log1p sin cos tan tanh sigmoid gelu silu "
     "elu softplus erf pow"},
    {Work::kRows,
     "softmax _softmax log_softmax _log_softmax layer_norm rms_norm"},
    {Work::kNone,
     "arange linspace full full_like ones ones_like zeros zeros_like new_full "
     "new_ones new_zeros scalar_tensor eye fill zero clone copy _to_copy cat "
     "stack repeat embedding index_select gather tril triu flip roll"},
    {Work::kProduct, "mm bmm matmul linear mv dot"},
    {Work::kAddedProduct, "addmm baddbmm addmv"},
};

using Works = absl::flat_hash_map<std::string, Work>;

const Works& Table() {
  static const auto* const table = [] {
    auto* const works = new Works;
    for (const Group& group : kGroups) {
      for (const absl::string_view name :
           absl::StrSplit(group.names, ' ', absl::SkipEmpty())) {
        works->emplace(absl::StrCat("aten::", name), group.work);
        works->emplace(absl::StrCat("aten::", name, "_"), group.work);
      }
    }
    return works;
  }();
  return *table;
}

double Elements(const srg::TensorView& view) {
  double count = 1;
  for (const int64_t size : view.sizes) count *= static_cast<double>(size);
  return count;
}

// Returns the view's bytes. An element that a zero stride repeats counts once.
double DistinctBytes(const srg::TensorView& view) {
  double count = 1;
  for (size_t i = 0; i < view.sizes.size(); ++i) {
    if (view.strides[i] != 0 || view.sizes[i] == 0) {
      count *= static_cast<double>(view.sizes[i]);
    }
  }
  return count * static_cast<double>(srg::ElementSize(view.data_type));
}

bool IsInTable(absl::string_view name) { return Table().contains(name); }

}  // namespace

bool IsRepeatable(uint32_t operator_id) {
  return HoldsFor<IsInTable>(operator_id);
}

double SecondsOf(const Call& call, const v1::DeviceSpeed& speed) {
  const auto found =
      Table().find(OperatorTable::Global().Get(call.operator_id()).name);
  // An operator that is not in the table is cheap: it creates or compares
  // elements one by one.
  const Work work = found == Table().end() ? Work::kOne : found->second;
  const srg::Node node = NodeOf(call);
  double bytes = 0, largest = 0;
  std::vector<const srg::TensorView*> operands;
  srg::ForEachOperand(node, [&](const srg::TensorView& view) {
    operands.push_back(&view);
    bytes += DistinctBytes(view);
    largest = std::max(largest, Elements(view));
  });
  // An in-place result is as large as the first operand.
  double made = operands.empty() ? 0 : Elements(*operands[0]);
  for (const srg::Result& result : node.results) {
    const auto* const view = std::get_if<srg::TensorView>(&result);
    if (view == nullptr) continue;
    bytes += DistinctBytes(*view);
    made = Elements(*view);
    largest = std::max(largest, made);
  }
  double flops = static_cast<double>(work) * largest;
  if (work == Work::kProduct || work == Work::kAddedProduct) {
    const size_t left = work == Work::kProduct ? 0 : 1;
    const bool summed =
        left < operands.size() && !operands[left]->sizes.empty();
    flops = summed
                ? 2 * made * static_cast<double>(operands[left]->sizes.back())
                : 0;
  }
  return std::max(flops / speed.flops_per_second(),
                  bytes / speed.bytes_per_second()) +
         speed.seconds_per_call();
}

srg::Node NodeOf(const Call& call) {
  std::vector<uint32_t> slots;
  std::vector<uint8_t> accesses;
  for (const Touch& touch : call.touches()) {
    slots.push_back(static_cast<uint32_t>(slots.size()));
    accesses.push_back(touch.access);
  }
  HoleCounters counters;
  return DecodeCall(call.bytes(), slots, accesses, &counters);
}

}  // namespace djinn
