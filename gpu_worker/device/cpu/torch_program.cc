#include "gpu_worker/device/cpu/torch_program.h"

#include <optional>
#include <utility>
#include <variant>

#include "ATen/Parallel.h"
#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "c10/core/InferenceMode.h"
#include "common/torch/one_thread.h"
#include "common/torch/packed_operators.h"
#include "gpu_worker/device/cpu/memory_limit.h"
#include "gpu_worker/device/torch/guards/library_guards.h"
#include "gpu_worker/device/torch/guards/value_guards.h"
#include "gpu_worker/device/torch/guards/work_limit.h"
#include "gpu_worker/device/torch/switch_scope.h"
#include "gpu_worker/device/torch/torch_error.h"

namespace djinn::worker {
namespace {

// The most multiplications, and the most elements of a tensor, of a small call.
// One core needs about 0.1 ms for either.
constexpr double kSmallProduct = 0x1p21;
constexpr int64_t kSmallElements = 1 << 18;

// The least size of a weight that is worth joining. Caches hold smaller
// weights, which many runs can read at no cost.
constexpr int64_t kLeastJoinedElements = 16384;

// Returns whether several threads of the operator's kernel may write the same
// element.
bool WritesInOrder(const c10::FunctionSchema& schema) {
  static constexpr absl::string_view kNames[] = {
      "aten::index_put", "aten::_index_put_impl", "aten::_unsafe_index_put",
      "aten::put"};
  const absl::string_view name = absl::StripSuffix(schema.name(), "_");
  return absl::c_linear_search(kNames, name);
}

// Returns the switches that calls on a CPU depend on. Programs often set
// others, such as cudnn.deterministic, and then need no turn of their own.
srg::Switches SwitchesOfCpu(srg::Switches switches) {
  switches.cudnn_disabled = false;
  switches.cudnn_deterministic = false;
  switches.cublas_fp16_accumulation = false;
  switches.cublas_fp16_sums = srg::ReducedSums::kDefault;
  switches.cublas_bf16_sums = srg::ReducedSums::kDefault;
  using Products = srg::Switches::Products;
  for (const Products place :
       {Products::kCudaMatmul, Products::kCudaConv, Products::kCudaRnn}) {
    switches.precisions[place] = srg::Float32Precision::kDefault;
  }
  return switches;
}

}  // namespace

bool IsSmall(const c10::FunctionSchema& schema, const srg::Node& node) {
  const auto fits = [](const srg::TensorView& view) {
    return srg::ElementCount(view).value_or(kSmallElements + 1) <=
           kSmallElements;
  };
  for (const srg::Argument& argument : node.arguments) {
    const auto* const view = std::get_if<srg::TensorView>(&argument);
    if (view != nullptr && !fits(*view)) return false;
  }
  for (const srg::Result& result : node.results) {
    const auto* const view = std::get_if<srg::TensorView>(&result);
    if (view != nullptr && !fits(*view)) return false;
  }
  return Multiplications(schema, node) <= kSmallProduct;
}

void UseWorkersThreads() {
  thread_local const bool set = (at::init_num_threads(), true);
  (void)set;
}

CpuCall::CpuCall(TorchCall plain)
    : TorchCall(std::move(plain)),
      guard(MakeValueGuard(op.schema())),
      in_order(WritesInOrder(op.schema())),
      packs(absl::StartsWith(op.schema().name(), kPackedNamespace)) {
  if (guard == nullptr) guard = MakeLibraryGuard(op.schema());
}

TorchProgram::TorchProgram(std::vector<CpuCall> calls,
                           const TorchTarget& target,
                           std::shared_ptr<PrepackedLinear> prepacked,
                           std::shared_ptr<PackedObjects> packed)
    : calls_(std::move(calls)),
      target_(target),
      prepacked_(std::move(prepacked)),
      packed_(std::move(packed)) {
  for (uint32_t i = 0; i < calls_.size(); ++i) {
    const std::optional<RowsByMatrix>& product = calls_[i].product;
    if (product.has_value() && product->GainsByJoining(kLeastJoinedElements)) {
      products_.push_back(product->AsRowProduct(i));
    }
  }
}

absl::Status TorchProgram::Execute(uint32_t node, const NodeInput& input,
                                   std::vector<NodeResult>* results) const {
  if (node >= calls_.size()) return absl::InternalError("no such node");
  UseWorkersThreads();
  const TensorOwner owner(input.tenant, input.most_bytes);
  const CpuCall& call = calls_[node];
  std::optional<OneThread> one;
  if (input.fast ? call.small : call.in_order) one.emplace();
  const SwitchScope switches(SwitchesOfCpu(input.switches));
  if (input.fast && call.attention.has_value()) {
    const std::optional<absl::Status> done =
        call.attention->Run(input, results);
    if (done.has_value()) return *done;
  }
  if (input.fast && call.product.has_value() &&
      ExecutePrepacked(*call.product, input, results)) {
    return absl::OkStatus();
  }
  std::optional<PackedObjects::ForCall> objects;
  if (call.packs) objects.emplace(packed_.get(), input, call.operand_slots);
  return RunCall(call, target_, input, results, call.guard.get());
}

bool TorchProgram::ExecutePrepacked(const RowsByMatrix& product,
                                    const NodeInput& input,
                                    std::vector<NodeResult>* results) const {
  if (SwitchesOfCpu(input.switches) != srg::Switches() ||
      product.row_count() < PrepackedLinear::kLeastRows ||
      !prepacked_->Suits(product)) {
    return false;
  }
  bool done = false;
  // Ignores errors: the plain call then needs no packed copy and reports its
  // own error.
  CatchTorch(kOperatorFailed, [&] {
    const c10::InferenceMode inference;
    const at::Tensor result = prepacked_->Multiply(
        product, input, product.Rows(input.slots), product.Bias(input.slots));
    if (!result.defined()) return absl::OkStatus();
    results->push_back(product.ResultOf(result));
    done = true;
    return absl::OkStatus();
  }).IgnoreError();
  if (done && input.way != nullptr) *input.way = ExecutionPath::kPacked;
  return done;
}

}  // namespace djinn::worker
