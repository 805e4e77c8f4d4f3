#include "gpu_worker/device/cpu/whole_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "ATen/ops/add.h"
#include "ATen/ops/amax.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/scaled_dot_product_attention.h"
#include "ATen/ops/softmax.h"
#include "absl/strings/str_cat.h"
#include "c10/core/InferenceMode.h"
#include "gpu_worker/device/cpu/alone_trial.h"
#include "gpu_worker/device/cpu/choice_table.h"
#include "gpu_worker/device/cpu/float_operands.h"
#include "gpu_worker/device/cpu/thread_scope.h"
#include "gpu_worker/device/torch/call_runner.h"
#include "gpu_worker/device/torch/torch_error.h"

namespace djinn::worker {
namespace {

// More are no attention that anybody writes.
constexpr size_t kMaxMasks = 2;
constexpr int64_t kFloat = static_cast<int64_t>(at::kFloat);

bool IsProduct(const c10::FunctionSchema& schema) {
  return (schema.name() == "aten::matmul" || schema.name() == "aten::bmm") &&
         schema.overload_name().empty();
}

const TensorSource* SourceAt(const CallTemplate& call, uint32_t argument) {
  const Place* const place = PlaceAt(call, argument);
  if (place == nullptr || place->written) return nullptr;
  return std::get_if<TensorSource>(&place->source);
}

// Whether values of these sizes can be added to those of `whole` without there
// being more of them.
bool Broadcasts(const srg::Dimensions& sizes, const srg::Dimensions& whole) {
  if (sizes.size() > whole.size()) return false;
  const size_t skipped = whole.size() - sizes.size();
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != 1 && sizes[d] != whole[skipped + d]) return false;
  }
  return true;
}

bool IsNumberType(srg::DataType type) {
  return type == srg::DataType::kFloat64 || type == srg::DataType::kFloat32 ||
         type == srg::DataType::kInt64;
}

template <typename Number>
double NumberFrom(const std::string& bytes) {
  Number number;
  std::memcpy(&number, bytes.data(), sizeof(number));
  return static_cast<double>(number);
}

std::optional<double> NumberOf(
    const std::variant<double, srg::FloatHole, srg::ScalarTensor>& value,
    const NodeInput& input) {
  if (const auto* const number = std::get_if<double>(&value)) return *number;
  if (const auto* const hole = std::get_if<srg::FloatHole>(&value)) {
    return input.floats[hole->index];
  }
  const auto& scalar = std::get<srg::ScalarTensor>(value);
  const std::string& bytes = input.scalar_tensors[scalar.hole];
  if (bytes.size() != static_cast<size_t>(srg::ElementSize(scalar.data_type))) {
    return std::nullopt;
  }
  switch (scalar.data_type) {
    case srg::DataType::kFloat64:
      return NumberFrom<double>(bytes);
    case srg::DataType::kFloat32:
      return NumberFrom<float>(bytes);
    default:
      return NumberFrom<int64_t>(bytes);
  }
}

const TorchBuffer* BufferAt(const NodeInput& input, uint32_t slot) {
  return slot < input.slots.size()
             ? static_cast<const TorchBuffer*>(input.slots[slot].get())
             : nullptr;
}

// The operand's bytes as they are now; nothing where they are not there.
std::optional<AttentionParts::Part> PartOf(const Operand& operand,
                                           const NodeInput& input) {
  const TorchBuffer* const buffer = BufferAt(input, operand.view.slot);
  if (buffer == nullptr || buffer->unmade() != nullptr ||
      operand.extent_bytes > buffer->size_bytes()) {
    return std::nullopt;
  }
  return AttentionParts::Part{operand, input.slots[operand.view.slot]};
}

at::Tensor TensorOf(const AttentionParts::Part& part) {
  const auto& buffer = static_cast<const TorchBuffer&>(*part.buffer);
  if (const auto blocks = buffer.Apart()) {
    at::Tensor tensor = MakeTensor(part.operand.view, *blocks);
    if (tensor.defined()) return tensor;
  }
  return MakeTensor(part.operand.view, buffer.storage());
}

