#include "coordinator/graphs/graph_store.h"

#include "absl/strings/escaping.h"
#include "common/base/error.h"
#include "common/srg/canonical.h"
#include "common/srg/proto_codec.h"
#include "coordinator/testing/testing.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

// Returns the size of a graph with its meaning.
uint64_t KeptBytes(const v1::Graph& srg_graph) {
  GraphStore store(1 << 20);
  const std::string fingerprint = store.Add("red", srg_graph).value();
  const v1::GraphInfo graph =
      store.Get(absl::BytesToHexString(fingerprint)).value();
  return graph.graph().ByteSizeLong() + graph.meaning().ByteSizeLong();
}

TEST(GraphStoreTest, KeepsUnderItsOwnHash) {
  GraphStore store(1 << 20);
  const v1::Graph message = TestGraph(3);
  const std::string fingerprint = store.Add("red", message).value();
  EXPECT_EQ(fingerprint, srg::Fingerprint(srg::FromProto(message).value()));
  EXPECT_EQ(store.Add("red", message).value(), fingerprint);
  store.CountDefinition(fingerprint);
  ASSERT_EQ(store.List().items.size(), 1u);
  EXPECT_EQ(store.List().items[0].definition_count(), 1u);
  EXPECT_EQ(store.List().items[0].node_count(), 1u);
  EXPECT_EQ(store.List().items[0].slot_count(), 2u);
  EXPECT_FALSE(store.List().items[0].has_graph());
}

TEST(GraphStoreTest, KnowsWhatGraphsMean) {
  GraphStore store(1 << 20);
  const std::string hex =
      absl::BytesToHexString(store.Add("red", TestGraph(100)).value());
  const v1::GraphInfo graph = store.Get(hex).value();
  ASSERT_EQ(graph.meaning().nodes_size(), 1);
  EXPECT_EQ(graph.meaning().nodes(0).cost().read_bytes(), 400u);
  ASSERT_EQ(graph.meaning().slots_size(), 2);
  EXPECT_EQ(graph.meaning().slots(0).residency(),
            v1::RESIDENCY_EPHEMERAL_ACTIVATION);
  EXPECT_EQ(graph.meaning().stages_size(), 1);
  EXPECT_EQ(graph.meaning().peak_bytes(), 800u);
  EXPECT_EQ(graph.meaning().batch().rows(), 100u);
  EXPECT_EQ(graph.ordinal(), 1u);
  // A list contains only the totals.
  const v1::GraphMeaning listed = store.List().items.at(0).meaning();
  EXPECT_EQ(listed.cost().read_bytes(), 400u);
  EXPECT_EQ(listed.nodes_size() + listed.slots_size() + listed.stages_size() +
                listed.regions_size() + listed.edges_size(),
            0);
}

// Makes a graph of embedding() of one token, or of relu() of its result.
v1::Graph Piece(bool first) {
  v1::Graph srg_graph = TestGraph(128);
  srg_graph.mutable_operators(0)->set_name(first ? "aten::embedding"
                                                 : "aten::relu");
  v1::Node* const node = srg_graph.mutable_nodes(0);
  v1::TensorView* const out = node->mutable_results(0)->mutable_view();
  out->clear_sizes();
  out->clear_strides();
  for (const int64_t size : {1, 1, 128}) out->add_sizes(size);
  for (const int64_t stride : {128, 128, 1}) out->add_strides(stride);
  v1::TensorView* const in = node->mutable_arguments(0)->mutable_tensor();
  if (!first) {
    const uint32_t slot = in->slot();
    *in = *out;
    in->set_slot(slot);
    return srg_graph;
  }
  in->clear_sizes();
  in->clear_strides();
  for (const int64_t size : {50, 128}) in->add_sizes(size);
  for (const int64_t stride : {128, 1}) in->add_strides(stride);
  srg_graph.add_slots()->set_kind(v1::Slot::BOUND);
  v1::TensorView* const rows = node->add_arguments()->mutable_tensor();
  rows->set_slot(2);
  rows->set_data_type(v1::DATA_TYPE_INT64);
  for (int k = 0; k < 2; ++k) rows->add_sizes(1);
  for (int k = 0; k < 2; ++k) rows->add_strides(1);
  return srg_graph;
}

