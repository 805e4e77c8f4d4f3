// Provides storages, a device and plans to tests of runs.
#ifndef GPU_WORKER_PLAN_RUN_FIXTURE_H_
#define GPU_WORKER_PLAN_RUN_FIXTURE_H_

#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/srg/proto_codec.h"
#include "djinn/v1/execution.pb.h"
#include "gpu_worker/device/fake/fake_device.h"
#include "gpu_worker/device/fake/fake_graph.h"
#include "gpu_worker/plan/admission.h"
#include "gpu_worker/plan/node_edge.h"
#include "gpu_worker/plan/run_executor.h"
#include "gtest/gtest.h"

namespace djinn::worker {

using Floats = std::vector<float>;

// A fake device and a session of one tenant, and runs of its plans.
class RunFixture : public testing::Test {
 protected:
  // Makes a storage of floats and returns its id.
  uint64_t Tensor(const Floats& values) {
    const uint64_t id = next_id_++;
    Storage* storage = storages_.Create(id);
    storage->version = 1;
    storage->size_bytes = values.size() * sizeof(float);
    storage->buffer = *memory_.Allocate("t", storage->size_bytes);
    storage->quota = *quota_.Reserve(storage->size_bytes);
    EXPECT_TRUE(device_
                    .Write(storage->buffer.get(), 0,
                           {reinterpret_cast<const char*>(values.data()),
                            storage->size_bytes})
                    .ok());
    return id;
  }

  uint64_t SeededGenerator(uint64_t seed) {
    const uint64_t id = next_id_++;
    Storage* storage = storages_.Create(id);
    storage->version = 1;
    storage->generator = true;
    storage->buffer = *device_.operators()->SeedGenerator(seed);
    storage->size_bytes = storage->buffer->size_bytes();
    return id;
  }

  std::shared_ptr<const Plan> Admit(const FakeGraph& s) {
    const absl::StatusOr<Admitted> admitted =
        worker::Admit(srg::ToProto(s.get()), srg::GraphCaps(), "red", &cache_,
                      device_.operators());
    EXPECT_TRUE(admitted.ok()) << admitted.status();
    return admitted->plan;
  }

  // Makes a run whose bindings are stamped as a correct client stamps them.
  // `bound` names the slots that exist, in slot order; the run creates the
  // others. `floats` fills the float holes.
  v1::Run MakeRun(const Plan& plan, std::vector<uint64_t> bound,
                  const std::vector<double>& floats = {}) {
    v1::Run run;
    for (const double value : floats) run.add_float_holes(value);
    size_t next = 0;
    for (size_t i = 0; i < plan.graph().slots.size(); ++i) {
      const srg::Slot::Kind kind = plan.graph().slots[i].kind;
      v1::Binding* binding = run.add_bindings();
      if (kind == srg::Slot::Kind::kBound ||
          kind == srg::Slot::Kind::kGenerator) {
        binding->set_storage(bound[next++]);
        binding->set_base_version(storages_.Find(binding->storage())->version);
      } else {
        binding->set_storage(next_id_++);
      }
      binding->set_writes(plan.facts().slots[i].writes);
      binding->set_reads(plan.facts().slots[i].reads);
    }
    run.set_reply_metadata(plan.facts().unknown_results > 0);
    return run;
  }

  absl::Status Check(const Plan& plan, const v1::Run& run,
                     absl::Span<const RememberedRun> remembered = {}) {
    DJINN_RETURN_IF_ERROR(BindRun(run, &plan, remembered, storages_, &bound_));
    return CheckRun(plan, bound_, storages_);
  }

  v1::RunMetadata Execute(const Plan& plan, const v1::Run& run) {
    EXPECT_EQ(Check(plan, run), absl::OkStatus());
    return ExecuteBound(plan);
  }
  // Executes the run that was checked last.
  v1::RunMetadata ExecuteBound(const Plan& plan) {
    RunContext context{++sequence_, "t",      &storages_, &quota_,
                       &errors_,    &memory_, &counters_, &cancelled_};
    context.edge = edge_;
    v1::RunMetadata metadata;
    ExecuteRun(plan, bound_, LifetimesOf(plan, bound_.final_slots), context,
               &metadata);
    return metadata;
  }

  Floats Values(uint64_t id) {
    Storage* storage = storages_.Find(id);
    const SharedBytes bytes = *device_.HostBytes(storage->buffer);
    Floats values(bytes.bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.bytes.data(), bytes.bytes.size());
    return values;
  }

  // Returns the only new error.
  RootError OneError() {
    const std::vector<RootError> errors = errors_.TakeNew();
    EXPECT_EQ(errors.size(), 1u);
    return errors.empty() ? std::make_shared<v1::ErrorDetail>() : errors[0];
  }

  RootError Poison(uint64_t id) { return storages_.Find(id)->poison; }

  FakeDevice device_{1 << 20};
  Ledger ledger_{1 << 20};
  DeviceMemory memory_{&device_, &ledger_};
  SessionQuota quota_{{.all = 1 << 20}};
  GraphCache cache_{GraphCache::Options()};
  FakeRandomSource random_;
  RootErrors errors_{"w0", "t", &random_};
  ExecutionCounters counters_;
  std::atomic<bool> cancelled_{false};
  StorageTable storages_;
  uint64_t next_id_ = 1;
  uint64_t sequence_ = 0;
  BoundRun bound_;
  NodeEdge* edge_ = nullptr;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_PLAN_RUN_FIXTURE_H_
