// Tests that a tenant's operators never see what another tenant's tensors held.
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/_ctc_loss.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/zeros.h"
#include "c10/core/InferenceMode.h"
#include "c10/util/Exception.h"
#include "common/base/error.h"
#include "gpu_worker/device/cpu/memory_limit.h"
#include "gpu_worker/device/cpu/program_tester.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using Ints = std::vector<int64_t>;

// The address sanitizer's build leaves all tensors to its own malloc.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kKeepsBlocks = false;
#else
constexpr bool kKeepsBlocks = true;
#endif
constexpr float kSecret = 12345.5f;
const std::string kVictim = "victim";
const std::string kAttacker = "attacker";

class TensorOwnerTest : public testing::Test {
 protected:
  // Leaves the secret in free memory of tensors of this size.
  static void FreeSecrets(int64_t elements, const std::string& tenant) {
    const c10::InferenceMode inference;
    const TensorOwner owner(&tenant);
    std::vector<at::Tensor> tensors;
    for (int i = 0; i < 8; ++i) {
      tensors.push_back(at::full({elements}, kSecret));
    }
  }

  static int64_t Secrets(const at::Tensor& tensor) {
    const c10::InferenceMode inference;
    return tensor.eq(kSecret).sum().item<int64_t>();
  }

  // Runs the call for the tenant and returns the number of secrets in its
  // operands and results.
  int64_t SecretsAfter(EncodedCall call, const std::string& tenant) {
    auto program = tester_.library()->Compile(call.graph);
    EXPECT_TRUE(program.ok()) << program.status();
    if (!program.ok()) return -1;
    NodeInput input = call.input();
    input.tenant = &tenant;
    std::vector<NodeResult> results;
    EXPECT_EQ((*program)->Execute(0, input, &results), absl::OkStatus());
    int64_t secrets = 0;
    for (const NodeResult& result : results) {
      secrets += Secrets(ProgramTester::TensorOf(result));
    }
    for (const std::shared_ptr<Buffer>& buffer : call.slots) {
      if (buffer == nullptr || buffer->size_bytes() % sizeof(float) != 0) {
        continue;
      }
      const std::string bytes = ProgramTester::BytesOf(*buffer);
      const auto* const floats = reinterpret_cast<const float*>(bytes.data());
      for (size_t i = 0; i < bytes.size() / sizeof(float); ++i) {
        secrets += floats[i] == kSecret ? 1 : 0;
      }
    }
    return secrets;
  }

