#include "absl/strings/escaping.h"
#include "common/base/error.h"
#include "common/srg/canonical.h"
#include "common/srg/graph.h"
#include "common/srg/proto_codec.h"
#include "common/srg/size_hole.h"
#include "common/srg/validate.h"
#include "gtest/gtest.h"

namespace djinn::srg {
namespace {

TensorView View(uint32_t slot, Dimensions sizes, Dimensions strides,
                int64_t offset = 0) {
  return {slot, DataType::kFloat32, std::move(sizes), std::move(strides),
          offset};
}

// y = x + w * float; y.normal_(generator)
Graph Sample() {
  Graph s;
  s.operators = {{"aten::add", "Tensor", 11}, {"aten::normal_", "", 12}};
  s.slots = {{Slot::Kind::kBound},
             {Slot::Kind::kBound},
             {Slot::Kind::kResult},
             {Slot::Kind::kGenerator}};
  Node add;
  add.operator_index = 0;
  add.arguments = {View(0, {2, 3}, {3, 1}), View(1, {3}, {1}), FloatHole{0}};
  add.results = {View(2, {2, 3}, {3, 1})};
  Node normal;
  normal.operator_index = 1;
  normal.arguments = {View(2, {2, 3}, {3, 1}), FloatHole{1}, FloatHole{2},
                      GeneratorSlot{3}};
  normal.writes = {2};
  normal.overwrites = {2};
  s.nodes = {add, normal};
  s.float_hole_count = 3;
  return s;
}

// Has every alternative of every variant once.
Graph Everything() {
  Graph s = Sample();
  s.slots.push_back({Slot::Kind::kCreated, 24});
  s.slots.push_back({Slot::Kind::kResult});
  Node node;
  node.operator_index = 0;
  node.arguments = {
      std::monostate{},
      std::vector<TensorListEntry>{std::monostate{}, View(4, {2}, {1}, 1),
                                   ScalarTensor{0, DataType::kInt64, true}},
      int64_t{-5},
      std::vector<int64_t>{1, -2},
      true,
      std::vector<bool>{true, false},
      std::vector<double>{0.5},
      std::complex<double>(1, -1),
      std::string("mean"),
      ScalarTensor{1, DataType::kFloat64, false},
      WorkerDevice{},
      std::vector<Scalar>{int64_t{1}, true, 2.5, std::complex<double>(0, 1)}};
  node.results = {UndefinedResult{}, UnknownResult{5}};
  node.implicit_generator_slot = 3;
  s.nodes.push_back(node);
  s.scalar_tensor_hole_count = 2;
  return s;
}

// Returns Everything() with `by` added to every integer that may vary.
Graph EverythingGrown(int64_t by) {
  Graph s = Everything();
  int64_t slope = 1;
  ForEachInteger(s, [&](auto& value) { value += slope++ * by; });
  return s;
}

// Returns a hole for Everything(): every integer varies, each by another slope.
SizeHole HoleOfEverything() {
  SizeHole hole;
  ForEachInteger(Everything(), [&](const auto&) {
    hole.integers.push_back(hole.integers.size());
    hole.slopes.push_back(hole.integers.size());
  });
  return hole;
}

std::string ReasonOf(const Graph& s) {
  return ErrorReason(Validate(s, GraphCaps()).status());
}

TEST(ProtoCodecTest, RoundTripsEveryAlternative) {
  const Graph before = Everything();
  ASSERT_TRUE(Validate(before, GraphCaps()).ok())
      << Validate(before, GraphCaps()).status();
  const absl::StatusOr<Graph> after = FromProto(ToProto(before));
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_TRUE(before == *after);
  EXPECT_EQ(CanonicalEncoding(before), CanonicalEncoding(*after));
}

TEST(ProtoCodecTest, RoundTripsASizeHole) {
  Graph before = Everything();
  before.size_hole = {{0, 3, 4, 17}, {1, -64, 8, 1}};
  const v1::Graph message = ToProto(before);
  EXPECT_EQ(message.size_hole().integer_gaps(1), 2u);
  EXPECT_EQ(message.size_hole().integer_gaps(2), 0u);
  EXPECT_EQ(FromProto(message)->size_hole, before.size_hole);
}

TEST(ProtoCodecTest, RefusesPositionsWithoutEnd) {
  v1::Graph message = ToProto(Sample());
  message.mutable_size_hole()->add_integer_gaps(~uint32_t{0});
  message.mutable_size_hole()->add_integer_gaps(0);
  EXPECT_FALSE(FromProto(message).ok());
}

TEST(SizeHoleTest, EveryIntegerGrows) {
  Graph s = Everything();
  s.size_hole = HoleOfEverything();
  // The 26 integers are the offset, sizes and strides of five views, two
  // integers beside each other, one alone, one among scalars, and one created
  // slot.
  EXPECT_EQ(s.size_hole.integers.size(), 26u);
  for (const int64_t size : {0, 1, 1000}) {
    const absl::StatusOr<Graph> grown = AtSize(s, size);
    ASSERT_TRUE(grown.ok()) << grown.status();
    EXPECT_EQ(*grown, EverythingGrown(size)) << size;
  }
}

TEST(SizeHoleTest, OthersStay) {
  Graph s = Sample();
  s.size_hole = {{1}, {5}};
  Graph expected = Sample();
  std::get<TensorView>(expected.nodes[0].arguments[0]).sizes[0] += 5 * 3;
  EXPECT_EQ(*AtSize(s, 3), expected);
}

TEST(SizeHoleTest, RefusesWhatLeavesTheRange) {
  Graph s = Everything();
  s.size_hole = {{1}, {int64_t{1} << 40}};
  EXPECT_TRUE(AtSize(s, 1 << 20).ok());
  for (const int64_t size : {int64_t{1} << 23, int64_t{1} << 40}) {
    EXPECT_EQ(ErrorReason(AtSize(s, size).status()), "MALFORMED_GRAPH");
  }
  // A created slot has no negative size.
  s.size_hole = {{25}, {-1}};
  EXPECT_TRUE(AtSize(s, 24).ok());
  EXPECT_EQ(ErrorReason(AtSize(s, 25).status()), "MALFORMED_GRAPH");
}

TEST(SizeHoleTest, RefusesWhatNamesNoInteger) {
  const auto reason = [](SizeHole hole) {
    Graph s = Everything();
    s.size_hole = std::move(hole);
    return ReasonOf(s);
  };
  EXPECT_EQ(reason({{25}, {1}}), "");
  EXPECT_EQ(reason({{26}, {1}}), "MALFORMED_GRAPH");
  EXPECT_EQ(reason({{3, 3}, {1, 1}}), "MALFORMED_GRAPH");
  EXPECT_EQ(reason({{3, 2}, {1, 1}}), "MALFORMED_GRAPH");
  EXPECT_EQ(reason({{3}, {0}}), "MALFORMED_GRAPH");
  EXPECT_EQ(reason({{3}, {}}), "MALFORMED_GRAPH");
  EXPECT_EQ(reason({{}, {1}}), "MALFORMED_GRAPH");
}

TEST(ProtoCodecTest, RefusesUnsetValues) {
  v1::Graph message = ToProto(Sample());
  message.mutable_nodes(0)->mutable_arguments(1)->Clear();
  EXPECT_EQ(FromProto(message).status().message(),
            "node 0: argument without a value");
  message = ToProto(Sample());
  message.mutable_nodes(1)
      ->mutable_arguments(0)
      ->mutable_tensor()
      ->set_data_type(static_cast<v1::DataType>(99));
  EXPECT_EQ(ErrorReason(FromProto(message).status()), "MALFORMED_GRAPH");
  message = ToProto(Sample());
  message.mutable_slots(0)->set_kind(v1::Slot::KIND_UNSPECIFIED);
  EXPECT_FALSE(FromProto(message).ok());
}

TEST(CanonicalTest, FingerprintIsStable) {
  // A change here breaks every stored fingerprint: raise the format version.
  EXPECT_EQ(absl::BytesToHexString(Fingerprint(Sample())).substr(0, 16),
            "7786f22898108ad1");
}

TEST(CanonicalTest, EveryFieldMatters) {
  const std::string base = Fingerprint(Sample());
  Graph s = Sample();
  s.operators[0].schema_hash++;
  EXPECT_NE(Fingerprint(s), base);
  s = Sample();
  s.nodes[1].overwrites.clear();
  EXPECT_NE(Fingerprint(s), base);
  s = Sample();
  std::get<TensorView>(s.nodes[0].arguments[0]).negative = true;
  EXPECT_NE(Fingerprint(s), base);
  s = Sample();
  s.nodes[0].implicit_generator_slot = 0;
  EXPECT_NE(Fingerprint(s), base);
  s = Sample();
  s.size_hole = {{1}, {1}};
  const std::string with_hole = Fingerprint(s);
  EXPECT_NE(with_hole, base);
  s.size_hole = {{1}, {2}};
  EXPECT_NE(Fingerprint(s), with_hole);
  s.size_hole = {{2}, {1}};
  EXPECT_NE(Fingerprint(s), with_hole);
}

TEST(ValidateTest, DerivesFacts) {
  const absl::StatusOr<GraphFacts> facts = Validate(Sample(), GraphCaps());
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->slots[0].required_bytes, 24u);
  EXPECT_EQ(facts->slots[1].required_bytes, 12u);
  EXPECT_TRUE(facts->slots[0].reads);
  EXPECT_EQ(facts->slots[0].writes, 0u);
  EXPECT_EQ(facts->slots[2].writes, 2u);
  EXPECT_FALSE(facts->slots[2].reads);
  EXPECT_EQ(facts->slots[2].last_node, 1u);
  EXPECT_EQ(facts->slots[3].writes, 1u);
  EXPECT_EQ(facts->unknown_results, 0u);
}

TEST(ValidateTest, RefusesBrokenGraphs) {
  Graph s = Sample();
  s.nodes[0].operator_index = 2;
  EXPECT_EQ(ReasonOf(s), "MALFORMED_GRAPH");
  s = Sample();
  std::get<TensorView>(s.nodes[0].arguments[0]).slot = 9;
  EXPECT_EQ(ReasonOf(s), "MALFORMED_GRAPH");
  s = Sample();
  // Slot 2 is used before its creation.
  std::get<TensorView>(s.nodes[0].arguments[0]).slot = 2;
  EXPECT_EQ(ReasonOf(s), "MALFORMED_GRAPH");
  s = Sample();
  std::get<TensorView>(s.nodes[0].arguments[0]).sizes = {int64_t{1} << 62, 8};
  EXPECT_EQ(ReasonOf(s), "MALFORMED_GRAPH");
  s = Sample();  // outside the result that it views
  std::get<TensorView>(s.nodes[1].arguments[0]).sizes = {2, 4};
  EXPECT_EQ(ReasonOf(s), "MALFORMED_GRAPH");
  s = Sample();
  s.nodes[1].writes = {};
  EXPECT_EQ(ReasonOf(s), "MALFORMED_GRAPH");
  s = Sample();
  s.nodes[1].writes = {1, 2};  // no operand on slot 1
  EXPECT_EQ(ReasonOf(s), "MALFORMED_GRAPH");
  s = Sample();
  s.float_hole_count = 4;
  EXPECT_EQ(ReasonOf(s), "MALFORMED_GRAPH");
  s = Sample();
  s.slots.push_back({Slot::Kind::kBound});
  EXPECT_EQ(ReasonOf(s), "MALFORMED_GRAPH");
  s = Sample();
  s.nodes[0].results = {View(2, {1}, {1}), View(2, {1}, {1})};
  EXPECT_EQ(ReasonOf(s), "MALFORMED_GRAPH");
  EXPECT_EQ(ReasonOf(Graph()), "MALFORMED_GRAPH");
}

TEST(ValidateTest, EnforcesCaps) {
  GraphCaps caps;
  caps.max_nodes = 1;
  EXPECT_EQ(ErrorReason(Validate(Sample(), caps).status()), "GRAPH_TOO_LARGE");
}

TEST(ViewTest, Extents) {
  EXPECT_EQ(*ExtentBytes(View(0, {2, 3}, {3, 1})), 24u);
  EXPECT_EQ(*ExtentBytes(View(0, {2, 3}, {1, 2}, 5)), 44u);
  EXPECT_EQ(*ExtentBytes(View(0, {0, 3}, {3, 1}, 99)), 0u);
  EXPECT_EQ(*ExtentBytes(View(0, {}, {})), 4u);
  EXPECT_FALSE(ExtentBytes(View(0, {1}, {-1})).ok());
  EXPECT_FALSE(ExtentBytes(View(0, {1}, {1}, -1)).ok());
  EXPECT_FALSE(ExtentBytes(View(0, {3}, {int64_t{1} << 62})).ok());
  EXPECT_FALSE(ExtentBytes(View(0, {-1}, {1})).ok());
  EXPECT_FALSE(
      ExtentBytes(View(0, {int64_t{1} << 40, int64_t{1} << 40}, {0, 0})).ok());
}

TEST(ViewTest, Covers) {
  EXPECT_TRUE(CoversStorage(View(0, {2, 3}, {3, 1}), 24));
  EXPECT_TRUE(CoversStorage(View(0, {3, 2}, {1, 3}), 24));  // transposed
  EXPECT_FALSE(CoversStorage(View(0, {2, 3}, {3, 1}), 28));
  EXPECT_FALSE(CoversStorage(View(0, {2, 3}, {3, 1}, 1), 28));
  EXPECT_FALSE(CoversStorage(View(0, {2, 3}, {0, 1}), 12));
  EXPECT_FALSE(CoversStorage(View(0, {2, 2}, {1, 1}), 12));
}

}  // namespace
}  // namespace djinn::srg
