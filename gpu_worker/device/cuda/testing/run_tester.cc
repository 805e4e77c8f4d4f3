#include "gpu_worker/device/cuda/testing/run_tester.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ATen/core/dispatch/Dispatcher.h"
#include "common/srg/proto_codec.h"
#include "common/torch/schema_hash.h"
#include "djinn/v1/execution.pb.h"
#include "gpu_worker/device/torch/torch_buffer.h"
#include "gpu_worker/plan/admission.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

template <typename Element>
std::string BytesOf(const std::vector<Element>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()),
                     values.size() * sizeof(Element));
}

}  // namespace

srg::TensorView AtenGraph::View(uint32_t slot, srg::Dimensions sizes,
                                srg::DataType type) {
  srg::TensorView view;
  view.slot = slot;
  view.data_type = type;
  view.strides.assign(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;) {
    view.strides[d - 1] = view.strides[d] * sizes[d];
  }
  view.sizes = std::move(sizes);
  return view;
}

uint32_t AtenGraph::Slot(srg::Slot::Kind kind, uint64_t created_bytes) {
  graph_.slots.push_back({kind, created_bytes});
  return static_cast<uint32_t>(graph_.slots.size() - 1);
}

srg::Node& AtenGraph::Call(const std::string& op, const std::string& overload,
                           std::vector<srg::Argument> arguments,
                           std::vector<srg::Result> results) {
  const std::string name = "aten::" + op;
  size_t index = 0;
  while (index < graph_.operators.size() &&
         (graph_.operators[index].name != name ||
          graph_.operators[index].overload != overload)) {
    ++index;
  }
  if (index == graph_.operators.size()) {
    const c10::OperatorHandle handle =
        c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(),
                                                       overload.c_str());
    graph_.operators.push_back({name, overload, SchemaHash(handle.schema())});
  }
  srg::Node node;
  node.operator_index = static_cast<uint32_t>(index);
  node.arguments = std::move(arguments);
  node.results = std::move(results);
  graph_.nodes.push_back(std::move(node));
  return graph_.nodes.back();
}

uint32_t AtenGraph::Add(uint32_t x, uint32_t y, int64_t count) {
  const uint32_t r = Result();
  Call("add", "Tensor", {View(x, {count}), View(y, {count}), int64_t{1}},
       {View(r, {count})});
  return r;
}

uint32_t AtenGraph::Multiply(uint32_t x, uint32_t y, int64_t count) {
  const uint32_t r = Result();
  Call("mul", "Tensor", {View(x, {count}), View(y, {count})},
       {View(r, {count})});
  return r;
}

void AtenGraph::AddInPlace(uint32_t x, uint32_t y, int64_t count) {
  Call("add_", "Tensor", {View(x, {count}), View(y, {count}), int64_t{1}})
      .writes = {x};
}

uint32_t AtenGraph::Embedding(uint32_t table, uint32_t indices, int64_t rows,
                              int64_t width, int64_t count) {
  const uint32_t r = Result();
  Call("embedding", "",
       {View(table, {rows, width}),
        View(indices, {count}, srg::DataType::kInt64), int64_t{-1}, false,
        false},
       {View(r, {count, width})});
  return r;
}

RunTester::RunTester(bool records, GraphStore::Options graphs) {
  auto accelerator = std::make_unique<FakeAccelerator>();
  accelerator_ = accelerator.get();
  if (records) accelerator_->SetRecorder(&recorder_);
  StreamDeviceOptions options;
  options.staging = {.block_bytes = 16, .blocks = 3};
  options.graphs = graphs;
  device_ = MakeStreamDevice(std::move(accelerator), {}, options);
  memory_ = std::make_unique<DeviceMemory>(device_.get(), &ledger_);
}

RunTester::RunTester(std::unique_ptr<Device> device)
    : device_(std::move(device)),
      memory_(std::make_unique<DeviceMemory>(device_.get(), &ledger_)) {}

RunTester::~RunTester() {
  if (accelerator_ == nullptr) return;
  EXPECT_EQ(accelerator_->freed_too_early(), 0u);
  EXPECT_EQ(accelerator_->read_too_early(), 0u);
}

std::shared_ptr<const Plan> RunTester::Admit(const AtenGraph& graph) {
  const absl::StatusOr<worker::Admitted> admitted =
      worker::Admit(srg::ToProto(graph.get()), srg::GraphCaps(), "red", &cache_,
                    device_->operators());
  EXPECT_TRUE(admitted.ok()) << admitted.status();
  return admitted->plan;
}

