#include "client_lib/session/model/repeatable.h"

#include <cstdint>
#include <vector>

#include "client_lib/session/model/operator_table.h"
#include "client_lib/session/testing/calls.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

uint32_t Op(const char* name, const char* overload = "") {
  return OperatorTable::Global().Add({name, overload, 1});
}

v1::DeviceSpeed Speed() {
  v1::DeviceSpeed speed;
  speed.set_flops_per_second(1000);
  speed.set_bytes_per_second(100);
  speed.set_seconds_per_call(0.5);
  return speed;
}

// Builds calls on contiguous float32 tensors.
class CallOf {
 public:
  explicit CallOf(const char* name) { call_.Begin(Op(name)); }
  CallOf& Takes(const std::vector<int64_t>& sizes,
                const std::vector<int64_t>& strides) {
    call_.AddTensor(View(sizes, strides, kReads));
    return *this;
  }
  CallOf& Makes(const std::vector<int64_t>& sizes,
                const std::vector<int64_t>& strides) {
    call_.AddResult(View(sizes, strides, kCreates));
    return *this;
  }
  double Seconds() const { return SecondsOf(call_, Speed()); }

 private:
  Operand View(const std::vector<int64_t>& sizes,
               const std::vector<int64_t>& strides, uint8_t access) {
    Operand operand;
    storages_.emplace_back(new RemoteStorage(/*id=*/0, nullptr, 1 << 20));
    operand.storage = storages_.back().get();
    operand.access = access;
    operand.data_type = srg::DataType::kFloat32;
    operand.sizes = sizes;
    operand.strides = strides;
    return operand;
  }

  std::vector<StoragePtr> storages_;
  Call call_;
};

TEST(RepeatableTest, OperatorsByNameWhateverTheirOverload) {
  const uint32_t mm = Op("aten::mm"), rand = Op("aten::rand");
  EXPECT_TRUE(IsRepeatable(mm));
  EXPECT_TRUE(IsRepeatable(Op("aten::add_", "Tensor")));
  EXPECT_TRUE(IsRepeatable(Op("aten::exp")));
  EXPECT_FALSE(IsRepeatable(rand));
  EXPECT_FALSE(IsRepeatable(Op("aten::dropout")));
  // The operator adds in an unspecified order.
  EXPECT_FALSE(IsRepeatable(Op("aten::index_add_")));
  EXPECT_FALSE(IsRepeatable(Op("other::mm")));
  EXPECT_TRUE(IsRepeatable(mm));
  EXPECT_FALSE(IsRepeatable(rand));
}

TEST(RepeatableTest, TheLongerOfComputingAndMovingBytes) {
  // 24,000 operations take 24 s, 20,920 bytes 209.2 s.
  EXPECT_DOUBLE_EQ(CallOf("aten::mm")
                       .Takes({3, 400}, {400, 1})
                       .Takes({400, 10}, {10, 1})
                       .Makes({3, 10}, {10, 1})
                       .Seconds(),
                   (4 * (1200 + 4000 + 30)) / 100. + 0.5);
  // The second operand is the left one.
  EXPECT_DOUBLE_EQ(CallOf("aten::addmm")
                       .Takes({1000}, {1})
                       .Takes({1000, 1000}, {0, 0})
                       .Takes({1000, 1000}, {0, 0})
                       .Makes({1000, 1000}, {1000, 1})
                       .Seconds(),
                   2e9 / 1000 + 0.5);
  // Counts each element once, however large the tensor that it is expanded to.
  EXPECT_DOUBLE_EQ(CallOf("aten::add")
                       .Takes({10, 10}, {0, 1})
                       .Takes({10, 10}, {1, 0})
                       .Makes({10, 10}, {10, 1})
                       .Seconds(),
                   4 * (10 + 10 + 100) / 100. + 0.5);
  // The product of two vectors.
  EXPECT_DOUBLE_EQ(CallOf("aten::dot")
                       .Takes({1000}, {0})
                       .Takes({1000}, {0})
                       .Makes({}, {})
                       .Seconds(),
                   2. * 1000 / 1000 + 0.5);
}

TEST(RepeatableTest, InPlaceIsAsLargeAsWhatItChanges) {
  const int64_t sizes[] = {1000, 1000}, strides[] = {0, 0};
  const StoragePtr storage(new RemoteStorage(/*id=*/0, nullptr, 1 << 20));
  Operand operand;
  operand.storage = storage.get();
  operand.data_type = srg::DataType::kFloat32;
  operand.sizes = sizes;
  operand.strides = strides;
  Call call;
  call.Begin(Op("aten::addmm_"));
  operand.access = kWrites;
  call.AddTensor(operand);
  operand.access = kReads;
  call.AddTensor(operand);
  call.AddTensor(operand);
  EXPECT_DOUBLE_EQ(SecondsOf(call, Speed()), 2e9 / 1000 + 0.5);
}

}  // namespace
}  // namespace djinn
