#include "gpu_worker/device/torch/guards/gpu_allow_list.h"

#include <set>
#include <string>

#include "ATen/core/dispatch/Dispatcher.h"
#include "absl/strings/match.h"
#include "common/base/error.h"
#include "common/torch/allow_list.h"
#include "gpu_worker/device/torch/guards/index_table.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

const c10::FunctionSchema& Schema(const std::string& op,
                                  const std::string& overload = "") {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow(("aten::" + op).c_str(), overload.c_str())
      .schema();
}

TEST(GpuAllowListTest, OperatorThatTrustsItsOperandsIsRefused) {
  for (const char* const op :
       {"_embedding_bag_backward", "_embedding_bag_dense_backward",
        "_embedding_bag_per_sample_weights_backward", "_ctc_loss_backward",
        "_flash_attention_forward", "_flash_attention_backward",
        "_efficient_attention_forward", "_jagged_to_padded_dense_forward",
        "_grouped_mm", "_pad_packed_sequence", "lu_unpack",
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_efficient_attention"}) {
    const absl::Status status = CheckAllowedOnGpu(Schema(op));
    EXPECT_EQ(ErrorReason(status), "OPERATOR_REFUSED") << op;
  }
  EXPECT_FALSE(CheckAllowedOnGpu(Schema("lstm", "data")).ok());
}

TEST(GpuAllowListTest, OperatorThatProgramsNeedIsAllowed) {
  for (const char* const op :
       {"_softmax", "_log_softmax_backward_data", "_to_copy", "_unsafe_view",
        "_native_batch_norm_legit_no_training", "_embedding_bag",
        "scaled_dot_product_attention", "embedding", "multinomial",
        "_safe_softmax", "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_flash_attention_for_cpu_backward",
        "_native_multi_head_attention", "_transformer_encoder_layer_fwd",
        "_weight_norm_interface_backward", "_cdist_backward", "_pdist_backward",
        "_fused_adamw_", "_fused_sgd"}) {
    EXPECT_TRUE(CheckAllowedOnGpu(Schema(op)).ok()) << op;
  }
  EXPECT_TRUE(CheckAllowedOnGpu(Schema("_foreach_add_", "List")).ok());
  EXPECT_TRUE(CheckAllowedOnGpu(Schema("lstm", "input")).ok());
  EXPECT_TRUE(CheckAllowedOnGpu(Schema("_index_put_impl_")).ok());
}

// Judges by the argument's name, because schemas do not say what a tensor
// holds.
bool SoundsLikeIndices(absl::string_view argument) {
  for (const absl::string_view part :
       {"index", "indices", "indexes", "offset", "offs", "bag", "pivots",
        "length", "seq", "batch_sizes", "repeats", "sorter", "block_table",
        "page_table", "permutation", "segment", "max_ids", "idx"}) {
    if (absl::StrContains(argument, part)) return true;
  }
  return argument == "target" || argument == "targets";
}

// Lists arguments as "operator/argument", grouped by the reason why they need
// no rule.
const std::set<std::string>& Exempt() {
  static const auto* const kExempt = new std::set<std::string>{
      // The operator computes with the numbers.
      "mse_loss/target", "mse_loss_backward/target", "soft_margin_loss/target",
      "soft_margin_loss_backward/target", "huber_loss/target",
      "huber_loss_backward/target", "smooth_l1_loss/target",
      "smooth_l1_loss_backward/target", "margin_ranking_loss/target",
      "cosine_embedding_loss/target", "hinge_embedding_loss/target",
      "l1_loss/target", "kl_div/target", "poisson_nll_loss/target",
      "binary_cross_entropy_with_logits/target",
      "binary_cross_entropy_backward/target",
      // The operator compares other values with the numbers.
      "searchsorted/sorted_sequence",
      // The operator checks the values on the host.
      "searchsorted/sorter",
      // The operator takes the values only from the host.
      "tensor_split/tensor_indices_or_sections",
      // The tensors hold any numbers.
      "pad_sequence/sequences"};
  return *kExempt;
}

TEST(GpuAllowListTest, IndicesAreLookedAtOrTheirOperatorIsRefused) {
  std::set<std::string> seen;
  for (const c10::OperatorName& name :
       c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op.has_value()) continue;
    const c10::FunctionSchema& schema = op->schema();
    if (!CheckAllowed(schema).ok() || !CheckAllowedOnGpu(schema).ok()) continue;
    const std::vector<IndexArgument> looked_at = IndexArgumentsOf(schema);
    for (size_t i = 0; i < schema.arguments().size(); ++i) {
      const c10::Argument& argument = schema.arguments()[i];
      if (!absl::StrContains(argument.real_type()->str(), "Tensor") ||
          !SoundsLikeIndices(argument.name()) || argument.is_out()) {
        continue;
      }
      bool found = false;
      for (const IndexArgument& one : looked_at) {
        found = found || one.argument == i;
      }
      if (found) continue;
      std::string key = schema.name().substr(6);
      if (key.back() == '_') key.pop_back();
      key += "/" + argument.name();
      seen.insert(key);
      EXPECT_TRUE(Exempt().count(key) > 0) << c10::toString(schema);
    }
  }
  for (const std::string& key : Exempt()) {
    EXPECT_TRUE(seen.count(key) > 0) << key << " needs no exemption";
  }
}

}  // namespace
}  // namespace djinn::worker