uint64_t RunTester::Install(const std::string& bytes) {
  const uint64_t id = next_id_++;
  Storage* const storage = storages_.Create(id);
  storage->version = 1;
  storage->size_bytes = bytes.size();
  storage->buffer = device_->AllocateUnset(bytes.size()).value();
  storage->quota = quota_.Reserve(bytes.size()).value();
  EXPECT_TRUE(device_->Write(storage->buffer.get(), 0, bytes).ok());
  return id;
}

uint64_t RunTester::Upload(const Floats& values) {
  return Install(BytesOf(values));
}

uint64_t RunTester::UploadIndices(const std::vector<int64_t>& values) {
  return Install(BytesOf(values));
}

uint64_t RunTester::SeededGenerator(uint64_t seed) {
  const uint64_t id = next_id_++;
  Storage* const storage = storages_.Create(id);
  storage->version = 1;
  storage->generator = true;
  storage->buffer = device_->operators()->SeedGenerator(seed).value();
  storage->size_bytes = storage->buffer->size_bytes();
  return id;
}

void RunTester::Replace(uint64_t id, const Floats& values) {
  Storage* const storage = storages_.Find(id);
  const std::string bytes = BytesOf(values);
  std::shared_ptr<Buffer> buffer = device_->AllocateUnset(bytes.size()).value();
  EXPECT_TRUE(device_->Write(buffer.get(), 0, bytes).ok());
  storage->buffer = std::move(buffer);
}

void RunTester::WriteInPlace(uint64_t id, const Floats& values) {
  EXPECT_TRUE(
      device_->Write(storages_.Find(id)->buffer.get(), 0, BytesOf(values))
          .ok());
}

void RunTester::Free(uint64_t id) { storages_.Remove(id); }

const void* RunTester::Address(uint64_t id) {
  return static_cast<const TorchBuffer&>(*storages_.Find(id)->buffer).data();
}

std::vector<uint64_t> RunTester::Run(const Plan& plan,
                                     std::vector<uint64_t> bound,
                                     std::vector<double> floats,
                                     std::vector<uint32_t> final_slots) {
  v1::Run run;
  std::vector<uint64_t> ids;
  size_t next = 0;
  for (size_t i = 0; i < plan.graph().slots.size(); ++i) {
    const srg::Slot::Kind kind = plan.graph().slots[i].kind;
    v1::Binding* const binding = run.add_bindings();
    if (kind == srg::Slot::Kind::kBound ||
        kind == srg::Slot::Kind::kGenerator) {
      binding->set_storage(bound[next++]);
      binding->set_base_version(storages_.Find(binding->storage())->version);
    } else {
      binding->set_storage(next_id_++);
    }
    binding->set_writes(plan.facts().slots[i].writes);
    binding->set_reads(plan.facts().slots[i].reads);
    ids.push_back(binding->storage());
  }
  for (const double value : floats) run.add_float_holes(value);
  for (const uint32_t slot : final_slots) run.add_final_slots(slot);
  run.set_reply_metadata(plan.facts().unknown_results > 0);
  BoundRun bound_run;
  absl::Status status = BindRun(run, &plan, {}, storages_, &bound_run);
  status.Update(CheckRun(plan, bound_run, storages_));
  EXPECT_TRUE(status.ok()) << status;
  const RunContext context{++sequence_, "t",           &storages_, &quota_,
                           &errors_,    memory_.get(), &counters_, &cancelled_};
  v1::RunMetadata metadata;
  ExecuteRun(plan, bound_run, LifetimesOf(plan, bound_run.final_slots), context,
             &metadata);
  return ids;
}

std::string RunTester::Bytes(uint64_t id) {
  EXPECT_EQ(Poison(id), nullptr) << Poison(id)->message();
  const absl::StatusOr<SharedBytes> bytes =
      device_->HostBytes(storages_.Find(id)->buffer);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return bytes.ok() ? std::string(bytes->bytes) : "";
}

Floats RunTester::Values(uint64_t id) {
  const std::string bytes = Bytes(id);
  Floats values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

uint64_t RunTester::Count(const std::string& event) {
  for (const auto& [name, count] : device_->Counts()) {
    if (name == event) return count;
  }
  return 0;
}

}  // namespace djinn::worker
