#include "scheduler/semantics/cost/cost.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"

namespace djinn::semantics {
namespace {

using Sizes = absl::Span<const int64_t>;

uint64_t Product(Sizes sizes) {
  uint64_t product = 1;
  for (const int64_t size : sizes) product *= static_cast<uint64_t>(size);
  return product;
}

const bool* BooleanArgument(const Frame& frame, int node, int index) {
  const srg::Argument* const argument = frame.argument(node, index);
  return argument == nullptr ? nullptr : std::get_if<bool>(argument);
}

// Counts a matrix product: each element of the result sums over the left
// operand's last dimension.
uint64_t MatmulFlops(const Frame& frame, int node) {
  const absl::string_view op = frame.op(node);
  const bool added =
      op == "addmm" || op == "baddbmm" || op == "addmv" || op == "addbmm";
  const Sizes left = frame.Sizes(node, added ? 1 : 0);
  if (left.empty()) return 0;
  const auto outputs = frame.outputs(node);
  const uint64_t elements =
      outputs.empty() ? 0 : static_cast<uint64_t>(Elements(outputs[0].view));
  return 2 * elements * static_cast<uint64_t>(left.back());
}

bool IsTransposed(const Frame& frame, int node) {
  if (absl::StrContains(frame.op(node), "transpose")) return true;
  if (frame.op(node) == "convolution_backward") {
    const bool* const said = BooleanArgument(frame, node, 7);
    return said != nullptr && *said;
  }
  if (frame.op(node) != "convolution") return false;
  const bool* const said = BooleanArgument(frame, node, 6);
  return said != nullptr && *said;
}

uint64_t Spatial(Sizes sizes) {
  return sizes.size() < 2 ? 0 : Product(sizes.subspan(2));
}

uint64_t ConvolutionFlops(const Frame& frame, int node) {
  const Sizes in = frame.Sizes(node, 0), weight = frame.Sizes(node, 1);
  const Sizes out = frame.OutputSizes(node);
  if (in.size() < 3 || out.size() != in.size()) return 0;
  return 2 * static_cast<uint64_t>(in[0]) *
         Spatial(IsTransposed(frame, node) ? in : out) * Product(weight);
}

// Counts the gradients of the operand and of the weight, as far as they are
// requested.
uint64_t ConvolutionBackwardFlops(const Frame& frame, int node) {
  const Sizes gradient = frame.Sizes(node, 0), in = frame.Sizes(node, 1);
  const Sizes weight = frame.Sizes(node, 2);
  const srg::Argument* const argument = frame.argument(node, 10);
  const auto* const asked =
      argument == nullptr ? nullptr : std::get_if<std::vector<bool>>(argument);
  if (gradient.size() < 3 || in.size() < 3 || asked == nullptr ||
      asked->size() < 2) {
    return 0;
  }
  const bool transposed = IsTransposed(frame, node);
  uint64_t flops = 0;
  if ((*asked)[0]) {
    flops += 2 * static_cast<uint64_t>(gradient[0]) *
             Spatial(transposed ? in : gradient) * Product(weight);
  }
  if ((*asked)[1]) {
    const Sizes wide = transposed ? in : gradient;
    flops += 2 * static_cast<uint64_t>(in[1]) *
             static_cast<uint64_t>(gradient[1]) * static_cast<uint64_t>(in[0]) *
             Spatial(weight) * Spatial(wide);
  }
  return flops;
}

// Counts two products forward; backward recomputes one of them and adds four.
uint64_t AttentionFlops(const Frame& frame, int node, bool backward) {
  const int first = backward ? 1 : 0;  // behind the result's gradient
  const Sizes q = frame.Sizes(node, first), k = frame.Sizes(node, first + 1);
  const Sizes v = frame.Sizes(node, first + 2);
  if (q.size() < 3 || k.size() < 2 || v.empty()) return 0;
  const uint64_t pairs = Product(q.subspan(0, q.size() - 1)) *
                         static_cast<uint64_t>(k[k.size() - 2]);
  const uint64_t to_keys = 2 * pairs * static_cast<uint64_t>(q.back());
  const uint64_t to_values = 2 * pairs * static_cast<uint64_t>(v.back());
  return backward ? 3 * to_keys + 2 * to_values : to_keys + to_values;
}

// Counts a recurrent layer: every step multiplies by all weight matrices.
uint64_t RecurrentFlops(const Frame& frame, int node) {
  const Sizes in = frame.Sizes(node, 0);
  if (in.empty()) return 0;
  const uint64_t rows = Product(in.subspan(0, in.size() - 1));
  uint64_t weights = 0;
  for (const Frame::Operand& operand : frame.operands(node)) {
    if (operand.argument >= 2 && operand.view->sizes.size() == 2) {
      weights += Product(operand.view->sizes);
    }
  }
  return 2 * rows * weights;
}

// Returns the number of operations for each element of the largest tensor.
uint64_t PerElement(OpClass op_class) {
  switch (op_class) {
    case OpClass::kSoftmax:
    case OpClass::kNormalization:
      return 5;
    case OpClass::kActivation:
      return 4;
    case OpClass::kBackward:
    case OpClass::kLoss:
      return 2;
    case OpClass::kPointwise:
    case OpClass::kReduction:
    case OpClass::kPooling:
    case OpClass::kResampling:
    case OpClass::kRandom:
    case OpClass::kOptimizer:
      return 1;
    default:
      return 0;
  }
}

// Counts repeated elements once.
uint64_t DistinctBytes(const srg::TensorView& view) {
  uint64_t elements = 1;
  for (size_t k = 0; k < view.sizes.size(); ++k) {
    if (view.strides[k] != 0 || view.sizes[k] == 0) {
      elements *= static_cast<uint64_t>(view.sizes[k]);
    }
  }
  return elements * static_cast<uint64_t>(srg::ElementSize(view.data_type));
}

// Returns whether the node picks as many rows of its first operand as it
// returns.
bool TakesRows(const Frame& frame, int node) {
  const absl::string_view op = frame.op(node);
  return op == "embedding" || op == "index" || op == "index_select" ||
         op == "gather";
}

}  // namespace

uint64_t ProductFlops(const Frame& frame, int node) {
  switch (frame.op_class(node)) {
    case OpClass::kMatmul:
      return MatmulFlops(frame, node);
    case OpClass::kConvolution:
      return ConvolutionFlops(frame, node);
    case OpClass::kAttention:
      return AttentionFlops(frame, node, /*backward=*/false);
    case OpClass::kBackward:
      if (frame.op(node) == "convolution_backward") {
        return ConvolutionBackwardFlops(frame, node);
      }
      if (absl::StartsWith(frame.op(node), "_scaled_dot_product")) {
        return AttentionFlops(frame, node, /*backward=*/true);
      }
      return 0;
    default:
      return 0;
  }
}

Cost CostOf(const Frame& frame, int node) {
  Cost cost;
  uint64_t largest = 0, made = 0;
  const auto& overwrites = frame.graph().nodes[node].overwrites;
  for (const Frame::Operand& operand : frame.operands(node)) {
    const uint64_t bytes = DistinctBytes(*operand.view);
    largest = std::max(largest, static_cast<uint64_t>(Elements(operand.view)));
    if (operand.written) made += bytes;
    if (!absl::c_binary_search(overwrites, operand.view->slot)) {
      cost.read_bytes += bytes;
    }
  }
  for (const Frame::Output& output : frame.outputs(node)) {
    if (output.view == nullptr) continue;
    largest = std::max(largest, static_cast<uint64_t>(Elements(output.view)));
  }
  for (const srg::Result& result : frame.graph().nodes[node].results) {
    const auto* const view = std::get_if<srg::TensorView>(&result);
    if (view != nullptr) made += static_cast<uint64_t>(Bytes(view));
  }
  cost.written_bytes = made;
  if (TakesRows(frame, node) && !frame.operands(node).empty()) {
    const uint64_t table = DistinctBytes(*frame.operands(node)[0].view);
    cost.read_bytes += std::min(table, made);
    cost.read_bytes -= table;
  }
  const uint64_t products = ProductFlops(frame, node);
  if (products > 0) {
    cost.flops = products;
  } else if (frame.op_class(node) == OpClass::kRecurrent) {
    cost.flops = RecurrentFlops(frame, node);
  } else {
    cost.flops = PerElement(frame.op_class(node)) * largest;
  }
  return cost;
}

}  // namespace djinn::semantics
