// An admitted graph: checked, compiled, and shared by every session that
// defines it. A graph with a size hole has a plan for each size that recent
// runs had; all have the graph's fingerprint and share its counters.
//
// Immutable except for its counters and its kind. The graph cache owns plans,
// and a session keeps a plan alive by shared_ptr while it runs it.
#ifndef GPU_WORKER_PLAN_PLAN_H_
#define GPU_WORKER_PLAN_PLAN_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/srg/graph.h"
#include "common/srg/validate.h"
#include "djinn/v1/notes.pb.h"
#include "gpu_worker/device/operator_library.h"

namespace djinn::worker {

class Plan {
 public:
  // The facts of a node that the executor needs on every run, gathered once.
  struct Step {
    // Operands in order, pointing into the graph.
    std::vector<const srg::TensorView*> operands;
    // Generators that the node draws from.
    std::vector<uint32_t> generators;
  };

  // Host memory that a graph may take per byte of its message: a varint of one
  // byte becomes an integer of eight.
  static constexpr uint64_t kBytesPerEncodedByte = 8;

  // `encoded_bytes` is the size of the graph's message.
  Plan(std::string fingerprint, srg::Graph graph, srg::GraphFacts facts,
       std::unique_ptr<CompiledProgram> program, uint64_t encoded_bytes);
  // Makes the plan of `base` at another size than 0. `graph` is the graph at
  // that size; `program` is an error if an operator refused it.
  Plan(const Plan& base, int64_t size, srg::Graph graph, srg::GraphFacts facts,
       absl::StatusOr<std::unique_ptr<CompiledProgram>> program);

  // Returns the fingerprint of the graph as it was defined, for any size.
  const std::string& fingerprint() const { return fingerprint_; }
  int64_t size() const { return size_; }
  // Returns the graph at this plan's size.
  const srg::Graph& graph() const { return graph_; }
  const srg::GraphFacts& facts() const { return facts_; }
  // Returns why an operator takes no operands of this size, or OK. If not OK,
  // there is no program, and every run fails as a whole.
  const absl::Status& refusal() const { return refusal_; }
  const CompiledProgram& program() const { return *program_; }
  const std::vector<Step>& steps() const { return steps_; }
  // Returns the size of each result or created slot at its creation, by slot; 0
  // where it is unknown or the slot existed before.
  const std::vector<uint64_t>& created_bytes() const { return created_bytes_; }
  // Returns roughly what the plan takes in host memory; at least the bytes of
  // its message.
  uint64_t estimated_bytes() const { return estimated_bytes_; }

  // Shares the counters of another plan of the same graph from now on. Call it
  // before the plan runs.
  void CountWith(const Plan& other) { counters_ = other.counters_; }
  // Sets the bytes of the contents bound in the last run that named all of its
  // bindings.
  void SetContentBytes(uint64_t bytes) const {
    counters_->content_bytes.store(bytes, std::memory_order_relaxed);
  }
  uint64_t content_bytes() const {
    return counters_->content_bytes.load(std::memory_order_relaxed);
  }
  void CountRun() const {
    counters_->runs.fetch_add(1, std::memory_order_relaxed);
  }
  uint64_t runs() const {
    return counters_->runs.load(std::memory_order_relaxed);
  }
  // Says what role the graph's runs have for a tenant.
  struct Kind {
    v1::Phase phase = v1::PHASE_UNSPECIFIED;
    // Marks the slots that are caches, which the program keeps from run to run
    // and each run extends. Null if no slot is.
    std::shared_ptr<const std::vector<bool>> caches;
  };
  // Sets the kind for these tenants; if none is named, for all tenants without
  // a kind of their own. Ignores slots that the graph does not have. Callers
  // serialize their calls.
  void SetKind(v1::Phase phase, absl::Span<const uint32_t> cache_slots,
               absl::Span<const std::string> tenants = {}) const;
  // Returns the tenant's kind, which has neither phase nor caches until
  // SetKind() sets it.
  Kind KindTo(absl::string_view tenant) const;
  // Adds the time for which a run kept the device busy.
  void AddDeviceTime(absl::Duration time) const {
    counters_->device_nanoseconds.fetch_add(absl::ToInt64Nanoseconds(time),
                                            std::memory_order_relaxed);
  }
  // Returns the mean over the runs before the present one; 0 in the first.
  absl::Duration mean_device_time() const {
    return device_time() /
           static_cast<int64_t>(std::max<uint64_t>(2, runs()) - 1);
  }
  absl::Duration device_time() const {
    return absl::Nanoseconds(
        counters_->device_nanoseconds.load(std::memory_order_relaxed));
  }

 private:
  struct Kinds {
    // The kind of tenants without a kind of their own.
    Kind others;
    absl::flat_hash_map<std::string, Kind> by_tenant;
  };
  struct Counters {
    std::atomic<uint64_t> runs{0};
    std::atomic<uint64_t> content_bytes{0};
    std::atomic<int64_t> device_nanoseconds{0};
    // Null until a kind is set.
    std::atomic<std::shared_ptr<const Kinds>> kinds;
  };

  // Fills the facts that follow from the graph.
  void FillSteps();

  const std::string fingerprint_;
  const int64_t size_ = 0;
  const srg::Graph graph_;
  const srg::GraphFacts facts_;
  const absl::Status refusal_;
  const std::unique_ptr<CompiledProgram> program_;
  std::vector<Step> steps_;
  std::vector<uint64_t> created_bytes_;
  uint64_t estimated_bytes_ = 0;
  // Shared by the plans of all sizes.
  std::shared_ptr<Counters> counters_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_PLAN_PLAN_H_