v1::Phase PhaseOf(GraphStore* store, const std::string& fingerprint) {
  return store->Get(absl::BytesToHexString(fingerprint))->meaning().phase();
}

// Returns the phase of its one call.
semantics::Phase PhaseOf(const std::shared_ptr<const scheduler::Work>& work) {
  return work->parts().at(0).phase;
}

TEST(GraphStoreTest, PiecesOfOneProgramExplainEachOther) {
  // Another session's program does not explain the piece.
  GraphStore store(1 << 20);
  semantics::Program one, other;
  const std::string piece = store.Add("red", Piece(false), {}, &one).value();
  EXPECT_EQ(PhaseOf(&store, piece), v1::PHASE_UNSPECIFIED);
  const std::string begin = store.Add("red", Piece(true), {}, &other).value();
  EXPECT_EQ(PhaseOf(&store, begin), v1::PHASE_LLM_DECODE);
  EXPECT_EQ(PhaseOf(&store, piece), v1::PHASE_UNSPECIFIED);
  // Its own program does, and the same piece is analyzed again.
  store.Add("red", Piece(false), {}, &other).value();
  EXPECT_EQ(PhaseOf(&store, piece), v1::PHASE_LLM_DECODE);
}

TEST(GraphStoreTest, PhaseThatAProgramShowsIsItsTenantsAlone) {
  GraphStore store(1 << 20);
  semantics::Program blue, red;
  store.Add("blue", Piece(true), {}, &blue).value();
  const std::string piece = store.Add("blue", Piece(false), {}, &blue).value();
  EXPECT_EQ(PhaseOf(&store, piece), v1::PHASE_LLM_DECODE);
  EXPECT_EQ(PhaseOf(store.WorksOf("blue", piece).own),
            semantics::Phase::kLlmDecode);
  EXPECT_EQ(store.WorksOf("blue", piece).shown, nullptr);
  EXPECT_EQ(store.WorksOf("red", piece).own, nullptr);

  // The finding does not hold for another tenant, nor without a tenant.
  store.Add("red", Piece(false), {}, &red).value();
  EXPECT_EQ(PhaseOf(store.WorksOf("red", piece).own),
            semantics::Phase::kUnspecified);
  EXPECT_EQ(PhaseOf(store.WorksOf("red", piece).shown),
            semantics::Phase::kUnspecified);
  EXPECT_EQ(PhaseOf(&store, piece), v1::PHASE_UNSPECIFIED);
  for (const v1::GraphInfo& listed : store.List().items) {
    EXPECT_EQ(listed.meaning().phase(),
              listed.fingerprint() == absl::BytesToHexString(piece)
                  ? v1::PHASE_UNSPECIFIED
                  : v1::PHASE_LLM_DECODE);
  }
  EXPECT_EQ(PhaseOf(store.WorksOf("blue", piece).own),
            semantics::Phase::kLlmDecode);

  // A tenant that comes later gets its own finding, and the shown one stays.
  store.Add("red", Piece(true), {}, &red).value();
  store.Add("red", Piece(false), {}, &red).value();
  EXPECT_EQ(PhaseOf(store.WorksOf("red", piece).own),
            semantics::Phase::kLlmDecode);
  EXPECT_EQ(PhaseOf(&store, piece), v1::PHASE_UNSPECIFIED);
  const auto shown = store.WorksOf("red", piece).shown;
  store.Add("green", Piece(false)).value();
  EXPECT_EQ(store.WorksOf("green", piece).shown, shown);
}

TEST(GraphStoreTest, MeaningOfAGraphEndsWithItsTenantsHold) {
  const v1::Graph srg_graph = TestGraph(1);
  const uint64_t each = KeptBytes(TestGraph(100));
  GraphStore store(6 * each);
  const std::string graph = store.Add("red", srg_graph).value();
  const uint64_t alone = store.stats().bytes;
  store.Add("blue", srg_graph).value();
  // Each tenant has its own meaning of the graph.
  EXPECT_EQ(store.stats().bytes, 2 * alone - srg_graph.ByteSizeLong());
  for (int i = 0; i < 10; ++i) {
    store.Add("red", TestGraph(100 + i)).value();
  }
  EXPECT_EQ(store.WorksOf("red", graph).own, nullptr);
  EXPECT_NE(store.WorksOf("blue", graph).own, nullptr);
  EXPECT_LE(store.stats().bytes, 6 * each);
  // With the last hold the graph is removed completely.
  for (int i = 0; i < 10; ++i) {
    store.Add("blue", TestGraph(200 + i)).value();
  }
  EXPECT_EQ(store.WorksOf("blue", graph).own, nullptr);
  EXPECT_LE(store.stats().bytes, 6 * each);
}