at::Tensor StepByStep(const AttentionParts& parts, const at::Tensor& values) {
  at::Tensor scores = at::matmul(TensorOf(parts.queries), TensorOf(parts.keys));
  if (parts.scale != 1) scores.mul_(parts.scale);
  for (const AttentionParts::Part& mask : parts.masks) {
    scores.add_(TensorOf(mask));
  }
  return at::matmul(at::softmax(scores, -1), values);
}

// Undefined where it would not give the same: PyTorch's operator makes zeros of
// a row that is masked altogether, and softmax no numbers.
at::Tensor AsAWhole(const AttentionParts& parts, const at::Tensor& values) {
  const at::Tensor queries = TensorOf(parts.queries);
  std::optional<at::Tensor> mask;
  for (const AttentionParts::Part& part : parts.masks) {
    const at::Tensor more = TensorOf(part);
    mask = mask.has_value() ? at::add(*mask, more) : more;
  }
  const int64_t columns = values.size(-2);
  if (mask.has_value()) {
    constexpr double kNothing = -std::numeric_limits<double>::infinity();
    if (mask->dim() == 0 || mask->amax(-1).eq(kNothing).any().item<bool>()) {
      return at::Tensor();
    }
    std::vector<int64_t> sizes = queries.sizes().vec();
    sizes.back() = columns;
    mask = mask->expand(sizes);
  }
  // It takes batches of heads.
  const auto batch = [](const at::Tensor& tensor) {
    return tensor.dim() == 3 ? tensor.unsqueeze(0) : tensor;
  };
  if (mask.has_value()) mask = batch(*mask);
  at::Tensor mixed = at::scaled_dot_product_attention(
      batch(queries), batch(TensorOf(parts.keys).transpose(-2, -1)),
      batch(values), mask, /*dropout_p=*/0, /*is_causal=*/false, parts.scale);
  if (queries.dim() == 3) mixed = mixed.squeeze(0);
  return mixed.contiguous();
}

absl::Status Broken(absl::string_view what) {
  return absl::InternalError(absl::StrCat("attention: ", what));
}

}  // namespace

// Finds chains from their ends.
class AttentionStep::Matcher {
 public:
  Matcher(const srg::Structure& structure, const std::vector<TorchCall>& calls)
      : structure_(structure),
        calls_(calls),
        steps_(calls.size()),
        facts_(structure.slots.size()) {
    for (uint32_t node = 0; node < calls.size(); ++node) {
      for (const uint32_t slot : calls[node].operand_slots) {
        facts_[slot].reader = node;
        ++facts_[slot].readers;
      }
      for (const uint32_t slot : structure.nodes[node].writes) {
        facts_[slot].written = true;
      }
      if (const srg::TensorView* const result = ResultOf(node)) {
        facts_[result->slot].maker = node;
      }
    }
  }

  std::vector<std::optional<AttentionStep>> Find() {
    for (uint32_t node = 0; node < calls_.size(); ++node) {
      if (IsProduct(calls_[node].op.schema())) FindChainTo(node);
    }
    return std::move(steps_);
  }

 private:
  struct SlotFacts {
    std::optional<uint32_t> maker;
    // The last of them, and how many.
    uint32_t reader = 0;
    uint32_t readers = 0;
    bool written = false;
  };

