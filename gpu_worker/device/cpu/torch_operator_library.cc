#include "gpu_worker/device/cpu/torch_operator_library.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/torch/generator_operators.h"
#include "gpu_worker/device/cpu/cpu_target.h"
#include "gpu_worker/device/cpu/generator_state.h"
#include "gpu_worker/device/cpu/memory_limit.h"
#include "gpu_worker/device/cpu/torch_program.h"
#include "gpu_worker/device/torch/attention_pass.h"
#include "gpu_worker/device/torch/compiler/node_compiler.h"
#include "gpu_worker/device/torch/row_products.h"
#include "gpu_worker/device/torch/torch_error.h"

namespace djinn::worker {

absl::StatusOr<std::unique_ptr<CompiledProgram>> TorchOperatorLibrary::Compile(
    const srg::Graph& graph) {
  DJINN_ASSIGN_OR_RETURN(
      std::vector<TorchCall> plain,
      CompileNodes(graph, custom_, CpuTarget().device(), longest_call_));
  UseWorkersThreads();
  std::vector<std::optional<AttentionStep>> steps(plain.size());
  if (fuse_attention_) {
    steps = AttentionStep::Match(graph, plain, CpuTarget());
  }
  std::vector<CpuCall> calls;
  calls.reserve(plain.size());
  for (size_t node = 0; node < plain.size(); ++node) {
    CpuCall& call = calls.emplace_back(std::move(plain[node]));
    call.attention = std::move(steps[node]);
    call.small = IsSmall(call.op.schema(), graph.nodes[node]);
    call.product = RowsByMatrix::Match(call.op.schema(), call.call);
  }
  return std::make_unique<TorchProgram>(std::move(calls), CpuTarget(),
                                        prepacked_, packed_);
}

void TorchOperatorLibrary::ExecuteJoined(absl::Span<JoinedCall> calls) {
  UseWorkersThreads();
  // The calls are several tenants'. Copies and products write all of their
  // results.
  const OverwritesTensors overwrites;
  std::vector<JoinedRows> joined;
  joined.reserve(calls.size());
  for (JoinedCall& call : calls) {
    const auto& program = static_cast<const TorchProgram&>(*call.program);
    joined.push_back({&*program.call(call.node).product, &call});
  }
  ExecuteJoinedRows(joined, [this](const RowsByMatrix& product,
                                   const NodeInput& input,
                                   const at::Tensor& rows) {
    const at::Tensor result =
        prepacked_->Multiply(product, input, rows, std::nullopt);
    return result.defined() ? result : MultiplyPlainly(product, input, rows);
  });
}

absl::StatusOr<uint64_t> TorchOperatorLibrary::GeneratorBytes() {
  uint64_t bytes = 0;
  DJINN_RETURN_IF_ERROR(CatchTorch("INVALID_GENERATOR", [&] {
    bytes = GeneratorStateBytes();
    return absl::OkStatus();
  }));
  return bytes;
}

absl::StatusOr<std::shared_ptr<Buffer>> TorchOperatorLibrary::SeedGenerator(
    uint64_t seed) {
  std::shared_ptr<Buffer> state;
  DJINN_RETURN_IF_ERROR(CatchTorch("INVALID_GENERATOR", [&] {
    state = SeededState(seed);
    return absl::OkStatus();
  }));
  return state;
}

absl::Status TorchOperatorLibrary::CheckGenerator(absl::string_view state) {
  return CheckCpuGeneratorState(state);
}

}  // namespace djinn::worker
