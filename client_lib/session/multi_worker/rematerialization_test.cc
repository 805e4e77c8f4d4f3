#include "client_lib/session/multi_worker/rematerialization.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "client_lib/session/model/operator_table.h"
#include "client_lib/session/testing/calls.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using RematerializationPtr = std::shared_ptr<const Rematerialization>;

// Registers a new operator at each call.
uint32_t Op(const char* name, const char* overload = "") {
  return OperatorTable::Global().Add({name, overload, 1});
}

StoragePtr Storage(uint64_t size_bytes) {
  return StoragePtr(new RemoteStorage(/*id=*/0, nullptr, size_bytes));
}

// Describes a storage that nothing has touched.
RematerializationPtr Zeros(uint64_t size_bytes) {
  auto rematerialization = std::make_shared<Rematerialization>();
  rematerialization->size_bytes = size_bytes;
  return rematerialization;
}

// Describes a call on bytes. `before` has an entry for each touch, which is
// null for a storage that the call creates.
RematerializationPtr Of(const char* name, const std::vector<Use>& uses,
                        std::vector<RematerializationPtr> before) {
  return RematerializationOf(MakeCallOf(Op(name), uses), std::move(before));
}

// Describes a call without operands.
RematerializationPtr Made(const char* name, const StoragePtr& value) {
  return Of(name, {{value, kCreates}}, {nullptr});
}

// Describes a call that computes elements of `type` from `before`, or from
// nothing.
RematerializationPtr OfType(const char* name, srg::DataType type,
                            RematerializationPtr before) {
  const StoragePtr operand = Storage(64), result = Storage(64);
  const int64_t size = 64 / srg::ElementSize(type);
  const int64_t stride = 1;
  Operand tensor;
  tensor.data_type = type;
  tensor.sizes = absl::MakeConstSpan(&size, 1);
  tensor.strides = absl::MakeConstSpan(&stride, 1);
  Call call;
  call.Begin(Op(name));
  std::vector<RematerializationPtr> all;
  if (before != nullptr) {
    tensor.storage = operand.get();
    tensor.access = kReads;
    call.AddTensor(tensor);
    all.push_back(std::move(before));
  }
  tensor.storage = result.get();
  tensor.access = kCreates;
  call.AddResult(tensor);
  all.push_back(nullptr);
  return RematerializationOf(call, std::move(all));
}

TEST(RematerializationTest, OperatorsAreCheapByNameWhateverTheirOverload) {
  const uint32_t full = Op("aten::full"), mm = Op("aten::mm");
  EXPECT_TRUE(IsCheap(full));
  EXPECT_TRUE(IsCheap(Op("aten::masked_fill_", "Scalar")));
  EXPECT_FALSE(IsCheap(mm));
  EXPECT_FALSE(IsCheap(Op("aten::rand")));
  EXPECT_FALSE(IsCheap(Op("other::zeros")));
  // The cached answer is the same.
  EXPECT_TRUE(IsCheap(full));
  EXPECT_FALSE(IsCheap(mm));
}

TEST(RematerializationTest, CallWithoutOperandsHasARematerialization) {
  const StoragePtr value = Storage(100);
  const uint32_t zeros = Op("aten::zeros");
  const RematerializationPtr rematerialization =
      RematerializationOf(MakeCallOf(zeros, {{value, kCreates}}), {nullptr});
  ASSERT_NE(rematerialization, nullptr);
  EXPECT_EQ(rematerialization->calls, 1u);
  EXPECT_EQ(rematerialization->size_bytes, 100u);
  EXPECT_EQ(rematerialization->bytes, 100u);
  EXPECT_EQ(rematerialization->made, 0u);
  ASSERT_EQ(rematerialization->before.size(), 1u);
  EXPECT_EQ(rematerialization->before[0], nullptr);
  EXPECT_EQ(rematerialization->call.operator_id(), zeros);
  // The description keeps no storage of the program alive.
  EXPECT_FALSE(rematerialization->call.touches()[0].storage);
}

TEST(RematerializationTest,
     CallOfRematerializableOperandsHasARematerialization) {
  const StoragePtr row = Storage(10), mask = Storage(40);
  const RematerializationPtr arange = Made("aten::arange", row);
  const RematerializationPtr compared =
      Of("aten::ge", {{row, kReads}, {mask, kCreates}}, {arange, nullptr});
  ASSERT_NE(compared, nullptr);
  EXPECT_EQ(compared->made, 1u);
  EXPECT_EQ(compared->before[0], arange);
  EXPECT_EQ(compared->calls, 2u);
  EXPECT_EQ(compared->size_bytes, 40u);
  EXPECT_EQ(compared->bytes, 50u);
  const RematerializationPtr changed =
      Of("aten::mul_", {{mask, kWrites}, {row, kReads}}, {compared, arange});
  ASSERT_NE(changed, nullptr);
  EXPECT_EQ(changed->made, 0u);
  EXPECT_EQ(changed->calls, 4u);
  // Zeros that nothing has touched take no call.
  const RematerializationPtr sum = Of(
      "aten::add_", {{mask, kWrites}, {row, kReads}}, {Zeros(40), Zeros(10)});
  ASSERT_NE(sum, nullptr);
  EXPECT_EQ(sum->calls, 1u);
}

