#include "gpu_worker/device/cpu/packed_weights.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

constexpr int64_t kSide = 64;
constexpr uint64_t kBytes = kSide * kSide * sizeof(float);

// Has so many bytes, and counts what is reserved.
class FakeSpareMemory final : public SpareMemory {
 public:
  explicit FakeSpareMemory(uint64_t limit) : limit_(limit) {}

  std::shared_ptr<void> Reserve(const std::string& tenant,
                                uint64_t bytes) override {
    tenants.push_back(tenant);
    if (*used_ + bytes > limit_) return nullptr;
    *used_ += bytes;
    return std::shared_ptr<void>(
        used_.get(), [used = used_, bytes](void*) { *used -= bytes; });
  }

  uint64_t used() const { return *used_; }
  std::vector<std::string> tenants;

 private:
  const uint64_t limit_;
  const std::shared_ptr<uint64_t> used_ = std::make_shared<uint64_t>(0);
};

std::shared_ptr<TorchBuffer> MakeBuffer(uint64_t bytes = kBytes) {
  return std::make_shared<TorchBuffer>(ZeroedStorage(bytes));
}

class PackedWeightsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (BestPackedKernel() == nullptr) GTEST_SKIP() << "no packed kernel here";
  }

  static MatrixLayout Layout() { return {0, kSide, kSide, 1, kSide}; }

  std::shared_ptr<const PackedMatrix> Offer(
      const TorchBuffer& buffer, const MatrixLayout& layout = Layout(),
      int64_t rows = PackedWeights::kRows) {
    return weights_.Offer(buffer, layout, rows, "tenant");
  }

  // Offers until there is a form, and returns it; null when there is none after
  // `most` offers.
  std::shared_ptr<const PackedMatrix> OfferUntilPacked(
      const TorchBuffer& buffer, const MatrixLayout& layout = Layout(),
      int64_t most = 10 * PackedWeights::kManyUses) {
    for (int64_t i = 0; i < most; ++i) {
      auto packed = Offer(buffer, layout);
      if (packed != nullptr) return packed;
    }
    return nullptr;
  }

  static void Use(const PackedMatrix& packed) {
    const std::vector<float> row(kSide);
    std::vector<float> result(kSide);
    packed.Multiply(row.data(), kSide, 1, nullptr, SumOrder(), result.data());
  }

  PackedWeights weights_{BestPackedKernel(), 10 * kBytes};
};

TEST_F(PackedWeightsTest, WithoutAKernelOrMemoryItIsOff) {
  EXPECT_FALSE(PackedWeights(nullptr, kBytes).enabled());
  EXPECT_FALSE(PackedWeights(BestPackedKernel(), 0).enabled());
  EXPECT_TRUE(weights_.enabled());
}

TEST_F(PackedWeightsTest, ManyRowsOrManyUsesMakeAForm) {
  const auto rows = MakeBuffer(), uses = MakeBuffer();
  for (int64_t i = 1; i < PackedWeights::kUses; ++i) {
    EXPECT_EQ(Offer(*rows), nullptr);
  }
  EXPECT_NE(Offer(*rows), nullptr);
  for (int64_t i = 1; i < PackedWeights::kManyUses; ++i) {
    EXPECT_EQ(Offer(*uses, Layout(), 1), nullptr);
  }
  EXPECT_NE(Offer(*uses, Layout(), 1), nullptr);
  EXPECT_EQ(weights_.stats().finished, 2u);
  EXPECT_EQ(weights_.stats().bytes, 2 * kBytes);
}

TEST_F(PackedWeightsTest, LargeWeightsArePackedInPieces) {
  PackedWeights weights(BestPackedKernel(), uint64_t{1} << 30);
  constexpr int64_t kPieces = 4;
  const MatrixLayout layout{
      0, 1024,
      static_cast<int64_t>(kPieces * PackedWeights::kBytesPerUse /
                           (1024 * sizeof(float))),
      1, 1024};
  const auto buffer = MakeBuffer(kPieces * PackedWeights::kBytesPerUse);
  for (int64_t i = 1; i < PackedWeights::kUses + kPieces - 1; ++i) {
    ASSERT_EQ(weights.Offer(*buffer, layout, 512, "tenant"), nullptr) << i;
  }
  EXPECT_NE(weights.Offer(*buffer, layout, 512, "tenant"), nullptr);
}