TEST(GraphStoreTest, FindsByUniquePrefix) {
  GraphStore store(1 << 20);
  const std::string hex =
      absl::BytesToHexString(store.Add("red", TestGraph(3)).value());
  EXPECT_EQ(store.Get(hex)->graph().nodes_size(), 1);
  EXPECT_EQ(store.Get(hex.substr(0, 8))->fingerprint(), hex);
  EXPECT_EQ(ErrorReason(store.Get(hex.substr(0, 7)).status()), "GRAPH_UNKNOWN");
  EXPECT_EQ(ErrorReason(store.Get("no such graph").status()), "GRAPH_UNKNOWN");
}

TEST(GraphStoreTest, ShowsTheNodes) {
  GraphStore store(1 << 20);
  v1::Graph message = TestGraph(3);
  v1::Operator* const op = message.add_operators();
  op->set_name("aten::normal_");
  op->set_overload("out");
  message.add_slots()->set_kind(v1::Slot::GENERATOR);
  message.add_slots()->set_kind(v1::Slot::RESULT);
  v1::Node* const node = message.add_nodes();
  node->set_operator_index(1);
  auto* const list = node->add_arguments()->mutable_tensors();
  *list->add_entries()->mutable_view() = message.nodes(0).results(0).view();
  list->add_entries();
  node->add_arguments()->set_integer(5);
  node->add_arguments()->set_generator_slot(2);
  node->add_results()->set_unknown_in_slot(3);
  node->add_results()->set_undefined(true);
  node->add_writes(1);
  const auto added = store.Add("red", message);
  ASSERT_TRUE(added.ok()) << added.status();

  const v1::GraphInfo graph = *store.Get(absl::BytesToHexString(*added));
  EXPECT_EQ(graph.size_bytes(), message.ByteSizeLong());
  ASSERT_EQ(graph.nodes_size(), 2);
  EXPECT_EQ(graph.nodes(0).ShortDebugString(),
            "operator_name: \"aten::relu\" "
            "operands { data_type: DATA_TYPE_FLOAT32 sizes: 3 } "
            "results { slot: 1 data_type: DATA_TYPE_FLOAT32 sizes: 3 }");
  EXPECT_EQ(graph.nodes(1).ShortDebugString(),
            "operator_name: \"aten::normal_.out\" "
            "operands { slot: 1 data_type: DATA_TYPE_FLOAT32 sizes: 3 } "
            "results { slot: 3 } written_slots: 1 generator_slot: 2");
}

TEST(GraphStoreTest, RefusesWhatIsMalformed) {
  GraphStore store(1 << 20);
  v1::Graph wrong_slot = TestGraph(3);
  wrong_slot.mutable_nodes(0)->mutable_results(0)->mutable_view()->set_slot(9);
  EXPECT_EQ(store.Add("red", wrong_slot).status().code(),
            absl::StatusCode::kInvalidArgument);
  v1::Graph unset = TestGraph(3);
  unset.mutable_nodes(0)->add_arguments();
  EXPECT_EQ(ErrorReason(store.Add("red", unset).status()), "MALFORMED_GRAPH");
  EXPECT_TRUE(store.List().items.empty());
}

TEST(GraphStoreTest, KeepsTheLastNotesBesideTheGraph) {
  const v1::Graph message = TestGraph(3);
  GraphStore store(1 << 20);
  const std::string plain = store.Add("red", message).value();
  const std::string hex = absl::BytesToHexString(plain);
  EXPECT_FALSE(store.Get(hex)->nodes(0).has_note());
  v1::GraphNotes notes;
  v1::CallNote* const note = notes.add_notes();
  note->set_phase(v1::PHASE_LLM_DECODE);
  note->set_module_path("Net.fc1");
  note->set_location("model.py:12");
  notes.add_note_of_node(1);
  EXPECT_EQ(store.Add("red", message, notes).value(), plain);
  EXPECT_EQ(store.Get(hex)->nodes(0).note().ShortDebugString(),
            "phase: PHASE_LLM_DECODE module_path: \"Net.fc1\" location: "
            "\"model.py:12\"");
  // A definition without notes keeps the existing ones.
  store.Add("red", message).value();
  EXPECT_TRUE(store.Get(hex)->nodes(0).has_note());
  notes.mutable_notes(0)->set_module_path("Other");
  store.Add("red", message, notes).value();
  EXPECT_EQ(store.Get(hex)->nodes(0).note().module_path(), "Other");
  notes.set_note_of_node(0, 0);
  store.Add("red", message, notes).value();
  EXPECT_FALSE(store.Get(hex)->nodes(0).has_note());
}

