#include "gpu_worker/device/torch/device_speed.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/dispatch/Dispatcher.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/srg/graph.h"
#include "common/torch/schema_hash.h"
#include "gpu_worker/device/operator_library.h"

namespace djinn::worker {
namespace {

constexpr int kTries = 5;
// The least time that the further calls must take together to stand out from
// noise.
constexpr absl::Duration kEnough = absl::Milliseconds(4);
// Numbers of calls in the chains that are compared.
constexpr uint32_t kShort = 2;
constexpr uint32_t kLong = 6;
constexpr uint32_t kShortSmall = 50;
constexpr uint32_t kLongSmall = 250;
// A matrix's side and a vector's length start at the least value and double
// until the calls take long enough.
constexpr int64_t kLeastSide = 512;
constexpr int64_t kMostSide = 4096;
constexpr int64_t kLeastElements = 1 << 21;
constexpr int64_t kMostElements = 1 << 26;

srg::TensorView View(uint32_t slot, const srg::Dimensions& sizes) {
  srg::TensorView view;
  view.slot = slot;
  view.data_type = srg::DataType::kFloat32;
  view.sizes = sizes;
  view.strides.resize(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    view.strides[i] = stride;
    stride *= sizes[i];
  }
  return view;
}

// A chain of calls of one operator. Each takes the result of the one before it;
// a product's second operand is the operand of the first call.
class Chain {
 public:
  static absl::StatusOr<Chain> Make(Device* device, const char* op,
                                    srg::Dimensions sizes, uint32_t calls) {
    const auto handle = c10::Dispatcher::singleton().findSchema({op, ""});
    if (!handle.has_value()) {
      return MakeError(absl::StatusCode::kInternal, "OPERATOR_UNKNOWN",
                       absl::StrCat("there is no operator ", op));
    }
    srg::Graph graph;
    graph.operators.push_back({op, "", SchemaHash(handle->schema())});
    graph.slots.resize(calls + 1);
    graph.slots[0].kind = srg::Slot::Kind::kBound;
    const size_t operands = handle->schema().arguments().size();
    for (uint32_t i = 0; i < calls; ++i) {
      graph.slots[i + 1].kind = srg::Slot::Kind::kResult;
      srg::Node node;
      node.arguments.assign(operands, View(0, sizes));
      node.arguments[0] = View(i, sizes);
      node.results.push_back(View(i + 1, sizes));
      graph.nodes.push_back(std::move(node));
    }
    int64_t bytes = sizeof(float);
    for (const int64_t size : sizes) bytes *= size;
    Chain chain;
    chain.device_ = device;
    chain.slots_.resize(calls + 1);
    DJINN_ASSIGN_OR_RETURN(chain.slots_[0],
                           device->Allocate(static_cast<uint64_t>(bytes)));
    DJINN_ASSIGN_OR_RETURN(chain.program_, device->operators()->Compile(graph));
    return chain;
  }

  // Executes the calls and waits for the last.
  absl::Status Run() {
    const std::unique_ptr<DeviceRun> run = program_->BeginRun();
    std::vector<NodeResult> results;
    for (uint32_t i = 0; i + 1 < slots_.size(); ++i) {
      NodeInput input{slots_, {}, {}};
      // Like a session's calls, these take their tenant's memory again, which
      // needs no clearing.
      static const std::string* const kTenant = new std::string("calibration");
      input.tenant = kTenant;
      input.run = run.get();
      results.clear();
      DJINN_RETURN_IF_ERROR(program_->Execute(i, input, &results));
      slots_[i + 1] = std::move(results[0].buffer);
      if (i > 0) slots_[i] = nullptr;
    }
    absl::Status status;
    if (run != nullptr) {
      std::vector<LateFailure> failures;
      status = run->Settle(&failures);
      if (status.ok() && !failures.empty()) status = failures[0].status;
      run->End(/*plain=*/false);
    }
    if (status.ok()) {
      status = device_->HostRange(slots_.back(), 0, sizeof(float)).status();
    }
    slots_.back() = nullptr;
    return status;
  }