// A model's weights all fall due in the same run.
TEST_F(PackedWeightsTest, PackingKeepsStepWithTheWork) {
  PackedWeights weights(BestPackedKernel(), uint64_t{1} << 30);
  constexpr int64_t kWide = 512;
  const MatrixLayout layout{0, kWide, kWide, 1, kWide};
  constexpr int kWeights = 8;
  std::vector<std::shared_ptr<TorchBuffer>> buffers;
  for (int i = 0; i < kWeights; ++i) {
    buffers.push_back(MakeBuffer(kWide * kWide * sizeof(float)));
  }
  uint64_t before = 0;
  int rounds = 0;
  for (; before < kWeights; ++rounds) {
    ASSERT_LT(rounds, 1000);
    for (const auto& buffer : buffers) {
      weights.Offer(*buffer, layout, 1, "tenant");
    }
    const uint64_t finished = weights.stats().finished;
    // Two at first: what came before counts.
    ASSERT_LE(finished - before, before == 0 ? 2u : 1u);
    before = finished;
  }
  constexpr int64_t kRoundsPerWeight =
      PackedWeights::kRowsPerByte / PackedWeights::kFewRows / kWeights;
  EXPECT_GE(rounds, (kWeights - 3) * kRoundsPerWeight);
}

TEST_F(PackedWeightsTest, AFormBelongsToOneViewOfOneBuffer) {
  const auto buffer = MakeBuffer(), other = MakeBuffer();
  ASSERT_NE(OfferUntilPacked(*buffer), nullptr);
  EXPECT_EQ(Offer(*other), nullptr);
  MatrixLayout moved = Layout(), transposed = Layout(), narrow = Layout();
  moved.offset = 1;
  --moved.depth;
  std::swap(transposed.depth_stride, transposed.width_stride);
  --narrow.width;
  for (const MatrixLayout& layout : {moved, transposed, narrow}) {
    EXPECT_EQ(Offer(*buffer, layout), nullptr);
  }
  EXPECT_NE(Offer(*buffer), nullptr);
}

TEST_F(PackedWeightsTest, AWriteDropsAllFormsAndTeachesPatience) {
  const auto buffer = MakeBuffer();
  MatrixLayout narrow = Layout();
  --narrow.width;
  ASSERT_NE(OfferUntilPacked(*buffer), nullptr);
  ASSERT_NE(OfferUntilPacked(*buffer, narrow), nullptr);
  buffer->WillBeWritten();
  EXPECT_EQ(weights_.stats().bytes, 0u);
  for (int64_t i = 1; i < PackedWeights::kSetback * PackedWeights::kUses; ++i) {
    ASSERT_EQ(Offer(*buffer), nullptr);
  }
  EXPECT_NE(Offer(*buffer), nullptr);
}

TEST_F(PackedWeightsTest, AWeightWrittenBetweenUsesIsNeverPacked) {
  const auto buffer = MakeBuffer();
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(Offer(*buffer), nullptr);
    buffer->WillBeWritten();
  }
}

TEST_F(PackedWeightsTest, AFormGoesWithItsBuffer) {
  auto buffer = MakeBuffer();
  auto packed = OfferUntilPacked(*buffer);
  ASSERT_NE(packed, nullptr);
  packed.reset();
  buffer.reset();
  EXPECT_EQ(weights_.stats().bytes, 0u);
}

TEST_F(PackedWeightsTest, BuffersMayOutliveThePacking) {
  const auto buffer = MakeBuffer();
  std::shared_ptr<const PackedMatrix> packed;
  {
    PackedWeights weights(BestPackedKernel(), kBytes);
    for (int i = 0; packed == nullptr; ++i) {
      packed = weights.Offer(*buffer, Layout(), 512, "tenant");
      ASSERT_LT(i, 100);
    }
  }
  Use(*packed);
}

TEST_F(PackedWeightsTest, AFormThatNobodyUsesIsDropped) {
  const auto buffer = MakeBuffer();
  auto packed = OfferUntilPacked(*buffer);
  ASSERT_NE(packed, nullptr);
  for (int64_t i = 0; i < 3 * PackedWeights::kOffers; ++i) {
    if (i % 2 == 1) Use(*packed);
    ASSERT_EQ(Offer(*buffer), packed);
  }
  for (int64_t i = 0; i < PackedWeights::kOffers; ++i) {
    ASSERT_EQ(Offer(*buffer), packed);
  }
  EXPECT_EQ(Offer(*buffer), nullptr);
  packed.reset();
  EXPECT_EQ(weights_.stats().bytes, 0u);
}

