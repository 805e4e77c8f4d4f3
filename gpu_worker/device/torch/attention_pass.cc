#include "gpu_worker/device/torch/attention_pass.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <variant>

#include "ATen/core/Tensor.h"
#include "ATen/ops/add.h"
#include "ATen/ops/scaled_dot_product_attention.h"
#include "c10/core/InferenceMode.h"
#include "gpu_worker/device/torch/call_runner.h"
#include "gpu_worker/device/torch/torch_error.h"

namespace djinn::worker {
namespace {

// The most masks that models add to attention's scores.
constexpr size_t kMaxMasks = 2;

using Number = std::variant<double, srg::FloatHole, srg::ScalarTensor>;
using Part = AttentionParts::Part;

bool Is(const c10::FunctionSchema& schema, absl::string_view name,
        absl::string_view overload) {
  return schema.name() == name && schema.overload_name() == overload;
}

bool IsProduct(const c10::FunctionSchema& schema) {
  return Is(schema, "aten::matmul", "") || Is(schema, "aten::bmm", "");
}

// Returns whether values of these sizes can be added to those of `whole`
// without enlarging the result.
bool Broadcasts(const srg::Dimensions& sizes, const srg::Dimensions& whole) {
  if (sizes.size() > whole.size()) return false;
  const size_t skipped = whole.size() - sizes.size();
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != 1 && sizes[d] != whole[skipped + d]) return false;
  }
  return true;
}

// Returns whether both are equally large batches of matrices of one type that
// can be multiplied.
bool AreBatches(const Operand& a, const Operand& b) {
  const srg::Dimensions& left = a.view.sizes;
  const srg::Dimensions& right = b.view.sizes;
  const size_t rank = left.size();
  return a.view.data_type == b.view.data_type && (rank == 3 || rank == 4) &&
         right.size() == rank &&
         std::equal(left.begin(), left.end() - 2, right.begin()) &&
         left[rank - 1] == right[rank - 2];
}

template <typename Value>
double NumberFrom(const std::string& bytes) {
  Value value;
  TORCH_CHECK(bytes.size() == sizeof(value));
  std::memcpy(&value, bytes.data(), sizeof(value));
  return static_cast<double>(value);
}

double NumberOf(const Number& number, const NodeInput& input) {
  if (const auto* const value = std::get_if<double>(&number)) return *value;
  if (const auto* const hole = std::get_if<srg::FloatHole>(&number)) {
    return input.floats[hole->index];
  }
  const auto& scalar = std::get<srg::ScalarTensor>(number);
  const std::string& bytes = input.scalar_tensors[scalar.hole];
  switch (scalar.data_type) {
    case srg::DataType::kFloat64:
      return NumberFrom<double>(bytes);
    case srg::DataType::kFloat32:
      return NumberFrom<float>(bytes);
    default:
      return NumberFrom<int64_t>(bytes);
  }
}

// Returns the number that fills the argument, if it is one.
std::optional<Number> NumberAt(const CallTemplate& call, uint32_t argument) {
  const Place* const place = PlaceAt(call, argument);
  if (place == nullptr) {
    const c10::IValue& value = call.values[argument];
    if (!value.isDouble() && !value.isInt()) return std::nullopt;
    return value.toScalar().toDouble();
  }
  if (const auto* const hole = std::get_if<srg::FloatHole>(&place->source)) {
    return *hole;
  }
  const auto* const source = std::get_if<TensorSource>(&place->source);
  const auto* const scalar =
      source == nullptr ? nullptr : std::get_if<srg::ScalarTensor>(source);
  if (scalar == nullptr || (scalar->data_type != srg::DataType::kFloat64 &&
                            scalar->data_type != srg::DataType::kFloat32 &&
                            scalar->data_type != srg::DataType::kInt64)) {
    return std::nullopt;
  }
  return *scalar;
}

// Returns the operand's tensor, or a copy if the tensor is not aligned to 16
// bytes. PyTorch chooses a GPU's kernels by sizes and strides alone, and these
// kernels would read outside an unaligned tensor.
at::Tensor TensorOf(const Part& part) {
  constexpr uintptr_t kAlignment = 16;
  const at::Tensor tensor =
      MakeTensor(part.operand.view,
                 static_cast<const TorchBuffer&>(*part.buffer).storage());
  const auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  return address % kAlignment == 0 ? tensor : tensor.clone();
}