v1::GraphNotes PhaseNotes(v1::Phase phase) {
  v1::GraphNotes notes;
  notes.add_notes()->set_phase(phase);
  notes.add_note_of_node(1);
  return notes;
}

TEST(GraphStoreTest, HintsDecideWhatGraphsLeaveOpen) {
  GraphStore store(1 << 20);
  const std::string open =
      store.Add("red", Piece(false), PhaseNotes(v1::PHASE_FORWARD)).value();
  EXPECT_EQ(PhaseOf(&store, open), v1::PHASE_FORWARD);
  const v1::GraphMeaning meaning =
      store.Get(absl::BytesToHexString(open))->meaning();
  EXPECT_EQ(meaning.nodes(0).phase(), v1::PHASE_FORWARD);
  EXPECT_EQ(meaning.stages(0).phase(), v1::PHASE_FORWARD);
  EXPECT_EQ(meaning.task_type(), v1::TASK_TYPE_EMBEDDING);
  // Notes change neither the stored findings nor what is learned from them.
  EXPECT_EQ(store.List().items[0].meaning().phase(), v1::PHASE_UNSPECIFIED);
  EXPECT_EQ(store.WorksOf("red", open).own->phase(),
            semantics::Phase::kUnspecified);
  // The tenant's latest notes count; they are the ones that are kept.
  store.Add("red", Piece(false), PhaseNotes(v1::PHASE_TRAINING)).value();
  EXPECT_EQ(PhaseOf(&store, open), v1::PHASE_TRAINING);
  // Notes with an unknown phase, and with none.
  store.Add("red", Piece(false), PhaseNotes(static_cast<v1::Phase>(99)))
      .value();
  EXPECT_EQ(PhaseOf(&store, open), v1::PHASE_UNSPECIFIED);

  const std::string certain =
      store.Add("red", Piece(true), PhaseNotes(v1::PHASE_TRAINING)).value();
  EXPECT_EQ(PhaseOf(&store, certain), v1::PHASE_LLM_DECODE);
}

TEST(GraphStoreTest, AnotherTenantsHintsDecideNothing) {
  GraphStore store(1 << 20);
  const std::string graph =
      store.Add("red", Piece(false), PhaseNotes(v1::PHASE_FORWARD)).value();
  EXPECT_EQ(PhaseOf(&store, graph), v1::PHASE_FORWARD);
  // Notes count neither where another tenant has none, nor where it has others.
  store.Add("blue", Piece(false)).value();
  EXPECT_EQ(PhaseOf(&store, graph), v1::PHASE_UNSPECIFIED);
  for (const std::string tenant : {"blue", "red"}) {
    store.Add(tenant, Piece(false), PhaseNotes(v1::PHASE_TRAINING)).value();
    EXPECT_EQ(PhaseOf(&store, graph), v1::PHASE_UNSPECIFIED);
  }
}

TEST(GraphStoreTest, HintsExplainNoOtherGraph) {
  GraphStore store(1 << 20);
  semantics::Program program;
  v1::Graph wide = Piece(false);
  wide.mutable_operators(0)->set_name("aten::tanh");
  store.Add("red", wide, PhaseNotes(v1::PHASE_VISION_ENCODING), &program)
      .value();
  const std::string piece =
      store.Add("red", Piece(false), {}, &program).value();
  EXPECT_EQ(PhaseOf(&store, piece), v1::PHASE_UNSPECIFIED);
}