 private:
  Device* device_ = nullptr;
  std::unique_ptr<CompiledProgram> program_;
  std::vector<std::shared_ptr<Buffer>> slots_;
};

// Returns the time that a call adds to a chain.
absl::StatusOr<absl::Duration> TimePerCall(Device* device, Clock* clock,
                                           const char* op,
                                           const srg::Dimensions& sizes,
                                           uint32_t few, uint32_t many) {
  absl::Duration took[2];
  const uint32_t calls[2] = {few, many};
  for (int i = 0; i < 2; ++i) {
    DJINN_ASSIGN_OR_RETURN(Chain chain,
                           Chain::Make(device, op, sizes, calls[i]));
    // Warms up: the first run loads kernels and libraries.
    DJINN_RETURN_IF_ERROR(chain.Run());
    took[i] = absl::InfiniteDuration();
    for (int j = 0; j < kTries; ++j) {
      const absl::Duration start = clock->Monotonic();
      DJINN_RETURN_IF_ERROR(chain.Run());
      took[i] = std::min(took[i], clock->Monotonic() - start);
    }
  }
  return (took[1] - took[0]) / (many - few);
}

absl::Status CheckMeasured(absl::Duration per_call, const char* op) {
  if (per_call > absl::ZeroDuration()) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kFailedPrecondition, "SPEED_NOT_MEASURED",
      absl::StrCat("more calls of ", op, " took no longer than fewer"));
}

// Returns the work per second; `work_of` gives the work of a call by its size.
template <typename SizesOf, typename WorkOf>
absl::StatusOr<double> Rate(Device* device, Clock* clock, const char* op,
                            int64_t least, int64_t most, SizesOf sizes_of,
                            WorkOf work_of) {
  for (int64_t size = least;; size *= 2) {
    DJINN_ASSIGN_OR_RETURN(
        const absl::Duration per_call,
        TimePerCall(device, clock, op, sizes_of(size), kShort, kLong));
    if (per_call * (kLong - kShort) < kEnough && size * 2 <= most) continue;
    DJINN_RETURN_IF_ERROR(CheckMeasured(per_call, op));
    return work_of(size) / absl::ToDoubleSeconds(per_call);
  }
}

}  // namespace

absl::StatusOr<v1::DeviceSpeed> MeasureDeviceSpeed(Device* device,
                                                   Clock* clock) {
  // A chain holds three tensors at a time.
  const auto room = static_cast<int64_t>(
      std::min<uint64_t>(device->memory_bytes() / 8 / 3 / sizeof(float),
                         uint64_t{kMostSide} * kMostSide * 8));
  int64_t most_side = kLeastSide;
  while (most_side < kMostSide && 4 * most_side * most_side <= room) {
    most_side *= 2;
  }
  const absl::Cleanup release = [device] { device->ReleaseUnusedMemory(); };
  v1::DeviceSpeed speed;
  DJINN_ASSIGN_OR_RETURN(
      const double flops,
      Rate(
          device, clock, "aten::mm", kLeastSide, most_side,
          [](int64_t side) { return srg::Dimensions{side, side}; },
          [](int64_t side) {
            return 2.0 * static_cast<double>(side) * static_cast<double>(side) *
                   static_cast<double>(side);
          }));
  DJINN_ASSIGN_OR_RETURN(
      const double bytes,
      Rate(
          device, clock, "aten::relu", kLeastElements,
          std::max(kLeastElements, std::min(kMostElements, room)),
          [](int64_t elements) { return srg::Dimensions{elements}; },
          [](int64_t elements) {
            return 2.0 * sizeof(float) * static_cast<double>(elements);
          }));
  DJINN_ASSIGN_OR_RETURN(
      const absl::Duration call,
      TimePerCall(device, clock, "aten::relu", {1}, kShortSmall, kLongSmall));
  DJINN_RETURN_IF_ERROR(CheckMeasured(call, "aten::relu"));
  speed.set_flops_per_second(flops);
  speed.set_bytes_per_second(bytes);
  speed.set_seconds_per_call(absl::ToDoubleSeconds(call));
  return speed;
}

}  // namespace djinn::worker
