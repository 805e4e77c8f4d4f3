#include "common/srg/switches.h"

#include "djinn/v1/switches.pb.h"
#include "gtest/gtest.h"

namespace djinn::srg {
namespace {

TEST(SwitchesTest, DefaultsAreAnEmptyMessage) {
  v1::Switches message;
  ToProto(Switches(), &message);
  EXPECT_EQ(message.ByteSizeLong(), 0u);
  EXPECT_EQ(*FromProto(message), Switches());
}

// Sets one field of the message at a time.
TEST(SwitchesTest, EveryFieldSurvivesTheWire) {
  const auto* const fields = v1::Switches::descriptor();
  const auto* const access = v1::Switches::GetReflection();
  for (int i = 0; i < fields->field_count(); ++i) {
    const auto* const field = fields->field(i);
    SCOPED_TRACE(field->full_name());
    v1::Switches message;
    if (field->enum_type() == nullptr) {
      access->SetBool(&message, field, true);
    } else {
      access->SetEnumValue(&message, field, 2);
    }
    const auto switches = FromProto(message);
    ASSERT_TRUE(switches.ok()) << switches.status();
    EXPECT_NE(*switches, Switches());
    v1::Switches again;
    ToProto(*switches, &again);
    EXPECT_EQ(again.SerializeAsString(), message.SerializeAsString());
  }
}

TEST(SwitchesTest, ValuesThatABackendLacksAreRefusedByName) {
  v1::Switches message;
  message.set_mkldnn_matmul(v1::FLOAT32_PRECISION_BF16);
  EXPECT_TRUE(FromProto(message).ok());
  message.set_cuda_conv(v1::FLOAT32_PRECISION_BF16);
  EXPECT_EQ(FromProto(message).status().message(), "switch cuda_conv 4");
  message.set_cuda_conv(static_cast<v1::Float32Precision>(7));
  EXPECT_EQ(FromProto(message).status().message(), "switch cuda_conv 7");
  message.Clear();
  message.set_cublas_bf16_sums(static_cast<v1::ReducedSums>(3));
  EXPECT_EQ(FromProto(message).status().message(), "switch cublas_bf16_sums 3");
}

}  // namespace
}  // namespace djinn::srg
