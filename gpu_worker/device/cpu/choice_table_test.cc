#include "gpu_worker/device/cpu/choice_table.h"

#include <memory>
#include <vector>

#include "ATen/core/dispatch/Dispatcher.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

const c10::FunctionSchema& Schema(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").schema();
}

CallTemplate CallOn(std::vector<int64_t> sizes, uint32_t slot = 0) {
  Operand operand;
  operand.view.slot = slot;
  operand.view.data_type = srg::DataType::kFloat32;
  operand.view.strides.resize(sizes.size());
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    operand.view.strides[d] = stride;
    if (d > 0) stride *= sizes[d];  // the last may be more than fits
  }
  operand.view.sizes.assign(sizes.begin(), sizes.end());
  CallTemplate call;
  call.places.push_back({.argument = 0, .source = TensorSource(operand)});
  return call;
}

TEST(ChoiceTableTest, CallsThatLookAlikeShareTheirChoices) {
  ChoiceTable table;
  const auto choices = table.Find(Schema("aten::mm"), CallOn({5, 70}));
  EXPECT_EQ(table.Find(Schema("aten::mm"), CallOn({8, 128}, /*slot=*/3)),
            choices);
  EXPECT_NE(table.Find(Schema("aten::mm"), CallOn({9, 70})), choices);
  EXPECT_NE(table.Find(Schema("aten::mm"), CallOn({5, 70, 1})), choices);
  EXPECT_NE(table.Find(Schema("aten::bmm"), CallOn({5, 70})), choices);
}

TEST(ChoiceTableTest, AllThreadsMustGainAQuarter) {
  EXPECT_GT(Choices::Cost(0, 800), Choices::Cost(Choices::kOneThread, 1000));
  EXPECT_LT(Choices::Cost(0, 740), Choices::Cost(Choices::kOneThread, 1000));
  EXPECT_GT(Choices::Cost(Choices::kPacked, 800),
            Choices::Cost(Choices::kPacked | Choices::kOneThread, 1000));
}

TEST(ChoiceTableTest, ForgottenOnesDoNotPileUp) {
  ChoiceTable table;
  for (int i = 0; i < 10000; ++i) {
    table.Find(Schema("aten::mm"), CallOn(std::vector<int64_t>(i % 100, 2)));
    table.Find(Schema("aten::mm"),
               CallOn({int64_t{1} << (i % 20), int64_t{1} << (i / 20 % 20),
                       int64_t{1} << (i / 400 % 20)}));
  }
  EXPECT_LT(table.size(), 2000u);
}

}  // namespace
}  // namespace djinn::worker
