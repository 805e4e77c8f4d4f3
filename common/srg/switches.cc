#include "common/srg/switches.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "djinn/v1/switches.pb.h"

namespace djinn::srg {
namespace {

struct Field {
  const char* name;
  Switches::Products products;
  v1::Float32Precision (v1::Switches::*get)() const;
  void (v1::Switches::*set)(v1::Float32Precision);
};

constexpr Field kPrecisions[] = {
    {"mkldnn_matmul", Switches::kMkldnnMatmul, &v1::Switches::mkldnn_matmul,
     &v1::Switches::set_mkldnn_matmul},
    {"mkldnn_conv", Switches::kMkldnnConv, &v1::Switches::mkldnn_conv,
     &v1::Switches::set_mkldnn_conv},
    {"mkldnn_rnn", Switches::kMkldnnRnn, &v1::Switches::mkldnn_rnn,
     &v1::Switches::set_mkldnn_rnn},
    {"cuda_matmul", Switches::kCudaMatmul, &v1::Switches::cuda_matmul,
     &v1::Switches::set_cuda_matmul},
    {"cuda_conv", Switches::kCudaConv, &v1::Switches::cuda_conv,
     &v1::Switches::set_cuda_conv},
    {"cuda_rnn", Switches::kCudaRnn, &v1::Switches::cuda_rnn,
     &v1::Switches::set_cuda_rnn},
};

absl::Status Invalid(const char* field, int value) {
  return absl::InvalidArgumentError(absl::StrCat("switch ", field, " ", value));
}

}  // namespace

void ToProto(const Switches& switches, v1::Switches* message) {
  message->set_flush_denormal(switches.flush_denormal);
  message->set_mkldnn_disabled(switches.mkldnn_disabled);
  message->set_mkldnn_deterministic(switches.mkldnn_deterministic);
  message->set_nnpack_disabled(switches.nnpack_disabled);
  message->set_cpu_fp16_reduction(switches.cpu_fp16_reduction);
  message->set_cudnn_disabled(switches.cudnn_disabled);
  message->set_cudnn_deterministic(switches.cudnn_deterministic);
  message->set_cublas_fp16_accumulation(switches.cublas_fp16_accumulation);
  message->set_cublas_fp16_sums(
      static_cast<v1::ReducedSums>(switches.cublas_fp16_sums));
  message->set_cublas_bf16_sums(
      static_cast<v1::ReducedSums>(switches.cublas_bf16_sums));
  for (const Field& field : kPrecisions) {
    (message->*field.set)(
        static_cast<v1::Float32Precision>(switches.precisions[field.products]));
  }
}

absl::StatusOr<Switches> FromProto(const v1::Switches& message) {
  Switches switches;
  switches.flush_denormal = message.flush_denormal();
  switches.mkldnn_disabled = message.mkldnn_disabled();
  switches.mkldnn_deterministic = message.mkldnn_deterministic();
  switches.nnpack_disabled = message.nnpack_disabled();
  switches.cpu_fp16_reduction = message.cpu_fp16_reduction();
  switches.cudnn_disabled = message.cudnn_disabled();
  switches.cudnn_deterministic = message.cudnn_deterministic();
  switches.cublas_fp16_accumulation = message.cublas_fp16_accumulation();
  if (!v1::ReducedSums_IsValid(message.cublas_fp16_sums())) {
    return Invalid("cublas_fp16_sums", message.cublas_fp16_sums());
  }
  if (!v1::ReducedSums_IsValid(message.cublas_bf16_sums())) {
    return Invalid("cublas_bf16_sums", message.cublas_bf16_sums());
  }
  switches.cublas_fp16_sums =
      static_cast<ReducedSums>(message.cublas_fp16_sums());
  switches.cublas_bf16_sums =
      static_cast<ReducedSums>(message.cublas_bf16_sums());
  for (const Field& field : kPrecisions) {
    const v1::Float32Precision value = (message.*field.get)();
    if (!v1::Float32Precision_IsValid(value) ||
        (value == v1::FLOAT32_PRECISION_BF16 &&
         field.products >= Switches::kCudaMatmul)) {
      return Invalid(field.name, value);
    }
    switches.precisions[field.products] = static_cast<Float32Precision>(value);
  }
  return switches;
}

}  // namespace djinn::srg
