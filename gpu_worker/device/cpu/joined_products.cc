#include "gpu_worker/device/cpu/joined_products.h"

#include <bit>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/addmm.h"
#include "ATen/ops/from_blob.h"
#include "ATen/ops/mm.h"
#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "c10/core/InferenceMode.h"
#include "gpu_worker/device/cpu/thread_scope.h"
#include "gpu_worker/device/torch/torch_buffer.h"
#include "gpu_worker/device/torch/torch_error.h"

namespace djinn::worker {
namespace {

using Operands = PackedCall::Operands;

// What a thread keeps of each copy from one call to the next, in elements.
constexpr size_t kKeptElements = 1 << 20;

bool SameBias(const float* a, const float* b, int64_t width) {
  if (a == nullptr || b == nullptr) return a == b;
  // Small tensors are each session's own, whatever they hold.
  return a == b ||
         std::memcmp(a, b, static_cast<size_t>(width) * sizeof(float)) == 0;
}

// Everybody's rows, one after the other.
struct Product {
  MatrixLayout layout;
  const TorchBuffer* weight = nullptr;
  const float* bias = nullptr;
  std::vector<float> rows;
  int64_t row_count = 0;
  std::vector<float> result;

  void Add(const Operands& operands, int64_t count) {
    const auto bytes = static_cast<size_t>(layout.depth) * sizeof(float);
    for (int64_t row = 0; row < count; ++row) {
      std::memcpy(rows.data() + (row_count + row) * layout.depth,
                  operands.rows + row * operands.row_stride, bytes);
    }
    row_count += count;
  }

  void Trim() {
    for (std::vector<float>* const copy : {&rows, &result}) {
      if (copy->capacity() > kKeptElements) *copy = {};
    }
  }

  void Multiply(const PackedMatrix& packed) {
    packed.Multiply(rows.data(), layout.depth, row_count, bias, SumOrder(),
                    result.data());
  }

