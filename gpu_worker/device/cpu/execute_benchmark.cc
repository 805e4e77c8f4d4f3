// Measures the executor's time per node in addition to its operator: compares a
// run of a plan, which is a chain of small operators, with the same calls made
// directly.
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "ATen/core/dispatch/Dispatcher.h"
#include "ATen/ops/add.h"
#include "ATen/ops/addmm.h"
#include "ATen/ops/layer_norm.h"
#include "ATen/ops/ones.h"
#include "benchmark/benchmark.h"
#include "c10/core/InferenceMode.h"
#include "common/base/random.h"
#include "common/srg/validate.h"
#include "common/torch/schema_hash.h"
#include "gpu_worker/device/cpu/cpu_device.h"
#include "gpu_worker/plan/bound_run.h"
#include "gpu_worker/plan/executor.h"

namespace djinn::worker {
namespace {

constexpr int64_t kWidth = 8;
constexpr int kNodes = 64;
constexpr uint64_t kBytes = kWidth * kWidth * sizeof(float);

srg::TensorView View(uint32_t slot, srg::Dimensions sizes) {
  srg::TensorView view;
  view.slot = slot;
  view.data_type = srg::DataType::kFloat32;
  view.strides.resize(sizes.size());
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    view.strides[d] = stride;
    stride *= sizes[d];
  }
  view.sizes = std::move(sizes);
  return view;
}

// A measured operator: its name, and how to call it directly.
struct Kind {
  const char* name;
  const char* overload;
  // Returns the arguments of a call on `value`, with `weight` of the same size.
  std::vector<srg::Argument> (*arguments)(srg::TensorView value,
                                          srg::TensorView weight);
  at::Tensor (*call)(const at::Tensor& value, const at::Tensor& weight);
};

constexpr Kind kKinds[] = {
    {"aten::add", "Tensor",
     [](srg::TensorView value, srg::TensorView weight) {
       return std::vector<srg::Argument>{value, weight, int64_t{1}};
     },
     [](const at::Tensor& value, const at::Tensor& weight) {
       return at::add(value, weight);
     }},
    {"aten::addmm", "",
     [](srg::TensorView value, srg::TensorView weight) {
       return std::vector<srg::Argument>{value, value, weight, int64_t{1},
                                         int64_t{1}};
     },
     [](const at::Tensor& value, const at::Tensor& weight) {
       return at::addmm(value, value, weight);
     }},
    {"aten::layer_norm", "",
     [](srg::TensorView value, srg::TensorView weight) {
       return std::vector<srg::Argument>{value,
                                         std::vector<int64_t>{kWidth},
                                         View(weight.slot, {kWidth}),
                                         View(weight.slot, {kWidth}),
                                         srg::FloatHole{0},
                                         false};
     },
     [](const at::Tensor& value, const at::Tensor& weight) {
       const at::Tensor row = weight.flatten().narrow(0, 0, kWidth);
       return at::layer_norm(value, {kWidth}, row, row, 1e-5, false);
     }},
};

// Builds a chain in which each node takes the result of the one before. Slot 0
// is the first value, slot 1 the weight.
srg::Graph Chain(const Kind& kind) {
  srg::Graph graph;
  const auto op =
      c10::Dispatcher::singleton().findSchema({kind.name, kind.overload});
  graph.operators.push_back(
      {kind.name, kind.overload, SchemaHash(op->schema())});
  graph.slots.resize(2 + kNodes);
  graph.slots[0].kind = graph.slots[1].kind = srg::Slot::Kind::kBound;
  uint32_t value = 0;
  for (uint32_t i = 0; i < kNodes; ++i) {
    const uint32_t result = 2 + i;
    graph.slots[result].kind = srg::Slot::Kind::kResult;
    srg::Node node;
    node.arguments = kind.arguments(View(value, {kWidth, kWidth}),
                                    View(1, {kWidth, kWidth}));
    for (srg::Argument& argument : node.arguments) {
      if (auto* hole = std::get_if<srg::FloatHole>(&argument)) {
        hole->index = graph.float_hole_count++;
      }
    }
    node.results.push_back(View(result, {kWidth, kWidth}));
    graph.nodes.push_back(std::move(node));
    value = result;
  }
  return graph;
}

class Worker {
 public:
  Worker()
      : device_(*MakeCpuDevice({.threads = 1})),
        ledger_(uint64_t{1} << 30),
        memory_(device_.get(), &ledger_),
        quota_({.all = uint64_t{1} << 30}),
        errors_("worker", "tenant", RandomSource::Real()) {
    for (const uint64_t id : {1, 2}) {
      Storage* storage = storages_.Create(id);
      storage->version = 1;
      storage->size_bytes = kBytes;
      storage->quota = *quota_.Reserve(kBytes);
      storage->buffer = *memory_.Allocate("tenant", kBytes);
    }
  }

