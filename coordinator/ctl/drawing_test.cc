#include "coordinator/ctl/drawing.h"

#include "common/base/error.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace djinn::ctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Returns a graph of two nodes, the first of which reads a weight.
v1::GraphInfo TwoNodes() {
  v1::GraphInfo info;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(
        fingerprint: "0123456789abcdef"
        nodes {
          operator_name: "aten::linear"
          operands { slot: 0 data_type: DATA_TYPE_FLOAT32 sizes: 2 sizes: 4 }
          operands { slot: 1 data_type: DATA_TYPE_FLOAT32 sizes: 4 sizes: 4 }
        }
        nodes {
          operator_name: "own::<\"odd\">&\\name"
          operands { slot: 2 data_type: DATA_TYPE_FLOAT32 sizes: 2 sizes: 4 }
        }
        meaning {
          nodes {
            phase: PHASE_LLM_DECODE
            role: "mlp.up"
            cost { flops: 64 }
          }
          nodes { phase: PHASE_TRAINING }
          slots { residency: RESIDENCY_EPHEMERAL_ACTIVATION size_bytes: 32 }
          slots { residency: RESIDENCY_PERSISTENT_WEIGHT size_bytes: 64 }
          slots { residency: RESIDENCY_EPHEMERAL_ACTIVATION size_bytes: 32 }
          edges {
            producer: 0
            consumer: 1
            slot: 2
            data_type: DATA_TYPE_FLOAT32
            sizes: 2
            sizes: 4
            criticality: 1
          }
        }
      )pb",
      &info));
  return info;
}

TEST(DrawingTest, DotHasNodesWeightsAndEdges) {
  const std::string dot = ToDot(TwoNodes()).value();
  EXPECT_THAT(dot, HasSubstr("n0 [label=\"0 linear\\nmlp.up\\n64 flop, 0B\", "
                             "fillcolor=\"#fff2cc\""));
  EXPECT_THAT(dot, HasSubstr("s1 [shape=ellipse, label=\"#1 "
                             "persistent_weight\\n64B\""));
  EXPECT_THAT(dot, HasSubstr("s1 -> n0"));
  EXPECT_THAT(dot, Not(HasSubstr("s0 ->")));
  EXPECT_THAT(dot,
              HasSubstr("n0 -> n1 [label=\"float32[2,4]\", penwidth=2.50]"));
  // The name is quoted.
  EXPECT_THAT(dot, HasSubstr("own::<\\\"odd\\\">&\\\\name"));
}

TEST(DrawingTest, LargeGraphIsRefused) {
  v1::GraphInfo info;
  for (int i = 0; i <= kMaxDrawnNodes; ++i) {
    info.add_nodes();
    info.mutable_meaning()->add_nodes();
  }
  const absl::Status refused = ToDot(info).status();
  EXPECT_EQ(ErrorReason(refused), "DRAWING_TOO_LARGE");
  EXPECT_THAT(refused.message(), HasSubstr("2001 nodes"));
}

TEST(DrawingTest, InconsistentGraphIsRefused) {
  v1::GraphInfo edge = TwoNodes(), slot = TwoNodes(), node = TwoNodes();
  edge.mutable_meaning()->mutable_edges(0)->set_consumer(9);
  slot.mutable_nodes(0)->mutable_operands(0)->set_slot(9);
  node.mutable_meaning()->mutable_nodes()->RemoveLast();
  for (const auto& info : {edge, slot, node}) {
    EXPECT_EQ(ErrorReason(ToDot(info).status()), "GRAPH_MALFORMED");
  }
}

}  // namespace
}  // namespace djinn::ctl