// Returns the result of the chain. `parts` are queries, transposed keys, masks,
// and values.
at::Tensor Fused(absl::Span<const Part> parts, double scale) {
  // The operator takes batches of heads.
  const auto batch = [](const at::Tensor& tensor) {
    return tensor.dim() == 3 ? tensor.unsqueeze(0) : tensor;
  };
  const at::Tensor queries = TensorOf(parts[0]);
  const at::Tensor keys = TensorOf(parts[1]).transpose(-2, -1);
  const at::Tensor values = TensorOf(parts.back());
  std::optional<at::Tensor> mask;
  for (const Part& part : parts.subspan(2, parts.size() - 3)) {
    const at::Tensor more = TensorOf(part);
    mask = mask.has_value() ? at::add(*mask, more) : more;
  }
  at::Tensor masked_rows;
  if (mask.has_value()) {
    std::vector<int64_t> sizes = queries.sizes().vec();
    sizes.back() = values.size(-2);
    while (mask->dim() < 2) mask = mask->unsqueeze(0);
    masked_rows = mask->eq(-std::numeric_limits<double>::infinity())
                      .all(-1, /*keepdim=*/true);
    mask = batch(mask->expand(sizes));
  }
  at::Tensor mixed = at::scaled_dot_product_attention(
      batch(queries), batch(keys), batch(values), mask, /*dropout_p=*/0,
      /*is_causal=*/false, scale);
  if (queries.dim() == 3) mixed = mixed.squeeze(0);
  mixed = mixed.contiguous();
  // The operator returns zeros for a row whose scores are all masked, but
  // softmax returns NaNs.
  if (masked_rows.defined()) {
    mixed.masked_fill_(masked_rows, std::numeric_limits<double>::quiet_NaN());
  }
  return mixed;
}

}  // namespace

struct AttentionStep::Chain {
  Number scale = 1.0;
  bool divides = false;
  // The (node, slot) pairs at which the values within the chain end, as in
  // NodeInput::run_ends.
  std::vector<std::pair<uint32_t, uint32_t>> ends;
};

// Finds chains, starting at their last calls.
class AttentionStep::Matcher {
 public:
  Matcher(const srg::Graph& graph, const std::vector<TorchCall>& calls,
          const TorchTarget& target)
      : graph_(graph),
        calls_(calls),
        target_(target),
        steps_(calls.size()),
        facts_(graph.slots.size()) {
    for (uint32_t node = 0; node < calls.size(); ++node) {
      for (const uint32_t slot : calls[node].operand_slots) {
        facts_[slot].reader = node;
        ++facts_[slot].readers;
      }
      for (const uint32_t slot : graph.nodes[node].writes) {
        facts_[slot].written = true;
      }
      if (const srg::TensorView* const result = ResultOf(node)) {
        facts_[result->slot].maker = node;
      }
    }
  }

  std::vector<std::optional<AttentionStep>> Find() {
    for (uint32_t node = 0; node < calls_.size(); ++node) {
      if (IsProduct(SchemaOf(node))) FindChainTo(node);
    }
    return std::move(steps_);
  }

 private:
  struct SlotFacts {
    std::optional<uint32_t> maker;
    // The last reader, and the number of readers.
    uint32_t reader = 0;
    uint32_t readers = 0;
    bool written = false;
  };

  const c10::FunctionSchema& SchemaOf(uint32_t node) const {
    return calls_[node].op.schema();
  }
  const Operand* OperandOf(uint32_t node, uint32_t argument) const {
    return FloatsAt(calls_[node].call, argument);
  }

  // Returns the result of a call that has one result, of plain floats, and no
  // other effect. Returns null for other calls.
  const srg::TensorView* ResultOf(uint32_t node) const {
    const srg::Node& call = graph_.nodes[node];
    if (call.results.size() != 1 || !call.writes.empty() ||
        call.implicit_generator_slot.has_value() ||
        !calls_[node].call.unusable.ok()) {
      return nullptr;
    }
    const auto* const view = std::get_if<srg::TensorView>(&call.results[0]);
    return view != nullptr && HasPlainFloats(*view) &&
                   IsPlainContiguous(*view) && view->storage_offset == 0
               ? view
               : nullptr;
  }

  // Returns the node that computes the operand, if only `reader` reads it, and
  // reads all of it.
  std::optional<uint32_t> MakerFor(uint32_t reader,
                                   const Operand* operand) const {
    if (operand == nullptr) return std::nullopt;
    const SlotFacts& facts = facts_[operand->view.slot];
    if (!facts.maker.has_value() || facts.written || facts.readers != 1 ||
        facts.reader != reader || *facts.maker >= reader ||
        *ResultOf(*facts.maker) != operand->view) {
      return std::nullopt;
    }
    return facts.maker;
  }

