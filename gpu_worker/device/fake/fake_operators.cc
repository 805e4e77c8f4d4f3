#include "gpu_worker/device/fake/fake_operators.h"

#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace djinn::worker {
namespace {

struct Signature {
  size_t arguments;
  size_t results;
  bool writes_first = false;
  bool overwrites_first = false;
};

const absl::flat_hash_map<std::string, Signature>& Signatures() {
  static const auto* const signatures =
      new absl::flat_hash_map<std::string, Signature>{
          {"fake::add", {2, 1}},         {"fake::add_", {2, 0, true}},
          {"fake::scale", {2, 1}},       {"fake::fill_", {2, 0, true, true}},
          {"fake::draw", {1, 1}},        {"fake::fail", {1, 1}},
          {"fake::fail_", {1, 0, true}}, {"fake::throw", {1, 1}},
          {"fake::wrong_shape", {1, 1}}, {"fake::alias", {1, 1}},
          {"fake::nonzero", {1, 1}},     {"fake::refused", {1, 1}},
          {"fake::late", {1, 1}},
      };
  return *signatures;
}

// The most elements of one draw.
constexpr int64_t kMaxDrawn = 1 << 20;

// Returns the number of elements of an operand that the operators can take, or
// -1.
int64_t PlainFloats(const srg::Argument& argument) {
  const auto* view = std::get_if<srg::TensorView>(&argument);
  if (view == nullptr || view->data_type != srg::DataType::kFloat32 ||
      !IsPlainContiguous(*view)) {
    return -1;
  }
  return srg::ElementCount(*view).value_or(-1);
}

bool ArgumentsFit(const std::string& name, const srg::Node& node) {
  if (name == "fake::draw") {
    const auto* count = std::get_if<int64_t>(&node.arguments[0]);
    return count != nullptr && *count >= 0 && *count <= kMaxDrawn &&
           node.implicit_generator_slot.has_value();
  }
  const int64_t elements = PlainFloats(node.arguments[0]);
  // An operator that writes before it fails needs something to write.
  if (elements < 0 || (name == "fake::fail_" && elements == 0)) return false;
  if (name == "fake::scale") return PlainFloats(node.arguments[1]) == 1;
  return node.arguments.size() == 1 ||
         std::holds_alternative<srg::FloatHole>(node.arguments[1]) ||
         PlainFloats(node.arguments[1]) >= elements;
}

absl::Status CheckNode(const srg::Graph& graph, const srg::Node& node) {
  const srg::Operator& op = graph.operators[node.operator_index];
  const auto found = Signatures().find(op.name);
  if (found == Signatures().end()) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "OPERATOR_UNKNOWN",
                     op.FullName());
  }
  if (op.name == "fake::refused") {
    return MakeError(absl::StatusCode::kPermissionDenied, "OPERATOR_REFUSED",
                     op.FullName());
  }
  if (op.schema_hash != kFakeSchemaHash) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "SCHEMA_MISMATCH",
                     op.FullName());
  }
  const Signature& signature = found->second;
  std::vector<uint32_t> writes;
  if (signature.writes_first && !node.arguments.empty()) {
    if (const auto* view =
            std::get_if<srg::TensorView>(&node.arguments.front())) {
      writes.push_back(view->slot);
    }
  }
  if (node.arguments.size() != signature.arguments ||
      node.results.size() != signature.results || node.writes != writes ||
      node.overwrites !=
          (signature.overwrites_first ? writes : std::vector<uint32_t>()) ||
      !ArgumentsFit(op.name, node)) {
    return MakeError(absl::StatusCode::kInvalidArgument, "MALFORMED_GRAPH",
                     absl::StrCat(op.FullName(), ": not as its schema says"));
  }
  return absl::OkStatus();
}

// A run of a graph with fake::late.
class FakeRun : public DeviceRun {
 public:
  explicit FakeRun(FakeDevice* device) : device_(device) {}