TEST_F(PackedWeightsTest, SpareMemoryIsReservedAndReturned) {
  FakeSpareMemory spare(2 * kBytes);
  weights_.SetSpareMemory(&spare);
  auto first = MakeBuffer(), second = MakeBuffer();
  ASSERT_NE(OfferUntilPacked(*first), nullptr);
  EXPECT_EQ(spare.used(), kBytes);
  ASSERT_NE(OfferUntilPacked(*second), nullptr);
  EXPECT_EQ(spare.used(), 2 * kBytes);
  EXPECT_EQ(spare.tenants, (std::vector<std::string>{"tenant", "tenant"}));
  first.reset();
  EXPECT_EQ(spare.used(), kBytes);
  weights_.SetSpareMemory(nullptr);
  EXPECT_EQ(spare.used(), 0u);
  EXPECT_EQ(Offer(*second), nullptr);
}

TEST_F(PackedWeightsTest, WithoutSpareMemoryNothingIsPacked) {
  FakeSpareMemory spare(kBytes - 1);
  weights_.SetSpareMemory(&spare);
  const auto buffer = MakeBuffer();
  EXPECT_EQ(OfferUntilPacked(*buffer, Layout(), 10000), nullptr);
  EXPECT_EQ(weights_.stats().bytes, 0u);
  // It does not ask all the time.
  EXPECT_LT(spare.tenants.size(), 10u);
}

TEST_F(PackedWeightsTest, UnderPressureTheOldestGoFirstAndThoseInUseStay) {
  const auto first = MakeBuffer(), second = MakeBuffer(), third = MakeBuffer();
  auto packed = OfferUntilPacked(*first);
  ASSERT_NE(packed, nullptr);
  ASSERT_NE(OfferUntilPacked(*second), nullptr);
  ASSERT_NE(OfferUntilPacked(*third), nullptr);
  EXPECT_EQ(weights_.Release(1), kBytes);
  EXPECT_EQ(weights_.stats().released, 1u);
  EXPECT_EQ(Offer(*first), packed);
  EXPECT_EQ(Offer(*second), nullptr);
  EXPECT_NE(Offer(*third), nullptr);
  EXPECT_EQ(weights_.Release(UINT64_MAX), kBytes);
  Use(*packed);
  packed.reset();
  EXPECT_EQ(weights_.Release(UINT64_MAX), kBytes);
  EXPECT_EQ(weights_.stats().bytes, 0u);
}

TEST_F(PackedWeightsTest, AtTheLimitOnlyColderFormsGiveWay) {
  PackedWeights weights(BestPackedKernel(), 2 * kBytes);
  std::vector<std::shared_ptr<TorchBuffer>> buffers;
  for (int i = 0; i < 3; ++i) buffers.push_back(MakeBuffer());
  const auto offer = [&](int i) {
    return weights.Offer(*buffers[i], Layout(), 512, "tenant");
  };
  // Three weights in turn: the two that were first keep their forms.
  int packed[3] = {};
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 3; ++i) {
      if (const auto form = offer(i)) {
        Use(*form);
        ++packed[i];
      }
    }
  }
  EXPECT_GT(packed[0], 10);
  EXPECT_GT(packed[1], 10);
  EXPECT_EQ(packed[2], 0);
  EXPECT_EQ(weights.stats().bytes, 2 * kBytes);
  // Nobody uses the first any more.
  bool moved = false;
  for (int round = 0; round < 2000 && !moved; ++round) {
    for (int i = 1; i < 3; ++i) {
      if (const auto form = offer(i)) {
        Use(*form);
        moved = i == 2;
      }
    }
  }
  EXPECT_TRUE(moved);
  EXPECT_EQ(weights.stats().bytes, 2 * kBytes);
}

TEST_F(PackedWeightsTest, OneBufferHasABoundedNumberOfForms) {
  PackedWeights weights(BestPackedKernel(), uint64_t{1} << 30);
  const auto buffer = MakeBuffer();
  int packed = 0;
  for (int64_t depth = 1; depth <= kSide; ++depth) {
    for (int64_t width = 1; width <= 4; ++width) {
      for (int i = 0; i < 20; ++i) {
        packed += weights.Offer(*buffer, {0, depth, width, kSide, 1}, 512,
                                "tenant") != nullptr;
        if (packed > 0 && i == 3) break;
      }
    }
  }
  EXPECT_LE(weights.stats().finished, 64u);
  EXPECT_GT(weights.stats().finished, 32u);
}

}  // namespace
}  // namespace djinn::worker
