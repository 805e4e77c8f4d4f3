// Fuzzes the admission of a peer's graph, with the fake device's operators.
#include <cstddef>
#include <cstdint>
#include <string>

#include "common/fuzz/mutate_message.h"
#include "common/fuzz/require.h"
#include "common/srg/canonical.h"
#include "common/srg/proto_codec.h"
#include "gpu_worker/device/fake/fake_device.h"
#include "gpu_worker/plan/admission.h"

namespace djinn::worker {
namespace {

using fuzz::Require;

// Renames the peer's operators to those of the fake device. The target tests
// each input with its own names and renamed, so that it reaches the code behind
// the operator check.
void NameFakeOperators(v1::Graph* message) {
  constexpr const char* kNames[] = {"fake::add",   "fake::add_",
                                    "fake::fill_", "fake::draw",
                                    "fake::alias", "fake::nonzero"};
  for (v1::Operator& op : *message->mutable_operators()) {
    if (op.name().rfind("fake::", 0) == 0) continue;
    op.set_name(kNames[op.name().size() % std::size(kNames)]);
    op.clear_overload();
    op.set_schema_hash(kFakeSchemaHash);
  }
}

void TestOne(const v1::Graph& message) {
  FakeDevice device(1 << 20);
  GraphCache cache({});
  const absl::StatusOr<Admitted> first =
      Admit(message, srg::GraphCaps(), "red", &cache, device.operators());
  Require(cache.List().size() == (first.ok() ? 1 : 0),
          "the cache holds what was admitted, and nothing else");
  if (!first.ok()) return;
  Require(cache.stats().hits == 0, "an empty cache has no hits");
  const Plan& plan = *first->plan;
  Require(plan.fingerprint() == srg::Fingerprint(plan.graph()),
          "a plan's name is that of its graph");
  Require(plan.steps().size() == plan.graph().nodes.size(), "a step per node");
  const absl::StatusOr<Admitted> second =
      Admit(srg::ToProto(plan.graph()), srg::GraphCaps(), "red", &cache,
            device.operators());
  Require(second.ok() && cache.stats().hits == 1 && second->known &&
              second->plan == first->plan,
          "the same graph is found again");
}

}  // namespace
}  // namespace djinn::worker

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  djinn::v1::Graph message;
  if (!message.ParseFromArray(data, static_cast<int>(size))) return 0;
  djinn::worker::TestOne(message);
  djinn::worker::NameFakeOperators(&message);
  djinn::worker::TestOne(message);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size,
                                          size_t max_size, unsigned int seed) {
  return djinn::fuzz::MutateEncoded<djinn::v1::Graph>(data, size, max_size,
                                                      seed);
}