  // Adds a step for `node` and moves `node` to the node that computes the
  // operand. Returns false if that node is not part of the chain.
  bool Follow(uint32_t* node, const Operand* from,
              std::vector<Operand> brings) {
    const std::optional<uint32_t> maker = MakerFor(*node, from);
    if (!maker.has_value()) return false;
    Add(*node, std::move(brings), from->view.slot);
    *node = *maker;
    return true;
  }

  void FindChainTo(uint32_t last) {
    const Operand* const weights = OperandOf(last, 0);
    const Operand* const values = OperandOf(last, 1);
    if (weights == nullptr || values == nullptr || ResultOf(last) == nullptr ||
        !AreBatches(*weights, *values) ||
        values->view.slot == weights->view.slot) {
      return;
    }
    chain_.clear();
    Chain chain;
    uint32_t node = last;
    if (!Follow(&node, weights, {*values}) || !IsSoftmax(node) ||
        !Follow(&node, OperandOf(node, 0), {})) {
      return;
    }
    for (size_t masks = 0; masks < kMaxMasks; ++masks) {
      const std::optional<uint32_t> unmasked = MaskedArgument(node);
      if (!unmasked.has_value()) break;
      const Operand* const mask = OperandOf(node, 1 - *unmasked);
      if (!Follow(&node, OperandOf(node, *unmasked), {*mask})) return;
    }
    if (const Operand* const unscaled = ScaledOperand(node, &chain)) {
      if (!Follow(&node, unscaled, {})) return;
    }
    const Operand* const queries = OperandOf(node, 0);
    const Operand* const keys = OperandOf(node, 1);
    if (!IsProduct(SchemaOf(node)) || queries == nullptr || keys == nullptr ||
        !AreBatches(*queries, *keys) ||
        queries->view.data_type != values->view.data_type) {
      return;
    }
    int64_t count = 1;
    for (const int64_t size : ResultOf(node)->sizes) count *= size;
    if (count < kMinScores) return;
    for (const auto& [reader, step] : chain_) {
      chain.ends.emplace_back(reader, *step.from_);
    }
    Add(node, {*queries, *keys}, std::nullopt);
    // The last call of one chain may look like the first call of another.
    for (const auto& [place, step] : chain_) {
      if (steps_[place].has_value()) return;
    }
    const auto shared = std::make_shared<const Chain>(std::move(chain));
    chain_.front().second.last_ = true;
    for (auto& [place, step] : chain_) {
      step.chain_ = shared;
      steps_[place] = std::move(step);
    }
  }

  void Add(uint32_t node, std::vector<Operand> brings,
           std::optional<uint32_t> from) {
    AttentionStep step;
    step.brings_ = std::move(brings);
    step.from_ = from;
    step.result_ = *ResultOf(node);
    step.target_ = &target_;
    chain_.emplace_back(node, std::move(step));
  }

  bool IsSoftmax(uint32_t node) const {
    const CallTemplate& call = calls_[node].call;
    const Operand* const scores = OperandOf(node, 0);
    if (scores == nullptr || call.values.size() != 3 ||
        !call.values[1].isInt() ||
        ResultOf(node)->data_type != scores->view.data_type) {
      return false;
    }
    const auto rank = static_cast<int64_t>(scores->view.sizes.size());
    const int64_t dimension = call.values[1].toInt();
    if (dimension != -1 && dimension != rank - 1) return false;
    // The optional type is the result's, which equals the scores' type.
    if (Is(SchemaOf(node), "aten::softmax", "int")) return true;
    return Is(SchemaOf(node), "aten::_softmax", "") &&
           call.values[2].isBool() && !call.values[2].toBool();
  }

  // Returns the argument to which a mask is added, if the node is such an
  // addition.
  std::optional<uint32_t> MaskedArgument(uint32_t node) const {
    const CallTemplate& call = calls_[node].call;
    const srg::TensorView* const result = ResultOf(node);
    if (!Is(SchemaOf(node), "aten::add", "Tensor") ||
        PlaceAt(call, 2) != nullptr || !call.values[2].isScalar() ||
        call.values[2].toScalar().toDouble() != 1) {
      return std::nullopt;
    }
    for (const uint32_t argument : {0u, 1u}) {
      const Operand* const unmasked = OperandOf(node, argument);
      const Operand* const mask = OperandOf(node, 1 - argument);
      if (mask != nullptr && MakerFor(node, unmasked).has_value() &&
          mask->view.data_type == result->data_type &&
          unmasked->view.sizes == result->sizes &&
          mask->view.slot != unmasked->view.slot &&
          Broadcasts(mask->view.sizes, result->sizes)) {
        return argument;
      }
    }
    return std::nullopt;
  }

