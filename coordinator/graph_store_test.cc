#include "coordinator/graph_store.h"

#include "absl/strings/escaping.h"
#include "common/error.h"
#include "common/srg/canonical.h"
#include "common/srg/proto_codec.h"
#include "coordinator/testing.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

TEST(GraphStoreTest, KeepsUnderItsOwnHash) {
  GraphStore store(1 << 20);
  const v1::Structure message = TestStructure(3);
  const std::string fingerprint = store.Add(message).value();
  EXPECT_EQ(fingerprint, srg::Fingerprint(srg::FromProto(message).value()));
  EXPECT_EQ(store.Add(message).value(), fingerprint);
  store.CountDefinition(fingerprint);
  ASSERT_EQ(store.List().size(), 1u);
  EXPECT_EQ(store.List()[0].definition_count(), 1u);
  EXPECT_EQ(store.List()[0].node_count(), 1u);
  EXPECT_EQ(store.List()[0].slot_count(), 2u);
  EXPECT_FALSE(store.List()[0].has_structure());
}

TEST(GraphStoreTest, FindsByUniquePrefix) {
  GraphStore store(1 << 20);
  const std::string hex =
      absl::BytesToHexString(store.Add(TestStructure(3)).value());
  EXPECT_EQ(store.Get(hex)->structure().nodes_size(), 1);
  EXPECT_EQ(store.Get(hex.substr(0, 8))->fingerprint(), hex);
  EXPECT_EQ(ErrorReason(store.Get(hex.substr(0, 7)).status()), "GRAPH_UNKNOWN");
  EXPECT_EQ(ErrorReason(store.Get("no such graph").status()), "GRAPH_UNKNOWN");
}

TEST(GraphStoreTest, RefusesWhatIsMalformed) {
  GraphStore store(1 << 20);
  v1::Structure wrong_slot = TestStructure(3);
  wrong_slot.mutable_nodes(0)->mutable_results(0)->mutable_view()->set_slot(9);
  EXPECT_EQ(store.Add(wrong_slot).status().code(),
            absl::StatusCode::kInvalidArgument);
  v1::Structure unset = TestStructure(3);
  unset.mutable_nodes(0)->add_arguments();
  EXPECT_EQ(ErrorReason(store.Add(unset).status()), "MALFORMED_STRUCTURE");
  EXPECT_TRUE(store.List().empty());
}

TEST(GraphStoreTest, ForgetsTheLeastRecentlyDefined) {
  const v1::Structure first = TestStructure(1);
  GraphStore store(2 * first.ByteSizeLong());
  const std::string one = store.Add(first).value();
  const std::string two = store.Add(TestStructure(2)).value();
  store.Add(first).value();
  store.Add(TestStructure(3)).value();
  EXPECT_EQ(store.List().size(), 2u);
  EXPECT_TRUE(store.Get(absl::BytesToHexString(one)).ok());
  EXPECT_FALSE(store.Get(absl::BytesToHexString(two)).ok());
}

}  // namespace
}  // namespace djinn::coordinator
