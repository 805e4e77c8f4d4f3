// Appending in place: where it happens, where it must not, and that nobody sees
// a difference.
#include "gpu_worker/device/cpu/cache_append.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/scaled_dot_product_attention.h"
#include "c10/core/InferenceMode.h"
#include "gpu_worker/device/cpu/cpu_device.h"
#include "gpu_worker/device/cpu/program_tester.h"
#include "gpu_worker/device/torch/torch_buffer.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

constexpr int64_t kHeads = 4, kWidth = 64, kLength = 100;

const TorchBuffer& AsTorch(const Buffer& buffer) {
  return static_cast<const TorchBuffer&>(buffer);
}

// The device's count of that name.
uint64_t CountOf(Device* device, const std::string& name) {
  for (const auto& [counted, count] : device->Counts()) {
    if (counted == name) return count;
  }
  ADD_FAILURE() << name;
  return 0;
}

class FullMemory final : public SpareMemory {
 public:
  std::shared_ptr<void> Reserve(const std::string&, uint64_t) override {
    return nullptr;
  }
};

class CacheAppendTest : public testing::Test {
 protected:
  static at::Tensor Random(int64_t length) {
    return at::randn({1, kHeads, length, kWidth});
  }

  // A call of cat() on the buffer, which holds `cache`, and `added`.
  EncodedCall Encode(const at::Tensor& cache, const at::Tensor& added,
                     const at::Tensor& result, std::shared_ptr<Buffer> buffer) {
    const c10::List<at::Tensor> tensors({cache, added});
    EncodedCall call = tester_.Encode("aten::cat", "", {tensors, 2}, {result});
    if (buffer != nullptr) call.slots[0] = std::move(buffer);
    return call;
  }

  // Appends to the cache, which the program has as `expected`, as the last who
  // names it.
  void Append(int64_t count, bool fast = true, bool ends = true) {
    const c10::InferenceMode inference;
    const at::Tensor added = Random(count);
    const at::Tensor next = at::cat({expected_, added}, 2);
    EncodedCall call = Encode(expected_, added, next, std::move(buffer_));
    auto program = tester_.library()->Compile(call.structure).value();
    NodeInput input = call.input();
    input.fast = fast;
    const std::pair<uint32_t, uint32_t> end{0, 0};
    if (ends) input.ends = absl::MakeConstSpan(&end, 1);
    std::vector<NodeResult> results;
    const absl::Status status = program->Execute(0, input, &results);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(results.size(), 1u);
    srg::TensorView view;
    ASSERT_TRUE(DescribeTensor(next, &view));
    EXPECT_EQ(results[0].view, view);
    EXPECT_FALSE(results[0].aliased_slot.has_value());
    buffer_ = std::move(results[0].buffer);
    EXPECT_EQ(buffer_->size_bytes(), next.nbytes());
    expected_ = next;
    // Plans of other lengths share what they learn while one of them lives.
    programs_.push_back(std::move(program));
  }

  // What the cache holds, wherever it lies.
  at::Tensor Held() const {
    srg::TensorView view;
    EXPECT_TRUE(DescribeTensor(expected_, &view));
    const c10::InferenceMode inference;
    const auto blocks = AsTorch(*buffer_).Apart();
    return blocks.has_value() ? MakeTensor(view, *blocks)
                              : MakeTensor(view, AsTorch(*buffer_).storage());
  }
  bool apart() const { return AsTorch(*buffer_).apart(); }
  uint64_t in_place() { return CountOf(tester_.device(), "appends_in_place"); }
  uint64_t lost() { return CountOf(tester_.device(), "append_rooms_lost"); }

  ProgramTester tester_;
  at::Tensor expected_ = Random(kLength);
  std::shared_ptr<Buffer> buffer_;
  std::vector<std::unique_ptr<CompiledProgram>> programs_;
};

TEST_F(CacheAppendTest, AppendsInPlaceFromTheThirdTimeOn) {
  Append(1);
  EXPECT_FALSE(apart()) << "one is no loop";
  Append(1);
  EXPECT_TRUE(apart());
  EXPECT_EQ(in_place(), 0u);
  for (int i = 0; i < 80; ++i) {
    const char* const before =
        static_cast<const char*>(AsTorch(*buffer_).Apart()->storage.data());
    const uint64_t count = in_place();
    Append(1 + i % 2, /*fast=*/i % 3 != 0);
    ASSERT_TRUE(apart());
    EXPECT_TRUE(SameBits(Held(), expected_)) << i;
    EXPECT_EQ(in_place() > count,
              AsTorch(*buffer_).Apart()->storage.data() == before);
  }
  // Of 80, some found no room left.
  EXPECT_GE(in_place(), 74u);
  EXPECT_LT(in_place(), 80u);
  EXPECT_EQ(lost(), 0u);
}

