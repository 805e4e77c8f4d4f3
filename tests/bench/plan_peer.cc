// The worker's graph cache and admission by themselves, in a process of their
// own because of the protos. Reads commands, a line each, and answers with one:
//
//   plan_lookup COUNT           seconds of a look-up among 1,000 plans
//   admission NODES             seconds of admitting a structure of NODES nodes
//   hit_rate PLACES             runs, structures, hits, hits of the optimum
#include <ATen/core/dispatch/Dispatcher.h>

#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/srg/structure.h"
#include "common/torch/schema_hash.h"
#include "djinn/v1/srg.pb.h"
#include "gpu_worker/cache/graph_cache.h"
#include "gpu_worker/device/cpu/cpu_device.h"
#include "gpu_worker/plan/admission.h"
#include "tests/bench/graph_trace.h"
#include "tests/bench/stopwatch.h"

namespace djinn::bench {
namespace {

using worker::GraphCache;
using worker::Plan;

constexpr uint64_t kSeed = 1;
constexpr char kTenant[] = "red";
constexpr size_t kRuns = 200'000;

[[noreturn]] void Die(absl::string_view why) {
  std::cout << "failed: " << why << std::endl;
  std::exit(1);
}

class NoProgram : public worker::CompiledProgram {
  absl::Status Execute(uint32_t, const worker::NodeInput&,
                       std::vector<worker::NodeResult>*) const override {
    return absl::UnimplementedError("a plan that is never run");
  }
};

std::shared_ptr<worker::Plan> EmptyPlan(uint32_t number) {
  std::string fingerprint = absl::StrCat("structure ", number);
  fingerprint.resize(32);
  return std::make_shared<Plan>(std::move(fingerprint), srg::Structure(),
                                srg::StructureFacts(),
                                std::make_unique<NoProgram>(), 64);
}

double LookUp(int count) {
  GraphCache cache{GraphCache::Options()};
  std::vector<std::string> fingerprints;
  for (uint32_t i = 0; i < 1000; ++i) {
    fingerprints.push_back(cache.Insert(EmptyPlan(i), kTenant)->fingerprint());
  }
  const double start = WallNow();
  for (int i = 0; i < count; ++i) {
    // Another one every time, in no order.
    if (cache.Use(fingerprints[i * 619 % 1000], kTenant) == nullptr) {
      Die("a plan left");
    }
  }
  return (WallNow() - start) / count;
}

v1::TensorView Matrix(uint32_t slot) {
  v1::TensorView view;
  view.set_slot(slot);
  view.set_data_type(v1::DATA_TYPE_FLOAT32);
  view.add_sizes(32);
  view.add_sizes(32);
  view.add_strides(32);
  view.add_strides(1);
  return view;
}

// A chain of products, sums and relus of 32 x 32 matrices, each of another
// constant, so that no two nodes say the same.
v1::Structure Chain(int nodes) {
  v1::Structure structure;
  const auto add_operator = [&](const char* name, const char* overload) {
    v1::Operator* const op = structure.add_operators();
    op->set_name(name);
    op->set_overload(overload);
    op->set_schema_hash(SchemaHash(c10::Dispatcher::singleton()
                                       .findSchemaOrThrow(name, overload)
                                       .schema()));
  };
  add_operator("aten::mm", "");
  add_operator("aten::add", "Tensor");
  add_operator("aten::relu", "");
  structure.add_slots()->set_kind(v1::Slot::BOUND);
  structure.add_slots()->set_kind(v1::Slot::BOUND);
  uint32_t last = 0;
  for (int i = 0; i < nodes; ++i) {
    const auto result = static_cast<uint32_t>(structure.slots_size());
    structure.add_slots()->set_kind(v1::Slot::RESULT);
    v1::Node* const node = structure.add_nodes();
    node->set_operator_index(static_cast<uint32_t>(i % 3));
    *node->add_arguments()->mutable_tensor() = Matrix(last);
    if (i % 3 != 2) *node->add_arguments()->mutable_tensor() = Matrix(1);
    if (i % 3 == 1) node->add_arguments()->set_integer(i);
    *node->add_results()->mutable_view() = Matrix(result);
    last = result;
  }
  return structure;
}

double Admission(int nodes) {
  static worker::Device* const device =
      worker::MakeCpuDevice({}).value().release();
  const std::string encoded = Chain(nodes).SerializeAsString();
  GraphCache cache{GraphCache::Options()};
  const double start = WallNow();
  v1::Structure structure;
  if (!structure.ParseFromString(encoded)) Die("no structure");
  const auto admitted = worker::Admit(structure, srg::StructureCaps(), kTenant,
                                      &cache, device->operators());
  const double seconds = WallNow() - start;
  if (!admitted.ok()) Die(admitted.status().ToString());
  if (admitted->plan->steps().size() != static_cast<size_t>(nodes)) {
    Die("a plan of another length");
  }
  return seconds;
}

std::string HitRate(size_t places) {
  const std::vector<uint32_t> trace = MakeGraphTrace(kSeed, kRuns);
  std::vector<std::shared_ptr<worker::Plan>> plans;
  GraphCache cache({.max_plans = places});
  size_t hits = 0;
  for (const uint32_t structure : trace) {
    while (plans.size() <= structure) {
      plans.push_back(EmptyPlan(static_cast<uint32_t>(plans.size())));
    }
    if (const auto plan = cache.Use(plans[structure]->fingerprint(), kTenant)) {
      if (plan != plans[structure]) Die("another structure's plan");
      ++hits;
    } else {
      cache.Insert(plans[structure], kTenant);
    }
  }
  std::vector<bool> seen(plans.size());
  size_t distinct = 0;
  for (const uint32_t structure : trace) {
    if (!seen[structure]) ++distinct;
    seen[structure] = true;
  }
  return absl::StrCat(trace.size(), " ", distinct, " ", hits, " ",
                      OptimalHits(trace, places));
}

int Main() {
  std::string what;
  int number;
  while (std::cin >> what >> number) {
    if (number < 1) Die("a number from 1 on");
    if (what == "plan_lookup") {
      std::cout << LookUp(number) << std::endl;
    } else if (what == "admission") {
      std::cout << Admission(number) << std::endl;
    } else if (what == "hit_rate") {
      std::cout << HitRate(static_cast<size_t>(number)) << std::endl;
    } else {
      Die(absl::StrCat("no command ", what));
    }
  }
  return 0;
}

}  // namespace
}  // namespace djinn::bench

int main() { return djinn::bench::Main(); }
