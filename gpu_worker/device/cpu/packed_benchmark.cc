// A product with a packed weight beside PyTorch's own, in turn on several
// weights, as in a model. Arguments: rows, depth, width; all threads.
#include <memory>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/randn.h"
#include "benchmark/benchmark.h"
#include "c10/core/InferenceMode.h"
#include "gpu_worker/device/cpu/packed_kernel.h"
#include "gpu_worker/device/cpu/packed_matrix.h"
#include "gpu_worker/device/torch/torch_buffer.h"

namespace djinn::worker {
namespace {

constexpr size_t kWeights = 16;

struct Operands {
  explicit Operands(const benchmark::State& state)
      : rows(at::randn({state.range(0), state.range(1)})),
        bias(at::randn({state.range(2)})) {
    for (size_t i = 0; i < kWeights; ++i) {
      weights.push_back(at::randn({state.range(2), state.range(1)}));
    }
  }

  const c10::InferenceMode inference;
  at::Tensor rows, bias;
  std::vector<at::Tensor> weights;
};

// Multiply-adds count as two.
void CountFlops(benchmark::State* state) {
  state->counters["FLOPS"] = benchmark::Counter(
      2.0 * static_cast<double>(state->range(0) * state->range(1) *
                                state->range(2)),
      benchmark::Counter::kIsIterationInvariantRate);
}

void BM_Plain(benchmark::State& state) {
  const Operands operands(state);
  size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(at::linear(
        operands.rows, operands.weights[i++ % kWeights], operands.bias));
  }
  CountFlops(&state);
}

void BM_Packed(benchmark::State& state) {
  const PackedKernel* const kernel = BestPackedKernel();
  if (kernel == nullptr) return state.SkipWithError("no packed kernel here");
  const Operands operands(state);
  const int64_t depth = state.range(1), width = state.range(2);
  std::vector<std::unique_ptr<PackedMatrix>> packed;
  for (const at::Tensor& weight : operands.weights) {
    const MatrixLayout layout{0, depth, width, 1, depth};
    packed.push_back(std::make_unique<PackedMatrix>(
        *kernel, layout,
        UninitialisedStorage(PackedMatrix::Bytes(*kernel, layout)), nullptr));
    packed.back()->Pack(weight.const_data_ptr<float>(), UINT64_MAX);
  }
  size_t i = 0;
  for (auto _ : state) {
    const at::Tensor result = at::empty({state.range(0), width});
    packed[i++ % kWeights]->Multiply(
        operands.rows.const_data_ptr<float>(), depth, state.range(0),
        operands.bias.const_data_ptr<float>(), SumOrder(),
        result.mutable_data_ptr<float>());
  }
  CountFlops(&state);
}

void Shapes(benchmark::internal::Benchmark* benchmark) {
  for (const int64_t rows : {1, 8, 32, 128, 256, 1024}) {
    benchmark->Args({rows, 384, 384});
    benchmark->Args({rows, 384, 1536});
    benchmark->Args({rows, 1536, 384});
  }
  benchmark->UseRealTime();
}
BENCHMARK(BM_Plain)->Apply(Shapes);
BENCHMARK(BM_Packed)->Apply(Shapes);

}  // namespace
}  // namespace djinn::worker

BENCHMARK_MAIN();