TEST_F(CacheAppendTest, LeavesAloneWhatIsStillNamedOrShared) {
  for (int i = 0; i < 5; ++i) Append(1);
  const uint64_t count = in_place();
  const at::Tensor before = expected_;
  Append(1, /*fast=*/true, /*ends=*/false);
  EXPECT_EQ(in_place(), count);
  EXPECT_TRUE(SameBits(Held(), expected_));
  for (int i = 0; i < 5; ++i) Append(1);
  EXPECT_GT(in_place(), count);
  // A reader, or another session, holds it.
  const std::shared_ptr<Buffer> held = buffer_;
  const at::Tensor then = expected_;
  const uint64_t still = in_place();
  Append(1);
  EXPECT_EQ(in_place(), still);
  EXPECT_TRUE(SameBits(Held(), expected_));
  EXPECT_EQ(ProgramTester::BytesOf(*held),
            std::string(static_cast<const char*>(then.const_data_ptr()),
                        then.nbytes()));
}

TEST_F(CacheAppendTest, WhoReadsBytesGetsThemTogether) {
  const auto apart_again = [&] {
    for (int i = 0; i < 6; ++i) Append(1);
    ASSERT_TRUE(apart());
  };
  const auto bytes = [&] {
    return std::string(static_cast<const char*>(expected_.const_data_ptr()),
                       expected_.nbytes());
  };
  Device* const device = tester_.device();
  apart_again();
  EXPECT_EQ(device->HostBytes(buffer_)->bytes, bytes());
  EXPECT_FALSE(apart());
  EXPECT_EQ(lost(), 1u);

  apart_again();
  EXPECT_EQ(device->HostRange(buffer_, 1000, 70000)->bytes,
            bytes().substr(1000, 70000));

  apart_again();
  const auto clone = device->Clone(*buffer_, buffer_->size_bytes() + 8);
  EXPECT_EQ(ProgramTester::BytesOf(**clone), bytes() + std::string(8, '\0'));

  apart_again();
  srg::TensorView view;
  ASSERT_TRUE(DescribeTensor(expected_, &view));
  EXPECT_EQ(device->ReadView(buffer_, view)->bytes, bytes());
  apart_again();
  ASSERT_TRUE(DescribeTensor(expected_.transpose(1, 3), &view));
  const at::Tensor turned = expected_.transpose(1, 3).contiguous();
  EXPECT_EQ(device->ReadView(buffer_, view)->bytes,
            std::string(static_cast<const char*>(turned.const_data_ptr()),
                        turned.nbytes()));

  apart_again();
  std::string written = bytes();
  written.replace(5000, 4, "abcd");
  ASSERT_TRUE(device->Write(buffer_.get(), 5000, "abcd").ok());
  EXPECT_EQ(ProgramTester::BytesOf(*buffer_), written);
}

TEST_F(CacheAppendTest, AttentionTakesBlocksAndGivesTheSameBits) {
  for (int i = 0; i < 4; ++i) Append(1);
  ASSERT_TRUE(apart());
  for (const bool fast : {false, true}) {
    const c10::InferenceMode inference;
    const at::Tensor query = Random(1);
    const at::Tensor expected =
        at::scaled_dot_product_attention(query, expected_, expected_);
    EncodedCall call =
        tester_.Encode("aten::scaled_dot_product_attention", "",
                       {query, expected_, expected_}, {expected});
    call.slots[1] = buffer_;
    NodeInput input = call.input();
    input.fast = fast;
    std::vector<NodeResult> results;
    const auto program = tester_.library()->Compile(call.structure).value();
    ASSERT_TRUE(program->Execute(0, input, &results).ok());
    EXPECT_TRUE(SameBits(ProgramTester::TensorOf(results[0]), expected));
    EXPECT_TRUE(apart());
  }
}

TEST_F(CacheAppendTest, GivesUpWhereOthersNeedTheBytesTogether) {
  for (int i = 0; i < 20; ++i) {
    Append(1);
    ASSERT_FALSE(tester_.device()->HostBytes(buffer_)->bytes.empty());
  }
  EXPECT_EQ(lost(), 5u);
  Append(1);
  EXPECT_FALSE(apart());
}

TEST(AppendRecord, TriesAnewAfterARest) {
  AppendRecord record;
  int made = 0;
  for (int i = 0; i < 1000; ++i) {
    if (!record.IsDue()) continue;
    ++made;
    record.LostRoom();
  }
  EXPECT_EQ(made, 5 * 4);
  for (int i = 0; i < 300; ++i) record.AppendedInPlace();
  for (int i = 0; i < 60; ++i) {
    EXPECT_TRUE(record.IsDue());
    record.LostRoom();
  }
}

TEST_F(CacheAppendTest, DoesWithoutWhereThereIsNoSpareMemory) {
  FullMemory full;
  tester_.device()->SetSpareMemory(&full);
  for (int i = 0; i < 10; ++i) Append(1);
  tester_.device()->SetSpareMemory(nullptr);
  EXPECT_FALSE(apart());
  EXPECT_TRUE(SameBits(Held(), expected_));
}

