// Decodes, validates and names a graph from a peer. An accepted graph must
// survive its own encoding.
#include <cstddef>
#include <cstdint>
#include <string>

#include "common/fuzz/mutate_message.h"
#include "common/fuzz/require.h"
#include "common/srg/canonical.h"
#include "common/srg/proto_codec.h"
#include "common/srg/validate.h"

namespace djinn::srg {
namespace {

using fuzz::Require;

void TestOne(const v1::Graph& message) {
  const absl::StatusOr<Graph> graph = FromProto(message);
  if (!graph.ok()) return;
  const std::string canonical = CanonicalEncoding(*graph);
  // NaNs differ from themselves, so the encoded bytes are compared.
  const absl::StatusOr<Graph> again = FromProto(ToProto(*graph));
  Require(again.ok(), "what was decoded can be encoded");
  Require(CanonicalEncoding(*again) == canonical,
          "encoding keeps the canonical form");
  Require(Fingerprint(*again) == Fingerprint(*graph), "and the name");

  const absl::StatusOr<GraphFacts> facts = Validate(*graph, GraphCaps());
  if (!facts.ok()) return;
  Require(facts->slots.size() == graph->slots.size(), "facts per slot");
  Require(facts->scalar_tensor_types.size() == graph->scalar_tensor_hole_count,
          "types per scalar tensor hole");
  for (const SlotFacts& slot : facts->slots) {
    Require(slot.first_node <= slot.last_node &&
                slot.last_node < graph->nodes.size(),
            "a slot's life lies within the graph");
  }
  for (const Node& node : graph->nodes) {
    ForEachOperand(node, [&](const TensorView& view) {
      const absl::StatusOr<uint64_t> extent = ExtentBytes(view);
      Require(extent.ok(), "operands of a valid graph have an extent");
      Require(*extent <= facts->slots[view.slot].required_bytes,
              "which the slot's facts cover");
      (void)CoversStorage(view, *extent);
      (void)DescribeView(view);
    });
  }
}

}  // namespace
}  // namespace djinn::srg

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  djinn::v1::Graph message;
  if (message.ParseFromArray(data, static_cast<int>(size))) {
    djinn::srg::TestOne(message);
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size,
                                          size_t max_size, unsigned int seed) {
  return djinn::fuzz::MutateEncoded<djinn::v1::Graph>(data, size, max_size,
                                                      seed);
}
