#include "gpu_worker/session/fuzz/permissive_device.h"

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "common/base/status_macros.h"

namespace djinn::worker {
namespace {

class PermissiveProgram : public CompiledProgram {
 public:
  PermissiveProgram(Device* device, srg::Graph graph)
      : device_(device), graph_(std::move(graph)) {}

  absl::Status Execute(uint32_t index, const NodeInput& input,
                       std::vector<NodeResult>* results) const override {
    const srg::Node& node = graph_.nodes[index];
    // Touches every byte that the executor lets the operator touch.
    srg::ForEachOperand(node, [&](const srg::TensorView& view) {
      const uint64_t extent = srg::ExtentBytes(view).value();
      (void)device_->HostBytes(input.slots[view.slot])
          .value()
          .bytes.substr(0, extent);
    });
    for (const uint32_t slot : node.writes) {
      Buffer* const buffer = input.slots[slot].get();
      DJINN_RETURN_IF_ERROR(
          device_->Write(buffer, 0, std::string(buffer->size_bytes(), '\x3c')));
    }
    std::vector<NodeResult> made;
    for (const srg::Result& result : node.results) {
      if (std::holds_alternative<srg::UndefinedResult>(result)) {
        made.emplace_back();
        continue;
      }
      srg::TensorView view;
      view.data_type = srg::DataType::kFloat32;
      view.sizes = {3};
      view.strides = {1};
      if (const auto* inferred = std::get_if<srg::TensorView>(&result)) {
        view = *inferred;
      }
      DJINN_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> buffer,
                             device_->Allocate(srg::ExtentBytes(view).value()));
      made.push_back({std::move(buffer), std::move(view), std::nullopt});
    }
    for (NodeResult& result : made) results->push_back(std::move(result));
    return absl::OkStatus();
  }

 private:
  Device* const device_;
  const srg::Graph graph_;
};

class PermissiveLibrary : public OperatorLibrary {
 public:
  PermissiveLibrary(Device* device, OperatorLibrary* fakes)
      : device_(device), fakes_(fakes) {}

  absl::StatusOr<std::unique_ptr<CompiledProgram>> Compile(
      const srg::Graph& graph) override {
    for (const srg::Operator& op : graph.operators) {
      if (absl::StartsWith(op.name, "fake::")) return fakes_->Compile(graph);
    }
    return std::make_unique<PermissiveProgram>(device_, graph);
  }
  absl::StatusOr<uint64_t> GeneratorBytes() override {
    return fakes_->GeneratorBytes();
  }
  absl::StatusOr<std::shared_ptr<Buffer>> SeedGenerator(
      uint64_t seed) override {
    return fakes_->SeedGenerator(seed);
  }
  absl::Status CheckGenerator(absl::string_view state) override {
    return fakes_->CheckGenerator(state);
  }

 private:
  Device* const device_;
  OperatorLibrary* const fakes_;
};

}  // namespace

PermissiveDevice::PermissiveDevice(uint64_t memory_bytes)
    : FakeDevice(memory_bytes),
      library_(
          std::make_unique<PermissiveLibrary>(this, FakeDevice::operators())) {}

PermissiveDevice::~PermissiveDevice() = default;

}  // namespace djinn::worker
