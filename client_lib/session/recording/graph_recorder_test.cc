#include "client_lib/session/recording/graph_recorder.h"

#include "common/base/error.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

v1::Graph Relu(int64_t size) {
  v1::Graph graph;
  graph.add_operators()->set_name("aten::relu");
  graph.add_slots()->set_kind(v1::Slot::BOUND);
  graph.add_slots()->set_kind(v1::Slot::RESULT);
  v1::Node* const node = graph.add_nodes();
  v1::TensorView view;
  view.set_data_type(v1::DATA_TYPE_FLOAT32);
  view.add_sizes(size);
  view.add_strides(1);
  *node->add_arguments()->mutable_tensor() = view;
  view.set_slot(1);
  *node->add_results()->mutable_view() = view;
  return graph;
}

TEST(GraphRecorderTest, EqualGraphsOnceInOrderOfFirstUse) {
  GraphRecorder recorder;
  EXPECT_FALSE(recorder.records(0));
  ASSERT_TRUE(recorder.Begin(0).ok());
  EXPECT_TRUE(recorder.records(0));
  EXPECT_FALSE(recorder.records(1));
  v1::GraphNotes notes;
  notes.add_notes()->set_module_path("Net");
  notes.add_note_of_node(1);
  recorder.Add(Relu(2), notes);
  recorder.Add(Relu(1), {});
  recorder.Add(Relu(2), {});
  const v1::GraphExport found = recorder.End().value();
  ASSERT_EQ(found.pieces_size(), 2);
  EXPECT_EQ(found.pieces(0).run_count(), 2u);
  EXPECT_EQ(found.pieces(0).graph().SerializeAsString(),
            Relu(2).SerializeAsString());
  EXPECT_EQ(found.pieces(0).notes().notes(0).module_path(), "Net");
  EXPECT_EQ(found.pieces(0).fingerprint().size(), 64u);
  EXPECT_FALSE(found.pieces(1).has_notes());
}

TEST(GraphRecorderTest, OneAtATime) {
  GraphRecorder recorder;
  ASSERT_TRUE(recorder.Begin(3).ok());
  EXPECT_EQ(ErrorReason(recorder.Begin(3)), "EXPORT_RUNNING");
  ASSERT_TRUE(recorder.End().ok());
  recorder.Add(Relu(1), {});
  // Graphs added before Begin() do not count.
  ASSERT_TRUE(recorder.Begin(3).ok());
  EXPECT_EQ(recorder.End()->pieces_size(), 0);
}

TEST(GraphRecorderTest, TooMuchIsRefused) {
  GraphRecorder recorder(Relu(1).ByteSizeLong());
  ASSERT_TRUE(recorder.Begin(0).ok());
  recorder.Add(Relu(1), {});
  recorder.Add(Relu(2), {});
  EXPECT_EQ(ErrorReason(recorder.End().status()), "EXPORT_TOO_LARGE");
  ASSERT_TRUE(recorder.Begin(0).ok());
  recorder.Add(Relu(1), {});
  EXPECT_EQ(recorder.End()->pieces_size(), 1);
}

}  // namespace
}  // namespace djinn