TEST(RematerializationTest, ValueOfOtherOperandsHasNoRematerialization) {
  const StoragePtr row = Storage(10), mask = Storage(40);
  EXPECT_EQ(
      Of("aten::ge", {{row, kReads}, {mask, kCreates}}, {nullptr, nullptr}),
      nullptr);
  EXPECT_EQ(Of("aten::mul_", {{mask, kWrites}}, {nullptr}), nullptr);
  EXPECT_EQ(Made("aten::mm", mask), nullptr);
}

TEST(RematerializationTest, OneCallMakesOneKnownValueAndDrawsNothing) {
  const StoragePtr one = Storage(8), other = Storage(8), generator = Storage(8);
  EXPECT_EQ(Of("aten::zeros", {{one, kCreates}, {other, kCreates}},
               {nullptr, nullptr}),
            nullptr);
  EXPECT_EQ(Of("aten::eq", {{one, kReads}}, {Zeros(8)}), nullptr);
  EXPECT_EQ(Of("aten::full", {{generator, kDraws}, {one, kCreates}},
               {Zeros(8), nullptr}),
            nullptr);
  Call call;
  call.Begin(Op("aten::where"));
  call.AddUnknownResult(one.get());
  EXPECT_EQ(RematerializationOf(call, {nullptr}), nullptr);
}

TEST(RematerializationTest, MoreCallsAreNotWorthIt) {
  const StoragePtr value = Storage(8);
  RematerializationPtr rematerialization = Made("aten::zeros", value);
  for (uint32_t calls = 2; calls <= Rematerialization::kMaxCalls; ++calls) {
    rematerialization =
        Of("aten::mul_", {{value, kWrites}}, {rematerialization});
    ASSERT_NE(rematerialization, nullptr);
    EXPECT_EQ(rematerialization->calls, calls);
  }
  EXPECT_EQ(Of("aten::mul_", {{value, kWrites}}, {rematerialization}), nullptr);
}

TEST(RematerializationTest, NorIsMuchMoreMemory) {
  constexpr uint64_t kLarge = 1 << 20;
  const auto from = [](uint64_t size_bytes) {
    const StoragePtr operand = Storage(size_bytes), result = Storage(kLarge);
    return Of("aten::ge", {{operand, kReads}, {result, kCreates}},
              {Made("aten::zeros", operand), nullptr});
  };
  EXPECT_NE(from(3 * kLarge + (64 << 10)), nullptr);
  EXPECT_EQ(from(3 * kLarge + (64 << 10) + 1), nullptr);
  // A small operand is always allowed.
  const StoragePtr operand = Storage(60'000), result = Storage(8);
  EXPECT_NE(Of("aten::ge", {{operand, kReads}, {result, kCreates}},
               {Made("aten::zeros", operand), nullptr}),
            nullptr);
}

TEST(RematerializationTest, RealNumbersAreNotComputedTwice) {
  using srg::DataType;
  for (const char* name : {"aten::arange", "aten::add", "aten::sub"}) {
    EXPECT_EQ(OfType(name, DataType::kFloat32, Zeros(64)), nullptr) << name;
    EXPECT_EQ(OfType(name, DataType::kFloat64, nullptr), nullptr) << name;
    EXPECT_NE(OfType(name, DataType::kInt64, Zeros(64)), nullptr) << name;
    EXPECT_NE(OfType(name, DataType::kBool, nullptr), nullptr) << name;
  }
  // Creations, comparisons and products give the same bits everywhere.
  for (const char* name : {"aten::full", "aten::eq", "aten::mul"}) {
    EXPECT_NE(OfType(name, DataType::kFloat32, Zeros(64)), nullptr) << name;
  }
}

StoragePtr Storage() {
  return StoragePtr(new RemoteStorage(/*id=*/0, nullptr, 8));
}

TEST(HeldValueTest, LastUnpinReleasesAReleasedValue) {
  const StoragePtr storage = Storage();
  HeldValue value(storage.get());
  EXPECT_EQ(value.Pin().get(), storage.get());
  EXPECT_EQ(value.Pin().get(), storage.get());
  EXPECT_FALSE(value.Unpin());
  EXPECT_FALSE(value.Die());
  // No other user can pin it any more.
  EXPECT_FALSE(value.Pin());
  EXPECT_TRUE(value.Unpin());
}

TEST(HeldValueTest, UnpinnedValueDiesAtOnce) {
  const StoragePtr storage = Storage();
  HeldValue value(storage.get());
  ASSERT_TRUE(value.Pin());
  EXPECT_FALSE(value.Unpin());
  EXPECT_TRUE(value.Die());
  EXPECT_FALSE(value.Pin());
}

TEST(HeldValueTest, OverwrittenValueCannotBePinned) {
  const StoragePtr storage = Storage();
  HeldValue value(storage.get());
  value.Leave();
  EXPECT_FALSE(value.Pin());
}

}  // namespace

}  // namespace djinn