  // Returns the operand that the node scales, and notes the scale, if the node
  // is a product or quotient with a number.
  const Operand* ScaledOperand(uint32_t node, Chain* chain) const {
    const std::string& name = SchemaOf(node).name();
    const std::string& overload = SchemaOf(node).overload_name();
    if ((name != "aten::mul" && name != "aten::div") ||
        (overload != "Tensor" && overload != "Scalar")) {
      return nullptr;
    }
    chain->divides = name == "aten::div";
    for (const uint32_t argument : {0u, 1u}) {
      const Operand* const unscaled = OperandOf(node, argument);
      const std::optional<Number> scale =
          NumberAt(calls_[node].call, 1 - argument);
      if (unscaled != nullptr && scale.has_value()) {
        chain->scale = *scale;
        return unscaled;
      }
      if (chain->divides) break;
    }
    return nullptr;
  }

  const srg::Graph& graph_;
  const std::vector<TorchCall>& calls_;
  const TorchTarget& target_;
  std::vector<std::optional<AttentionStep>> steps_;
  std::vector<SlotFacts> facts_;
  // The last call comes first.
  std::vector<std::pair<uint32_t, AttentionStep>> chain_;
};

std::vector<std::optional<AttentionStep>> AttentionStep::Match(
    const srg::Graph& graph, const std::vector<TorchCall>& calls,
    const TorchTarget& target) {
  return Matcher(graph, calls, target).Find();
}

std::optional<absl::Status> AttentionStep::Run(
    const NodeInput& input, std::vector<NodeResult>* results) const {
  const size_t before = results->size();
  std::optional<absl::Status> outcome;
  const absl::Status status = CatchTorch(kOperatorFailed, [&] {
    const c10::InferenceMode inference;
    outcome = Extend(input, results);
    return outcome.value_or(absl::OkStatus());
  });
  if (status.ok()) return outcome;
  results->resize(before);
  // The first call can still be executed plainly; the others lack its result.
  if (!from_.has_value()) return std::nullopt;
  return status;
}

std::optional<absl::Status> AttentionStep::Extend(
    const NodeInput& input, std::vector<NodeResult>* results) const {
  auto parts = std::make_shared<AttentionParts>();
  if (from_.has_value()) {
    const auto* const from =
        static_cast<const TorchBuffer*>(input.slots[*from_].get());
    if (from == nullptr || from->unmade() == nullptr) return std::nullopt;
    *parts = static_cast<const AttentionParts&>(*from->unmade());
  } else {
    const bool unseen = std::all_of(
        chain_->ends.begin(), chain_->ends.end(), [&](const auto& end) {
          return std::binary_search(input.run_ends.begin(),
                                    input.run_ends.end(), end);
        });
    if (!unseen) return std::nullopt;
  }
  for (const Operand& operand : brings_) {
    const std::shared_ptr<Buffer>& buffer = input.slots[operand.view.slot];
    TORCH_CHECK(
        buffer != nullptr && operand.extent_bytes <= buffer->size_bytes() &&
            static_cast<const TorchBuffer&>(*buffer).unmade() == nullptr,
        "an operand of attention is missing");
    parts->parts.push_back({operand, buffer});
  }
  if (!last_) {
    auto bytes = static_cast<uint64_t>(srg::ElementSize(result_.data_type));
    for (const int64_t size : result_.sizes) {
      bytes *= static_cast<uint64_t>(size);
    }
    results->push_back({std::make_shared<TorchBuffer>(target_->device(), bytes,
                                                      std::move(parts)),
                        result_});
    return absl::OkStatus();
  }
  const double scale = NumberOf(chain_->scale, input);
  const at::Tensor mixed =
      Fused(parts->parts, chain_->divides ? 1 / scale : scale);
  NodeResult result;
  TORCH_CHECK(DescribeTensor(mixed, &result.view));
  result.buffer = std::make_shared<TorchBuffer>(mixed.storage());
  results->push_back(std::move(result));
  return absl::OkStatus();
}

}  // namespace djinn::worker