TEST(GraphStoreTest, RefusesNotesThatDoNotFit) {
  GraphStore store(1 << 20);
  v1::GraphNotes notes;
  notes.add_note_of_node(1);
  EXPECT_EQ(ErrorReason(store.Add("red", TestGraph(3), notes).status()),
            "MALFORMED_NOTES");
  notes.add_notes();
  EXPECT_TRUE(store.Add("red", TestGraph(3), notes).ok());
  notes.add_note_of_node(0);
  EXPECT_EQ(ErrorReason(store.Add("red", TestGraph(3), notes).status()),
            "MALFORMED_NOTES");
}

TEST(GraphStoreTest, NotesCountForTheBound) {
  const v1::Graph first = TestGraph(1);
  GraphStore store(2 * KeptBytes(first) + 500);
  const std::string one = store.Add("red", first).value();
  const std::string two = store.Add("red", TestGraph(2)).value();
  v1::GraphNotes notes;
  notes.add_notes()->set_module_path(std::string(400, 'm'));
  notes.add_note_of_node(1);
  store.Add("red", TestGraph(2), notes).value();
  // The notes replace the earlier ones.
  store.Add("red", TestGraph(2), notes).value();
  EXPECT_EQ(store.List().items.size(), 2u);
  notes.mutable_notes(0)->set_module_path(
      std::string(490 + KeptBytes(first) / 2, 'm'));
  store.Add("red", TestGraph(2), notes).value();
  EXPECT_FALSE(store.Get(absl::BytesToHexString(one)).ok());
  EXPECT_TRUE(store.Get(absl::BytesToHexString(two)).ok());
}

bool Has(GraphStore* store, const std::string& fingerprint) {
  return store->Get(absl::BytesToHexString(fingerprint)).ok();
}

TEST(GraphStoreTest, ATenantDoesNotCrowdOutAnother) {
  GraphStore store(6 * KeptBytes(TestGraph(100)));
  const std::string mine = store.Add("blue", TestGraph(1)).value();
  const std::string too = store.Add("blue", TestGraph(2)).value();
  for (int i = 0; i < 50; ++i) {
    store.Add("red", TestGraph(100 + i)).value();
  }
  EXPECT_TRUE(Has(&store, mine));
  EXPECT_NE(store.WorksOf("blue", mine).own, nullptr);
  EXPECT_TRUE(Has(&store, too));
  EXPECT_LE(store.stats().bytes, 6 * KeptBytes(TestGraph(100)));
}

TEST(GraphStoreTest, GraphHeldByAnotherTenantStays) {
  GraphStore store(3 * KeptBytes(TestGraph(100)));
  const std::string shared = store.Add("red", TestGraph(1)).value();
  store.Add("blue", TestGraph(1)).value();
  const std::string own = store.Add("red", TestGraph(2)).value();
  for (int i = 0; i < 10; ++i) {
    store.Add("red", TestGraph(100 + i)).value();
  }
  EXPECT_TRUE(Has(&store, shared));
  EXPECT_FALSE(Has(&store, own));
}

TEST(GraphStoreTest, NotesCountForWhoSentThemAlone) {
  const uint64_t each = KeptBytes(TestGraph(100));
  GraphStore store(8 * each);
  const std::string shared = store.Add("blue", TestGraph(1)).value();
  const std::string mine = store.Add("blue", TestGraph(2)).value();
  v1::GraphNotes notes;
  notes.add_notes()->set_module_path(std::string(7 * each, 'm'));
  notes.add_note_of_node(1);
  // The notes go with their tenant's hold; the graph stays.
  store.Add("red", TestGraph(1), notes).value();
  EXPECT_TRUE(Has(&store, shared));
  EXPECT_TRUE(Has(&store, mine));
  EXPECT_EQ(store.stats().bytes,
            KeptBytes(TestGraph(1)) + KeptBytes(TestGraph(2)));
}

TEST(GraphStoreTest, ForgetsTheLeastRecentlyDefined) {
  const v1::Graph first = TestGraph(4);
  GraphStore store(2 * KeptBytes(TestGraph(3)));
  const std::string one = store.Add("red", first).value();
  const std::string two = store.Add("red", TestGraph(2)).value();
  store.Add("red", first).value();
  store.Add("red", TestGraph(3)).value();
  EXPECT_EQ(store.List().items.size(), 2u);
  EXPECT_TRUE(store.Get(absl::BytesToHexString(one)).ok());
  EXPECT_FALSE(store.Get(absl::BytesToHexString(two)).ok());
}

}  // namespace
}  // namespace djinn::coordinator