  // Of a call with one result, of plain floats, and nothing else.
  const srg::TensorView* ResultOf(uint32_t node) const {
    const srg::Node& call = structure_.nodes[node];
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

  // Who makes the operand, all of which `reader` alone reads.
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

  void FindChainTo(uint32_t last) {
    const CallTemplate& call = calls_[last].call;
    const Operand* const weights = FloatsAt(call, 0);
    const Operand* const values = FloatsAt(call, 1);
    const srg::TensorView* const result = ResultOf(last);
    std::optional<uint32_t> node = MakerFor(last, weights);
    if (!node.has_value() || values == nullptr || result == nullptr ||
        !AreBatches(*weights, *values) || !IsSoftmax(*node) ||
        values->view.slot == weights->view.slot) {
      return;
    }
    chain_.clear();
    Add(last, Output{*values}, weights->view.slot);
    const Operand* scores = FloatsAt(calls_[*node].call, 0);
    Add(*node, Softmax{}, scores == nullptr ? 0 : scores->view.slot);
    node = MakerFor(*node, scores);
    for (size_t masks = 0; node.has_value() && masks < kMaxMasks; ++masks) {
      const Operand* unmasked = nullptr;
      const Operand* mask = nullptr;
      if (!IsMasking(*node, &unmasked, &mask)) break;
      Add(*node, Mask{*mask}, unmasked->view.slot);
      node = MakerFor(*node, unmasked);
    }
    if (!node.has_value()) return;
    const Operand* unscaled = nullptr;
    if (std::optional<Scale> scale = ScalingBy(*node, &unscaled)) {
      Add(*node, *std::move(scale), unscaled->view.slot);
      node = MakerFor(*node, unscaled);
      if (!node.has_value()) return;
    }
    const CallTemplate& product = calls_[*node].call;
    const Operand* const queries = FloatsAt(product, 0);
    const Operand* const keys = FloatsAt(product, 1);
    if (!IsProduct(calls_[*node].op.schema()) || queries == nullptr ||
        keys == nullptr || !AreBatches(*queries, *keys)) {
      return;
    }
    Scores first{*queries, *keys, {}};
    int64_t count = 1;
    for (const int64_t size : ResultOf(*node)->sizes) count *= size;
    if (count < kMinScores) return;
    for (const auto& [reader, step] : chain_) {
      first.ends.emplace_back(reader, step.from_);
    }
    Add(*node, std::move(first), 0);
    // The end of one chain may look like the start of another.
    for (const auto& [place, step] : chain_) {
      if (steps_[place].has_value()) return;
    }
    for (auto& [place, step] : chain_) steps_[place] = std::move(step);
  }

  // The last call first.
  template <typename Kind>
  void Add(uint32_t node, Kind kind, uint32_t from) {
    AttentionStep step;
    step.step_ = std::move(kind);
    step.from_ = from;
    step.result_ = *ResultOf(node);
    chain_.emplace_back(node, std::move(step));
  }

  // Matrices, as many of one as of the other.
  static bool AreBatches(const Operand& a, const Operand& b) {
    const srg::Dimensions& left = a.view.sizes;
    const srg::Dimensions& right = b.view.sizes;
    const size_t rank = left.size();
    return (rank == 3 || rank == 4) && right.size() == rank &&
           std::equal(left.begin(), left.end() - 2, right.begin()) &&
           left[rank - 1] == right[rank - 2];
  }

  bool IsSoftmax(uint32_t node) const {
    const c10::FunctionSchema& schema = calls_[node].op.schema();
    const CallTemplate& call = calls_[node].call;
    const Operand* const scores = FloatsAt(call, 0);
    if (scores == nullptr || ResultOf(node) == nullptr) return false;
    const auto rank = static_cast<int64_t>(scores->view.sizes.size());
    if (call.values.size() != 3 || !call.values[1].isInt() ||
        (call.values[1].toInt() != -1 && call.values[1].toInt() != rank - 1)) {
      return false;
    }
    const c10::IValue& third = call.values[2];
    if (schema.name() == "aten::softmax" && schema.overload_name() == "int") {
      return third.isNone() || (third.isInt() && third.toInt() == kFloat);
    }
    return schema.name() == "aten::_softmax" &&
           schema.overload_name().empty() && third.isBool() && !third.toBool();
  }

  // Whether it adds a mask to what `unmasked` makes.
  bool IsMasking(uint32_t node, const Operand** unmasked,
                 const Operand** mask) const {
    const c10::FunctionSchema& schema = calls_[node].op.schema();
    const CallTemplate& call = calls_[node].call;
    const srg::TensorView* const result = ResultOf(node);
    if (schema.name() != "aten::add" || schema.overload_name() != "Tensor" ||
        result == nullptr || PlaceAt(call, 2) != nullptr ||
        !call.values[2].isScalar() ||
        call.values[2].toScalar().toDouble() != 1) {
      return false;
    }
    for (const uint32_t first : {0u, 1u}) {
      *unmasked = FloatsAt(call, first);
      *mask = FloatsAt(call, 1 - first);
      if (*mask != nullptr && MakerFor(node, *unmasked).has_value() &&
          (*unmasked)->view.sizes == result->sizes &&
          (*mask)->view.slot != (*unmasked)->view.slot &&
          Broadcasts((*mask)->view.sizes, result->sizes) &&
          LeadsToScores(*MakerFor(node, *unmasked))) {
        return true;
      }
    }
    return false;
  }

  bool LeadsToScores(uint32_t node) const {
    const std::string& name = calls_[node].op.schema().name();
    return IsProduct(calls_[node].op.schema()) || name == "aten::mul" ||
           name == "aten::div" || name == "aten::add";
  }

  std::optional<Scale> ScalingBy(uint32_t node,
                                 const Operand** unscaled) const {
    const c10::FunctionSchema& schema = calls_[node].op.schema();
    const CallTemplate& call = calls_[node].call;
    const bool divides = schema.name() == "aten::div";
    if ((!divides && schema.name() != "aten::mul") ||
        ResultOf(node) == nullptr) {
      return std::nullopt;
    }
    const bool by_scalar = schema.overload_name() == "Scalar";
    if (!by_scalar && schema.overload_name() != "Tensor") return std::nullopt;
    for (const uint32_t first : {0u, 1u}) {
      *unscaled = FloatsAt(call, first);
      if (MakerFor(node, *unscaled).has_value()) {
        if (std::optional<Scale> scale = ScaleAt(call, 1 - first, by_scalar)) {
          scale->divides = divides;
          return scale;
        }
      }
      if (divides || by_scalar) break;
    }
    return std::nullopt;
  }

  static std::optional<Scale> ScaleAt(const CallTemplate& call,
                                      uint32_t argument, bool by_scalar) {
    const Place* const place = PlaceAt(call, argument);
    if (by_scalar) {
      if (place == nullptr) {
        const c10::IValue& value = call.values[argument];
        if (!value.isDouble() && !value.isInt()) return std::nullopt;
        return Scale{value.toScalar().toDouble()};
      }
      const auto* const hole = std::get_if<srg::FloatHole>(&place->source);
      if (hole == nullptr) return std::nullopt;
      return Scale{*hole};
    }
    const TensorSource* const source = SourceAt(call, argument);
    if (source == nullptr) return std::nullopt;
    const auto* const scalar = std::get_if<srg::ScalarTensor>(source);
    if (scalar == nullptr || !IsNumberType(scalar->data_type)) {
      return std::nullopt;
    }
    return Scale{*scalar};
  }

  const srg::Structure& structure_;
  const std::vector<TorchCall>& calls_;
  std::vector<std::optional<AttentionStep>> steps_;
  std::vector<SlotFacts> facts_;
  std::vector<std::pair<uint32_t, AttentionStep>> chain_;
};

std::vector<std::optional<AttentionStep>> AttentionStep::Match(
    const srg::Structure& structure, const std::vector<TorchCall>& calls) {
  return Matcher(structure, calls).Find();
}

void AttentionStep::Promise(std::shared_ptr<const AttentionParts> parts,
                            std::vector<NodeResult>* results) const {
  uint64_t elements = 1;
  for (const int64_t size : result_.sizes) {
    elements *= static_cast<uint64_t>(size);
  }
  auto buffer =
      std::make_shared<TorchBuffer>(UninitialisedStorage(elements * 4));
  buffer->SetUnmade(std::move(parts));
  results->push_back({std::move(buffer), result_});
}

std::optional<absl::Status> AttentionStep::Begin(
    const Scores& scores, const NodeInput& input,
    std::vector<NodeResult>* results) const {
  const bool unseen =
      std::all_of(scores.ends.begin(), scores.ends.end(), [&](const End& end) {
        return std::binary_search(input.run_ends.begin(), input.run_ends.end(),
                                  end);
      });
  if (!unseen) return std::nullopt;
  std::optional<AttentionParts::Part> queries = PartOf(scores.queries, input);
  std::optional<AttentionParts::Part> keys = PartOf(scores.keys, input);
  if (!queries.has_value() || !keys.has_value()) return std::nullopt;
  auto parts = std::make_shared<AttentionParts>();
  parts->queries = *std::move(queries);
  parts->keys = *std::move(keys);
  Promise(std::move(parts), results);
  return absl::OkStatus();
}

absl::Status AttentionStep::Extend(const AttentionParts& before,
                                   const NodeInput& input,
                                   std::vector<NodeResult>* results) const {
  auto parts = std::make_shared<AttentionParts>(before);
  if (const auto* const mask = std::get_if<Mask>(&step_)) {
    std::optional<AttentionParts::Part> part = PartOf(mask->mask, input);
    if (!part.has_value()) return Broken("no mask");
    parts->masks.push_back(*std::move(part));
  } else if (const auto* const scale = std::get_if<Scale>(&step_)) {
    const std::optional<double> by = NumberOf(scale->value, input);
    if (!by.has_value()) return Broken("no scale");
    parts->scale = scale->divides ? 1 / *by : *by;
  }
  Promise(std::move(parts), results);
  return absl::OkStatus();
}

absl::Status AttentionStep::Finish(const AttentionParts& parts,
                                   const NodeInput& input,
                                   const CpuTiers& tiers,
                                   AttentionChoice* choice, Clock* clock,
                                   std::vector<NodeResult>* results) const {
  const std::optional<AttentionParts::Part> part =
      PartOf(std::get<Output>(step_).values, input);
  if (!part.has_value()) return Broken("no values");
  const at::Tensor values = TensorOf(*part);
  const MeasuredTurn turn = choice->ways.Next();
  const bool one_thread =
      tiers.thread_trials && (turn.way & AttentionChoice::kOneThread) != 0;
  const ThreadScope threads(one_thread);
  const absl::Duration start =
      turn.measured ? clock->Monotonic() : absl::ZeroDuration();
  at::Tensor mixed;
  if ((turn.way & AttentionChoice::kWhole) != 0 && std::isfinite(parts.scale)) {
    mixed = AsAWhole(parts, values);
  }
  if (!mixed.defined()) mixed = StepByStep(parts, values);
  if (turn.measured) {
    const auto took = static_cast<uint64_t>(
        absl::ToInt64Nanoseconds(clock->Monotonic() - start));
    choice->ways.Took(
        turn.way, Choices::Cost(one_thread ? Choices::kOneThread : 0, took));
  }
  NodeResult result;
  if (!DescribeTensor(mixed, &result.view)) return Broken("no such type");
  result.buffer = std::make_shared<TorchBuffer>(mixed.storage());
  results->push_back(std::move(result));
  return absl::OkStatus();
}

std::optional<absl::Status> AttentionStep::Run(
    const NodeInput& input, const CpuTiers& tiers, AttentionChoice* choice,
    Clock* clock, std::vector<NodeResult>* results) const {
  const size_t before = results->size();
  std::optional<absl::Status> outcome;
  if (const auto* const scores = std::get_if<Scores>(&step_)) {
    // Whatever keeps it from beginning, the plain call does without.
    const absl::Status begun = CatchTorch(kOperatorFailed, [&] {
      outcome = Begin(*scores, input, results);
      return absl::OkStatus();
    });
    if (begun.ok()) return outcome;
    results->resize(before);
    return std::nullopt;
  }
  const TorchBuffer* const from = BufferAt(input, from_);
  if (from == nullptr || from->unmade() == nullptr) return std::nullopt;
  // From here on nobody else can carry it out.
  const auto& parts = static_cast<const AttentionParts&>(*from->unmade());
  outcome = CatchTorch(kOperatorFailed, [&] {
    const c10::InferenceMode inference;
    return std::holds_alternative<Output>(step_)
               ? Finish(parts, input, tiers, choice, clock, results)
               : Extend(parts, input, results);
  });
  if (!outcome->ok()) results->resize(before);
  return outcome;
}

}  // namespace djinn::worker