  void FailLate(uint32_t node) {
    late_.push_back({node, absl::InvalidArgumentError("failed late")});
  }

  absl::Status Settle(std::vector<LateFailure>* failures) override {
    device_->CountSettled();
    for (LateFailure& failure : late_) failures->push_back(std::move(failure));
    late_.clear();
    return device_->settle_status();
  }

 private:
  FakeDevice* const device_;
  std::vector<LateFailure> late_;
};

class FakeProgram : public CompiledProgram {
 public:
  FakeProgram(FakeDevice* device, srg::Graph graph)
      : device_(device), graph_(std::move(graph)) {
    for (uint32_t i = 0; i < graph_.nodes.size(); ++i) {
      const srg::Node& node = graph_.nodes[i];
      if (NameOf(node) != "fake::scale") continue;
      const auto& rows = std::get<srg::TensorView>(node.arguments[0]);
      const auto& weight = std::get<srg::TensorView>(node.arguments[1]);
      products_.push_back({i, weight.slot, srg::ElementCount(rows).value(),
                           static_cast<uint64_t>(weight.storage_offset)});
    }
  }

  std::unique_ptr<DeviceRun> BeginRun() const override {
    for (const srg::Operator& op : graph_.operators) {
      if (op.name == "fake::late") return std::make_unique<FakeRun>(device_);
    }
    return nullptr;
  }

  absl::Span<const RowProduct> products() const override { return products_; }

  absl::Status Execute(uint32_t index, const NodeInput& input,
                       std::vector<NodeResult>* results) const override {
    DJINN_RETURN_IF_ERROR(device_->RunExecuteHook(NameOf(graph_.nodes[index])));
    device_->NoteMostBytes(input.most_bytes);
    return Compute(index, input, results);
  }

  // Executes the node as Execute(), but without calling the hook.
  absl::Status Compute(uint32_t index, const NodeInput& input,
                       std::vector<NodeResult>* results) const {
    const srg::Node& node = graph_.nodes[index];
    const std::string& name = NameOf(node);
    if (name == "fake::draw") return Draw(node, input, results);
    const auto& x = std::get<srg::TensorView>(node.arguments[0]);
    float* const data = Data(x, input);
    const int64_t count = srg::ElementCount(x).value();
    if (name == "fake::throw") throw std::runtime_error("thrown");
    if (name == "fake::fail") return absl::InvalidArgumentError("told to fail");
    if (name == "fake::fail_") {
      data[0] = -1;
      return absl::InvalidArgumentError("told to fail");
    }
    if (name == "fake::alias") {
      results->push_back({input.slots[x.slot], x, x.slot});
      return absl::OkStatus();
    }
    if (name == "fake::fill_") {
      const float value = Other(node, input, 0);
      for (int64_t i = 0; i < count; ++i) data[i] = value;
      return absl::OkStatus();
    }
    if (name == "fake::add_") {
      for (int64_t i = 0; i < count; ++i) data[i] += Other(node, input, i);
      return absl::OkStatus();
    }
    std::vector<float> out;
    if (name == "fake::add") {
      for (int64_t i = 0; i < count; ++i) {
        out.push_back(data[i] + Other(node, input, i));
      }
    } else if (name == "fake::scale") {
      for (int64_t i = 0; i < count; ++i) {
        out.push_back(data[i] * Other(node, input, 0));
      }
    } else if (name == "fake::late") {
      out.assign(data, data + count);
      if (count > 0 && data[0] < 0) {
        static_cast<FakeRun*>(input.run)->FailLate(index);
      }
    } else if (name == "fake::wrong_shape") {
      out.resize(count + 1);
    } else {
      for (int64_t i = 0; i < count; ++i) {
        if (data[i] != 0) out.push_back(static_cast<float>(i));
      }
    }
    return Return(out, results);
  }

 private:
  const std::string& NameOf(const srg::Node& node) const {
    return graph_.operators[node.operator_index].name;
  }

