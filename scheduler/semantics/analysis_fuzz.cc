// A structure from a peer that was accepted: whatever it holds is analysed, by
// itself and behind itself, and what comes out fits together.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "common/fuzz/mutate_message.h"
#include "common/fuzz/require.h"
#include "common/srg/proto_codec.h"
#include "common/srg/validate.h"
#include "scheduler/semantics/program.h"

namespace djinn::semantics {
namespace {

using fuzz::Require;

void Check(const srg::Structure& structure, const Meaning& meaning) {
  const size_t nodes = structure.nodes.size();
  Require(meaning.nodes.size() == nodes, "a meaning for each node");
  Require(meaning.slots.size() == structure.slots.size(), "and each slot");
  std::vector<bool> taken(nodes, false);
  for (const Region& region : meaning.regions) {
    Require(!region.members.empty(), "no empty regions");
    for (const Member& member : region.members) {
      const auto node = static_cast<size_t>(member.node);
      Require(node < nodes && !taken[node], "a node has one region at most");
      taken[node] = true;
      Require(member.role.find('.') != std::string::npos, "and a role");
    }
  }
  Require((meaning.batch.rows == 0) != meaning.batch.problem.empty(),
          "it has rows, or there is a reason");
  for (const Edge& edge : meaning.edges) {
    Require(edge.producer < edge.consumer && edge.consumer < nodes,
            "edges lead forward");
    Require(edge.criticality >= 0 && edge.criticality < 1.0001,
            "no path is longer than the longest");
  }
  uint32_t next = 0;
  for (const Stage& stage : meaning.stages) {
    Require(stage.first_node == next && stage.node_count > 0,
            "stages follow each other");
    next += stage.node_count;
  }
  Require(next == nodes, "and cover all nodes");
}

void TestOne(const v1::Structure& message) {
  auto structure = srg::FromProto(message);
  if (!structure.ok() || !srg::Validate(*structure, {}).ok()) return;
  const auto shared =
      std::make_shared<const srg::Structure>(*std::move(structure));
  Program program;
  for (const char* const name : {"first", "again"}) {
    for (const Program::Finding& finding : program.Add(name, shared, 1)) {
      Check(*finding.structure, finding.meaning);
    }
  }
}

}  // namespace
}  // namespace djinn::semantics

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  djinn::v1::Structure message;
  if (message.ParseFromArray(data, static_cast<int>(size))) {
    djinn::semantics::TestOne(message);
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size,
                                          size_t max_size, unsigned int seed) {
  return djinn::fuzz::MutateEncoded<djinn::v1::Structure>(data, size, max_size,
                                                          seed);
}