  // Expects that the call, which leaves tensors of so many elements unwritten,
  // shows the attacker nothing of the victim's.
  void ExpectNoSecrets(const EncodedCall& call, int64_t elements) {
    FreeSecrets(elements, kVictim);
    EXPECT_EQ(SecretsAfter(call, kAttacker), 0) << elements;
    if (!kKeepsBlocks || elements < 20'000) return;
    // Without the protection between tenants, the call does show secrets.
    SetOneTenant(true);
    FreeSecrets(elements, kVictim);
    EXPECT_GT(SecretsAfter(call, kAttacker), 0) << elements;
    SetOneTenant(false);
  }

  ProgramTester tester_;
};

TEST_F(TensorOwnerTest, NewTensorsOfAnotherTenantAreZero) {
  const c10::InferenceMode inference;
  for (const int64_t elements : {100, 10'000, 100'000, 1'000'000}) {
    FreeSecrets(elements, kVictim);
    const TensorOwner owner(&kAttacker);
    for (int i = 0; i < 16; ++i) {
      EXPECT_EQ(at::empty({elements}).count_nonzero().item<int64_t>(), 0)
          << elements;
    }
  }
}

TEST_F(TensorOwnerTest, NewTensorsOfNoTenantAreZero) {
  const c10::InferenceMode inference;
  for (const int64_t elements : {100, 100'000}) {
    FreeSecrets(elements, kVictim);
    EXPECT_EQ(Secrets(at::empty({elements})), 0) << elements;
  }
}

TEST_F(TensorOwnerTest, MemoryThatNobodyOwnedIsClearedForATenant) {
  const c10::InferenceMode inference;
  for (const int64_t elements : {100, 100'000}) {
    {
      const OverwritesTensors overwrites;
      const TensorOwner owner(&kAttacker);
      at::full({elements}, kSecret);
    }
    const TensorOwner owner(&kAttacker);
    EXPECT_EQ(Secrets(at::empty({elements})), 0) << elements;
  }
}

TEST_F(TensorOwnerTest, ATenantsOwnLargeMemoryIsNotCleared) {
  if (!kKeepsBlocks) GTEST_SKIP();
  const c10::InferenceMode inference;
  FreeSecrets(100'000, kVictim);
  const TensorOwner owner(&kVictim);
  EXPECT_EQ(Secrets(at::empty({100'000})), 100'000);
}

TEST_F(TensorOwnerTest, NothingIsClearedForOneTenant) {
  if (!kKeepsBlocks) GTEST_SKIP();
  const c10::InferenceMode inference;
  SetOneTenant(true);
  FreeSecrets(100'000, kVictim);
  const TensorOwner owner(&kAttacker);
  EXPECT_EQ(Secrets(at::empty({100'000})), 100'000);
  SetOneTenant(false);
}

TEST_F(TensorOwnerTest, ACallTakesNoMoreThanItMay) {
  // The sum of a product needs the product, which is no result.
  const at::Tensor x = at::ones({1'000'000});
  const EncodedCall call =
      tester_.Encode("aten::cosine_similarity", "", {x, x, 0}, {at::ones({})});
  const auto program = tester_.library()->Compile(call.graph);
  ASSERT_TRUE(program.ok()) << program.status();
  NodeInput input = call.input();
  input.tenant = &kVictim;
  input.most_bytes = 1'000'000;
  std::vector<NodeResult> results;
  const absl::Status refused = (*program)->Execute(0, input, &results);
  EXPECT_EQ(ErrorReason(refused), "OUT_OF_MEMORY") << refused;
  EXPECT_EQ(refused.message(),
            "out of memory: the call asked for 4000000 bytes, more than its "
            "session and tenant may still take");
  EXPECT_TRUE(results.empty());
  input.most_bytes = 100'000'000;
  EXPECT_TRUE((*program)->Execute(0, input, &results).ok());
  // The limit was the call's.
  const TensorOwner owner(&kVictim);
  EXPECT_EQ(at::empty({10'000'000}).numel(), 10'000'000);
}

TEST_F(TensorOwnerTest, ACallMayTakeAgainWhatItFreed) {
  const c10::InferenceMode inference;
  const TensorOwner owner(&kVictim, 10'000'000);
  for (int i = 0; i < 100; ++i) at::empty({1'000'000});
  EXPECT_THROW(at::empty({10'000'000}), c10::OutOfMemoryError);
}

TEST_F(TensorOwnerTest, RowsThatAnOperatorLeavesUnwrittenShowNothing) {
  // The first samples end after one step, so most rows are unwritten.
  for (const auto& [steps, target] :
       {std::pair<int64_t, int64_t>{8, 3}, {100, 60}}) {
    at::Tensor log_probs, targets, loss, alpha;
    {
      const c10::InferenceMode inference;
      log_probs = at::randn({steps, 4, 5}).log_softmax(2);
      targets = at::ones({4, target}, at::kLong);
      std::tie(loss, alpha) = at::_ctc_loss(
          log_probs, targets, Ints{1, 1, 1, steps}, Ints{1, 1, 1, target});
    }
    const EncodedCall call = tester_.Encode(
        "aten::_ctc_loss", "",
        {log_probs, targets, Ints{1, 1, 1, steps}, Ints{1, 1, 1, target}},
        {loss, alpha});
    ExpectNoSecrets(call, alpha.numel());
  }
}

TEST_F(TensorOwnerTest, OutOperandsThatAnOperatorLeavesUnwrittenShowNothing) {
  for (const int64_t elements : {1'000, 100'000}) {
    at::Tensor out;
    {
      const c10::InferenceMode inference;
      out = at::zeros({elements});
    }
    ExpectNoSecrets(tester_.Encode("aten::empty_strided", "out",
                                   {Ints{elements}, Ints{1}, out}, {}),
                    elements);
    ExpectNoSecrets(tester_.Encode("aten::empty_permuted", "out",
                                   {Ints{elements}, Ints{0}, out}, {}),
                    elements);
  }
}

}  // namespace
}  // namespace djinn::worker
