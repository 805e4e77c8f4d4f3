// The meaning of a graph. Mirrors proto/djinn/v1/semantics.proto, which
// documents each field and whose numbers the enums share.
#ifndef SCHEDULER_SEMANTICS_COST_MEANING_H_
#define SCHEDULER_SEMANTICS_COST_MEANING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "scheduler/semantics/patterns/frame.h"
#include "scheduler/semantics/patterns/pattern.h"

namespace djinn::semantics {

enum class Phase : uint8_t {
  kUnspecified = 0,
  kForward = 1,
  kLlmPrefill = 2,
  kLlmDecode = 3,
  kVisionEncoding = 4,
  kVisionDecoding = 5,
  kMultimodalFusion = 6,
  kTraining = 7,
};
inline constexpr int kPhaseCount = 8;

enum class Modality : uint8_t {
  kUnspecified = 0,
  kText = 1,
  kVision = 2,
  kAudio = 3,
  kFusion = 4,
};

enum class Residency : uint8_t {
  kUnspecified = 0,
  kEphemeralActivation = 1,
  kPersistentWeight = 2,
  kStatefulKvCache = 3,
  kGradient = 4,
};

enum class WorkloadClass : uint8_t {
  kUnspecified = 0,
  kTransformer = 1,
  kCnn = 2,
  kRnn = 3,
  kRecommender = 4,
  kMultimodal = 5,
};

enum class TaskType : uint8_t {
  kUnspecified = 0,
  kClassification = 1,
  kGeneration = 2,
  kEmbedding = 3,
  kTraining = 4,
};

struct Cost {
  uint64_t flops = 0;
  uint64_t read_bytes = 0;
  uint64_t written_bytes = 0;

  uint64_t bytes() const { return read_bytes + written_bytes; }
  Cost& operator+=(const Cost& other) {
    flops += other.flops;
    read_bytes += other.read_bytes;
    written_bytes += other.written_bytes;
    return *this;
  }
};

struct NodeMeaning {
  Phase phase = Phase::kUnspecified;
  std::string role;
  Modality modality = Modality::kUnspecified;
  Cost cost;
  uint32_t stage = 0;
  int region = -1;
  bool parallelizable = false;
};

struct SlotMeaning {
  Residency residency = Residency::kUnspecified;
  uint64_t size_bytes = 0;
  uint32_t first_node = 0;
  uint32_t last_node = 0;
  // Modality of the value that another graph left in this storage, and whether
  // an embedding computed it. The proto does not have these fields.
  Modality source = Modality::kUnspecified;
  bool embedded = false;
};

struct Edge {
  uint32_t producer = 0;
  uint32_t consumer = 0;
  // The operand of the consumer; points into the graph.
  const srg::TensorView* view = nullptr;
  uint64_t size_bytes = 0;
  double rate = 0;
  double criticality = 0;
};

struct Stage {
  uint32_t first_node = 0;
  uint32_t node_count = 0;
  Phase phase = Phase::kUnspecified;
  Modality modality = Modality::kUnspecified;
  Cost cost;
  uint64_t weight_bytes = 0;
  uint64_t kv_cache_bytes = 0;
  std::vector<uint32_t> inputs;
  uint64_t input_bytes = 0;
};

// The result of a product with a weight, or rows scaled to length one, that a
// graph leaves for another one. Context recognizes such rows by `key`.
struct Projection {
  std::pair<srg::DataType, uint64_t> key;
  srg::Dimensions sizes;  // of the rows
  int64_t in = 0;         // width before
  // True when the rows were scaled to length one rather than projected.
  bool unit = false;
  // True when only some of these rows are left, and the run decides how many.
  bool part = false;

  bool operator==(const Projection&) const = default;
};

// Says whether the graph can be cut along the batch of its inputs that are
// neither weights nor caches (batch_cut.h).
struct BatchMeaning {
  int64_t rows = 0;  // 0: `problem` says why not
  std::vector<uint32_t> input_slots;
  std::vector<uint32_t> output_slots;
  std::string problem;
};

// Points into the graph that it describes.
struct Meaning {
  std::vector<NodeMeaning> nodes;
  std::vector<SlotMeaning> slots;
  std::vector<Edge> edges;
  std::vector<Region> regions;
  std::vector<Stage> stages;
  WorkloadClass workload_class = WorkloadClass::kUnspecified;
  TaskType task_type = TaskType::kUnspecified;
  Phase phase = Phase::kUnspecified;
  Modality modality = Modality::kUnspecified;
  Cost cost;
  uint64_t peak_bytes = 0;
  uint64_t weight_bytes = 0;
  uint64_t kv_cache_bytes = 0;
  BatchMeaning batch;
  // Projections of images or sound that belong to no known fusion. The proto
  // does not have this field.
  std::vector<Projection> left_projections;
};

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_COST_MEANING_H_