  void MultiplyPlainly() {
    const at::TensorOptions floats(at::kFloat);
    const at::Tensor a =
        at::from_blob(rows.data(), {row_count, layout.depth}, floats);
    const at::Tensor b =
        at::from_blob(reinterpret_cast<float*>(weight->data()) + layout.offset,
                      {layout.depth, layout.width},
                      {layout.depth_stride, layout.width_stride}, floats);
    at::Tensor out =
        at::from_blob(result.data(), {row_count, layout.width}, floats);
    if (bias == nullptr) {
      at::mm_out(out, a, b);
      return;
    }
    at::addmm_out(
        out, at::from_blob(const_cast<float*>(bias), {layout.width}, floats), a,
        b);
  }
};

using Part = JoinedProducts::Part;

// Puts the rows together of those whose bias is the first one's.
std::vector<const Part*> Gather(absl::Span<const Part> parts,
                                Product* product) {
  std::vector<const Part*> joined;
  int64_t rows = 0;
  for (const Part& part : parts) rows += part.call->row_count();
  product->row_count = 0;
  product->rows.resize(static_cast<size_t>(rows * product->layout.depth));
  for (const Part& part : parts) {
    const std::optional<Operands> operands =
        part.call->FindOperands(part.joined->input->slots);
    if (!operands.has_value() || part.call->weight() != product->layout) {
      continue;
    }
    if (joined.empty()) product->bias = operands->bias;
    if (!SameBias(product->bias, operands->bias, product->layout.width)) {
      continue;
    }
    product->Add(*operands, part.call->row_count());
    joined.push_back(&part);
  }
  product->result.resize(
      static_cast<size_t>(product->row_count * product->layout.width));
  return joined;
}

// Each one's part of the result, with room for it where it goes.
std::vector<NodeResult> ResultsOf(absl::Span<const Part* const> joined,
                                  const Product& product) {
  std::vector<NodeResult> results;
  results.reserve(joined.size());
  const float* next = product.result.data();
  for (const Part* const part : joined) {
    const PackedCall& call = *part->call;
    c10::Storage storage = UninitialisedStorage(call.result_bytes());
    std::memcpy(storage.mutable_data(), next, call.result_bytes());
    next += call.row_count() * product.layout.width;
    results.push_back(call.ResultIn(std::move(storage)));
    part->joined->results->reserve(part->joined->results->size() + 1);
  }
  return results;
}

}  // namespace

bool JoinedProducts::Gains(const PackedCall& call) {
  const MatrixLayout& layout = call.weight();
  return call.row_count() <= kMaxRows &&
         layout.depth * layout.width >= kMinElements &&
         layout.depth + layout.width <= kMaxCopied / call.row_count();
}

RowProduct JoinedProducts::ProductOf(uint32_t node, const PackedCall& call) {
  const MatrixLayout& layout = call.weight();
  return {
      node, call.weight_slot(), call.row_count(),
      absl::HashOf(layout.offset, layout.depth, layout.width,
                   layout.depth_stride, layout.width_stride, call.has_bias())};
}

std::shared_ptr<Choices> JoinedProducts::ChoicesFor(const MatrixLayout& layout,
                                                    int64_t rows) {
  const Looks looks(layout.depth, layout.width,
                    std::bit_width(static_cast<uint64_t>(rows - 1)));
  MutexLock lock(&mu_);
  if (choices_.size() >= kMaxLooks) choices_.clear();
  std::shared_ptr<Choices>& choices = choices_[looks];
  if (choices == nullptr) {
    const auto& [depth, width, row_bits] = looks;
    choices = std::make_shared<Choices>(
        absl::StrCat("joined ", depth, " ", width, " ", row_bits), learnt_);
  }
  return choices;
}

void JoinedProducts::Execute(absl::Span<const Part> parts) {
  CountThreads();
  thread_local Product product;
  const PackedCall& first = *parts.front().call;
  product.layout = first.weight();
  product.weight = first.FindWeight(parts.front().joined->input->slots);
  if (product.weight == nullptr) return;
  std::vector<const Part*> joined;
  const absl::Status status = CatchTorch("OPERATOR_FAILED", [&] {
    joined = Gather(parts, &product);
    if (joined.size() < 2) return absl::OkStatus();
    const c10::InferenceMode inference;
    std::shared_ptr<const PackedMatrix> packed;
    if (weights_->enabled()) {
      packed =
          weights_->Offer(*product.weight, product.layout, product.row_count,
                          *joined.front()->joined->input->tenant);
    }
    const std::shared_ptr<Choices> choices =
        ChoicesFor(product.layout, product.row_count);
    const auto multiply = [&](auto* choice) {
      const MeasuredTurn turn = choice->Next();
      const ThreadScope threads(tiers_.thread_trials &&
                                (turn.way & Choices::kOneThread) != 0);
      const absl::Duration start =
          turn.measured ? clock_.Monotonic() : absl::ZeroDuration();
      if ((turn.way & Choices::kPacked) != 0) {
        product.Multiply(*packed);
      } else {
        product.MultiplyPlainly();
      }
      if (!turn.measured) return;
      const auto took = static_cast<uint64_t>(
          absl::ToInt64Nanoseconds(clock_.Monotonic() - start));
      choice->Took(turn.way, Choices::Cost(turn.way, took));
      choices->NoteMeasured();
    };
    if (packed != nullptr) {
      multiply(&choices->with_packed);
    } else {
      multiply(&choices->plain);
    }
    std::vector<NodeResult> results = ResultsOf(joined, product);
    // Nothing throws from here on: all have their results, or nobody has.
    for (size_t i = 0; i < joined.size(); ++i) {
      joined[i]->joined->results->push_back(std::move(results[i]));
    }
    return absl::OkStatus();
  });
  product.Trim();
  // Otherwise each is carried out by itself, and says what is wrong.
  if (!status.ok() || joined.size() < 2) return;
  for (const Part* part : joined) part->joined->done = true;
}

}  // namespace djinn::worker