  static float* Data(const srg::TensorView& view, const NodeInput& input) {
    auto* buffer = static_cast<FakeBuffer*>(input.slots[view.slot].get());
    return reinterpret_cast<float*>(buffer->data()) + view.storage_offset;
  }

  // Returns the second operand's element, or a float hole's value.
  static float Other(const srg::Node& node, const NodeInput& input, int64_t i) {
    if (const auto* hole = std::get_if<srg::FloatHole>(&node.arguments[1])) {
      return static_cast<float>(input.floats[hole->index]);
    }
    return Data(std::get<srg::TensorView>(node.arguments[1]), input)[i];
  }

  absl::Status Draw(const srg::Node& node, const NodeInput& input,
                    std::vector<NodeResult>* results) const {
    auto* state = static_cast<FakeBuffer*>(
        input.slots[*node.implicit_generator_slot].get());
    uint64_t next;
    std::memcpy(&next, state->data(), sizeof(next));
    std::vector<float> out(std::get<int64_t>(node.arguments[0]));
    for (float& value : out) value = static_cast<float>(next++);
    DJINN_RETURN_IF_ERROR(Return(out, results));
    std::memcpy(state->data(), &next, sizeof(next));
    return absl::OkStatus();
  }

  absl::Status Return(const std::vector<float>& values,
                      std::vector<NodeResult>* results) const {
    DJINN_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> buffer,
                           device_->Allocate(values.size() * sizeof(float)));
    if (!values.empty()) {
      std::memcpy(static_cast<FakeBuffer*>(buffer.get())->data(), values.data(),
                  values.size() * sizeof(float));
    }
    srg::TensorView view;
    view.data_type = srg::DataType::kFloat32;
    view.sizes = {static_cast<int64_t>(values.size())};
    view.strides = {1};
    results->push_back({std::move(buffer), view, std::nullopt});
    return absl::OkStatus();
  }

  FakeDevice* const device_;
  const srg::Graph graph_;
  std::vector<RowProduct> products_;
};

class FakeOperatorLibrary : public OperatorLibrary {
 public:
  explicit FakeOperatorLibrary(FakeDevice* device) : device_(device) {}

  absl::StatusOr<std::unique_ptr<CompiledProgram>> Compile(
      const srg::Graph& graph) override {
    for (const srg::Node& node : graph.nodes) {
      DJINN_RETURN_IF_ERROR(CheckNode(graph, node));
    }
    return std::make_unique<FakeProgram>(device_, graph);
  }

  // Calls the hook once for the joined node.
  void ExecuteJoined(absl::Span<JoinedCall> calls) override {
    if (!device_->RunExecuteHook("fake::joined").ok()) return;
    for (JoinedCall& call : calls) {
      call.done = static_cast<const FakeProgram*>(call.program)
                      ->Compute(call.node, *call.input, call.results)
                      .ok();
    }
  }

  absl::StatusOr<uint64_t> GeneratorBytes() override {
    return sizeof(uint64_t);
  }

  absl::StatusOr<std::shared_ptr<Buffer>> SeedGenerator(
      uint64_t seed) override {
    DJINN_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> buffer,
                           device_->Allocate(sizeof(seed)));
    std::memcpy(static_cast<FakeBuffer*>(buffer.get())->data(), &seed,
                sizeof(seed));
    return buffer;
  }

  absl::Status CheckGenerator(absl::string_view state) override {
    if (state.size() == sizeof(uint64_t)) return absl::OkStatus();
    return MakeError(absl::StatusCode::kInvalidArgument, "INVALID_GENERATOR",
                     absl::StrCat("a generator's state of ", state.size(),
                                  " bytes, must be ", sizeof(uint64_t)));
  }

 private:
  FakeDevice* const device_;
};

}  // namespace

std::unique_ptr<OperatorLibrary> MakeFakeOperators(FakeDevice* device) {
  return std::make_unique<FakeOperatorLibrary>(device);
}

}  // namespace djinn::worker
