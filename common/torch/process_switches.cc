#include "common/torch/process_switches.h"

#include <cstdint>

#include "ATen/Context.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

// Calls a function in each of the calling thread's compute threads. If libtorch
// has no OpenMP, the weak symbol is null.
extern "C" {
__attribute__((weak)) void GOMP_parallel(void (*call)(void*), void* argument,
                                         unsigned int threads,
                                         unsigned int flags);
}

namespace djinn {
namespace {

using at::CuBLASReductionOption;
using srg::Float32Precision;
using srg::ReducedSums;
using srg::Switches;

struct Products {
  Switches::Products products;
  at::Float32Backend backend;
  at::Float32Op op;
  at::Float32Precision initial;  // PyTorch's default
};

constexpr Products kProducts[] = {
    {Switches::kMkldnnMatmul, at::Float32Backend::MKLDNN, at::Float32Op::MATMUL,
     at::Float32Precision::NONE},
    {Switches::kMkldnnConv, at::Float32Backend::MKLDNN, at::Float32Op::CONV,
     at::Float32Precision::NONE},
    {Switches::kMkldnnRnn, at::Float32Backend::MKLDNN, at::Float32Op::RNN,
     at::Float32Precision::NONE},
    {Switches::kCudaMatmul, at::Float32Backend::CUDA, at::Float32Op::MATMUL,
     at::Float32Precision::NONE},
    {Switches::kCudaConv, at::Float32Backend::CUDA, at::Float32Op::CONV,
     at::Float32Precision::TF32},
    {Switches::kCudaRnn, at::Float32Backend::CUDA, at::Float32Op::RNN,
     at::Float32Precision::TF32},
};

Float32Precision FromTorch(at::Float32Precision precision) {
  switch (precision) {
    case at::Float32Precision::NONE:
      return Float32Precision::kNone;
    case at::Float32Precision::IEEE:
      return Float32Precision::kIeee;
    case at::Float32Precision::TF32:
      return Float32Precision::kTf32;
    case at::Float32Precision::BF16:
      return Float32Precision::kBf16;
  }
  return Float32Precision::kNone;
}

at::Float32Precision ToTorch(Float32Precision precision,
                             at::Float32Precision initial) {
  switch (precision) {
    case Float32Precision::kDefault:
      return initial;
    case Float32Precision::kNone:
      return at::Float32Precision::NONE;
    case Float32Precision::kIeee:
      return at::Float32Precision::IEEE;
    case Float32Precision::kTf32:
      return at::Float32Precision::TF32;
    case Float32Precision::kBf16:
      return at::Float32Precision::BF16;
  }
  return initial;
}

ReducedSums FromTorch(CuBLASReductionOption option) {
  switch (option) {
    case CuBLASReductionOption::AllowReducedPrecisionWithSplitK:
      return ReducedSums::kDefault;
    case CuBLASReductionOption::DisallowReducedPrecisionAllowSplitK:
      return ReducedSums::kSplitOnly;
    case CuBLASReductionOption::DisallowReducedPrecisionDisallowSplitK:
      return ReducedSums::kNone;
  }
  return ReducedSums::kDefault;
}

// Returns the argument of set_float32_matmul_precision() that has this effect.
// PyTorch keeps it beside the precisions, does not show it where they disagree,
// and has kernels compare the two.
const char* MatmulPrecision(const Switches& switches) {
  if (switches.precisions[Switches::kCudaMatmul] != Float32Precision::kTf32) {
    return "highest";
  }
  switch (switches.precisions[Switches::kMkldnnMatmul]) {
    case Float32Precision::kTf32:
      return "high";
    case Float32Precision::kBf16:
      return "medium";
    default:
      return "highest";
  }
}

bool FlushesDenormals() {
#if defined(__SSE__)
  return _MM_GET_FLUSH_ZERO_MODE() == _MM_FLUSH_ZERO_ON;
#elif defined(__aarch64__)
  uint64_t control;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  return (control >> 24 & 1) != 0;
#else
  return false;
#endif
}

void WriteFlushDenormal(bool on) {
  const auto set = [](void* value) {
    at::Context::setFlushDenormal(*static_cast<const bool*>(value));
  };
  set(&on);
  if (GOMP_parallel != nullptr) {
    GOMP_parallel(set, &on, /*threads=*/0, /*flags=*/0);
  }
}

}  // namespace

Switches ReadSwitches() {
  const at::Context& context = at::globalContext();
  Switches switches;
  switches.flush_denormal = FlushesDenormals();
  switches.mkldnn_disabled = !context.userEnabledMkldnn();
  switches.mkldnn_deterministic = context.deterministicMkldnn();
  switches.nnpack_disabled = !context.userEnabledNNPACK();
  switches.cpu_fp16_reduction = context.allowFP16ReductionCPU();
  switches.cudnn_disabled = !context.userEnabledCuDNN();
  switches.cudnn_deterministic = context.deterministicCuDNN();
  switches.cublas_fp16_accumulation = context.allowFP16AccumulationCuBLAS();
  switches.cublas_fp16_sums = FromTorch(context.allowFP16ReductionCuBLAS());
  switches.cublas_bf16_sums = FromTorch(context.allowBF16ReductionCuBLAS());
  for (const Products& each : kProducts) {
    const at::Float32Precision precision =
        context.float32Precision(each.backend, each.op);
    switches.precisions[each.products] = precision == each.initial
                                             ? Float32Precision::kDefault
                                             : FromTorch(precision);
  }
  return switches;
}

void WriteSwitches(const Switches& switches) {
  at::Context& context = at::globalContext();
  // Waking the compute threads costs more than a small call.
  if (switches.flush_denormal != FlushesDenormals()) {
    WriteFlushDenormal(switches.flush_denormal);
  }
  context.setUserEnabledMkldnn(!switches.mkldnn_disabled);
  context.setDeterministicMkldnn(switches.mkldnn_deterministic);
  context.setUserEnabledNNPACK(!switches.nnpack_disabled);
  context.setAllowFP16ReductionCPU(switches.cpu_fp16_reduction);
  context.setUserEnabledCuDNN(!switches.cudnn_disabled);
  context.setDeterministicCuDNN(switches.cudnn_deterministic);
  context.setAllowFP16AccumulationCuBLAS(switches.cublas_fp16_accumulation);
  context.setAllowFP16ReductionCuBLAS(
      switches.cublas_fp16_sums == ReducedSums::kDefault,
      switches.cublas_fp16_sums != ReducedSums::kNone);
  context.setAllowBF16ReductionCuBLAS(
      switches.cublas_bf16_sums == ReducedSums::kDefault,
      switches.cublas_bf16_sums != ReducedSums::kNone);
  // Sets the precisions of products, too.
  context.setFloat32MatmulPrecision(MatmulPrecision(switches));
  for (const Products& each : kProducts) {
    context.setFloat32Precision(
        each.backend, each.op,
        ToTorch(switches.precisions[each.products], each.initial));
  }
}

}  // namespace djinn