TEST_F(CacheAppendTest, IsForGrowingCachesOnly) {
  const auto matches = [&](std::vector<at::Tensor> tensors, int64_t dimension) {
    const c10::InferenceMode inference;
    const at::Tensor result = at::cat(tensors, dimension);
    EncodedCall call = tester_.Encode(
        "aten::cat", "", {c10::List<at::Tensor>(tensors), dimension}, {result});
    static_cast<TorchBuffer&>(*call.slots[0]).SetAppended();
    const auto program = tester_.library()->Compile(call.structure).value();
    NodeInput input = call.input();
    const std::pair<uint32_t, uint32_t> end{0, 0};
    input.ends = absl::MakeConstSpan(&end, 1);
    std::vector<NodeResult> results;
    EXPECT_TRUE(program->Execute(0, input, &results).ok());
    const bool apart = AsTorch(*results[0].buffer).apart();
    EXPECT_TRUE(SameBits(ProgramTester::TensorOf(results[0]), result));
    return apart;
  };
  const at::Tensor cache = Random(kLength);
  EXPECT_TRUE(matches({cache, Random(1)}, 2));
  EXPECT_TRUE(matches({cache, Random(1)}, -2));
  EXPECT_TRUE(matches({cache, Random(1), Random(2)}, 2));
  EXPECT_TRUE(matches({cache, Random(2).narrow(2, 1, 1)}, 2));
  EXPECT_TRUE(matches({at::randn({400, 64}), at::randn({1, 64})}, 0));
  EXPECT_FALSE(matches({cache, Random(kLength)}, 2)) << "more than a little";
  EXPECT_FALSE(matches({at::randn({1, 2, 10, 8}), at::randn({1, 2, 1, 8})}, 2))
      << "small";
  EXPECT_FALSE(matches({cache.narrow(2, 0, kLength - 1), Random(1)}, 2))
      << "part of a buffer";
  EXPECT_FALSE(
      matches({cache.transpose(1, 2), at::randn({1, 1, kHeads, 64})}, 1))
      << "otherwise dense";
  EXPECT_FALSE(matches({cache, cache.narrow(2, 0, 1)}, 2)) << "with itself";
  EXPECT_FALSE(
      matches({cache, at::randn({1, kHeads, 1, kWidth}, at::kDouble)}, 2));
}

TEST(CacheAppendSwitch, Off) {
  CpuDeviceOptions options;
  options.memory_bytes = uint64_t{1} << 30;
  options.threads = 2;
  options.append_in_place = false;
  const auto device = MakeCpuDevice(options).value();
  EXPECT_EQ(CountOf(device.get(), "appends_in_place"), 0u);
}

// Every view of bytes that lie apart has the elements it would have if they lay
// together, or is none.
TEST(PitchedViews, HaveTheSameElements) {
  std::mt19937 random(7);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  const c10::InferenceMode inference;
  int defined = 0;
  for (int round = 0; round < 20000; ++round) {
    const int64_t blocks = pick(1, 5), block = pick(1, 12), room = pick(0, 5);
    const c10::Storage together =
        UninitialisedStorage(static_cast<uint64_t>(blocks * block * 4));
    const c10::Storage apart = UninitialisedStorage(
        static_cast<uint64_t>(blocks * (block + room) * 4));
    auto* const from = static_cast<int32_t*>(together.mutable_data());
    auto* const to = static_cast<int32_t*>(apart.mutable_data());
    std::fill(to, to + blocks * (block + room), -1);
    for (int64_t i = 0; i < blocks * block; ++i) {
      from[i] = static_cast<int32_t>(i);
      to[i / block * (block + room) + i % block] = from[i];
    }
    srg::TensorView view;
    view.data_type = srg::DataType::kInt32;
    for (int64_t rank = pick(0, 4); rank > 0; --rank) {
      view.sizes.push_back(pick(1, 5));
      view.strides.push_back(pick(0, 2) == 0 ? block * pick(0, 2)
                                             : pick(0, block + 2));
    }
    view.storage_offset = pick(0, blocks * block - 1);
    if (srg::ExtentBytes(view).value() > together.nbytes()) continue;
    const at::Tensor over = MakeTensor(
        view, TorchBuffer::Blocks{apart,
                                  {static_cast<uint64_t>(blocks),
                                   static_cast<uint64_t>(block * 4),
                                   static_cast<uint64_t>((block + room) * 4)}});
    if (!over.defined()) continue;
    ++defined;
    EXPECT_TRUE(SameBits(over, MakeTensor(view, together)))
        << srg::DescribeView(view) << " of blocks of " << block;
  }
  EXPECT_GT(defined, 4000);
}

}  // namespace
}  // namespace djinn::worker