  std::shared_ptr<const Plan> Compile(srg::Graph graph) {
    srg::GraphFacts facts = *srg::Validate(graph, {});
    auto program = *device_->operators()->Compile(graph);
    return std::make_shared<Plan>("fingerprint", std::move(graph),
                                  std::move(facts), std::move(program), 0);
  }

  // Fills in the next run of a chain, which creates and destroys all of its
  // results.
  void Fill(const Plan& plan, v1::Run* run) {
    run->Clear();
    for (size_t slot = 0; slot < plan.graph().slots.size(); ++slot) {
      v1::Binding* binding = run->add_bindings();
      binding->set_reads(plan.facts().slots[slot].reads);
      binding->set_writes(plan.facts().slots[slot].writes);
      if (slot < 2) {
        binding->set_storage(slot + 1);
        binding->set_base_version(1);
      } else {
        binding->set_storage(next_id_++);
        run->add_final_slots(static_cast<uint32_t>(slot));
      }
    }
    for (uint32_t i = 0; i < plan.graph().float_hole_count; ++i) {
      run->add_float_holes(1e-5);
    }
  }

  void Run(const Plan& plan, const v1::Run& run) {
    if (!BindRun(run, &plan, {}, storages_, &bound_).ok()) std::abort();
    if (!CheckRun(plan, bound_, storages_).ok()) std::abort();
    // Computes the lifetimes only once, as for a run that repeats the one
    // before.
    if (lifetimes_.ends.empty()) {
      lifetimes_ = LifetimesOf(plan, bound_.final_slots);
    }
    const RunContext context{1,        "tenant", &storages_, &quota_,
                             &errors_, &memory_, &counters_, &stopped_};
    v1::RunMetadata metadata;
    ExecuteRun(plan, bound_, lifetimes_, context, &metadata);
    if (errors_.count() > 0) std::abort();
  }

 private:
  const std::unique_ptr<Device> device_;
  Ledger ledger_;
  DeviceMemory memory_;
  SessionQuota quota_;
  RootErrors errors_;
  StorageTable storages_;
  ExecutionCounters counters_;
  std::atomic<bool> stopped_{false};
  uint64_t next_id_ = 3;
  BoundRun bound_;
  Lifetimes lifetimes_;
};

void BM_Plan(benchmark::State& state) {
  Worker worker;
  const std::shared_ptr<const Plan> plan =
      worker.Compile(Chain(kKinds[state.range(0)]));
  v1::Run run;
  for (auto _ : state) {
    state.PauseTiming();
    worker.Fill(*plan, &run);
    state.ResumeTiming();
    worker.Run(*plan, run);
  }
  state.SetLabel(kKinds[state.range(0)].name);
  state.SetItemsProcessed(state.iterations() * kNodes);
}
BENCHMARK(BM_Plan)->DenseRange(0, 2);

void BM_Direct(benchmark::State& state) {
  c10::InferenceMode inference;
  const Kind& kind = kKinds[state.range(0)];
  const at::Tensor weight = at::ones({kWidth, kWidth});
  for (auto _ : state) {
    at::Tensor value = weight;
    for (int i = 0; i < kNodes; ++i) value = kind.call(value, weight);
  }
  state.SetLabel(kind.name);
  state.SetItemsProcessed(state.iterations() * kNodes);
}
BENCHMARK(BM_Direct)->DenseRange(0, 2);

}  // namespace
}  // namespace djinn::worker

BENCHMARK_MAIN();
