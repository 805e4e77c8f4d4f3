// Makes valid messages to a worker, which tests send or change.
#ifndef TESTS_E2E_WIRE_MESSAGES_H_
#define TESTS_E2E_WIRE_MESSAGES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/dispatch/Dispatcher.h"
#include "common/hash/crc32c.h"
#include "common/hash/hash.h"
#include "common/torch/schema_hash.h"
#include "djinn/v1/execution.pb.h"

namespace djinn {

inline constexpr int64_t kFloats = 4;

inline std::string FloatBytes(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(float)};
}
inline const std::string& Values() {
  static const std::string* const values =
      new std::string(FloatBytes({1, 2, 3, 4}));
  return *values;
}

inline v1::TensorView View(uint32_t slot,
                           std::vector<int64_t> sizes = {kFloats},
                           std::vector<int64_t> strides = {1},
                           int64_t offset = 0) {
  v1::TensorView view;
  view.set_slot(slot);
  view.set_data_type(v1::DATA_TYPE_FLOAT32);
  for (const int64_t size : sizes) view.add_sizes(size);
  for (const int64_t stride : strides) view.add_strides(stride);
  view.set_storage_offset(offset);
  return view;
}

inline v1::Operator Op(const std::string& name,
                       const std::string& overload = "") {
  v1::Operator op;
  op.set_name(name);
  op.set_overload(overload);
  const auto known = c10::Dispatcher::singleton().findSchema(
      c10::OperatorName(name, overload));
  if (known.has_value()) op.set_schema_hash(SchemaHash(known->schema()));
  return op;
}

// r = x + x
inline v1::Graph Add() {
  v1::Graph graph;
  *graph.add_operators() = Op("aten::add", "Tensor");
  graph.add_slots()->set_kind(v1::Slot::BOUND);
  graph.add_slots()->set_kind(v1::Slot::RESULT);
  v1::Node* node = graph.add_nodes();
  *node->add_arguments()->mutable_tensor() = View(0);
  *node->add_arguments()->mutable_tensor() = View(0);
  node->add_arguments()->set_integer(1);
  *node->add_results()->mutable_view() = View(1);
  return graph;
}
// r = x + hole
inline v1::Graph AddNumber() {
  v1::Graph graph = Add();
  *graph.mutable_operators(0) = Op("aten::add", "Scalar");
  graph.mutable_nodes(0)->mutable_arguments(1)->set_float_hole(0);
  graph.set_float_hole_count(1);
  return graph;
}
// r = x + 0-dimensional hole
inline v1::Graph AddScalarTensor() {
  v1::Graph graph = Add();
  v1::ScalarTensor* scalar =
      graph.mutable_nodes(0)->mutable_arguments(1)->mutable_scalar_tensor();
  scalar->set_data_type(v1::DATA_TYPE_FLOAT32);
  graph.set_scalar_tensor_hole_count(1);
  return graph;
}
// r = nonzero(x), of unknown shape
inline v1::Graph Nonzero() {
  v1::Graph graph = Add();
  *graph.mutable_operators(0) = Op("aten::nonzero");
  v1::Node* node = graph.mutable_nodes(0);
  node->mutable_arguments()->DeleteSubrange(1, 2);
  node->mutable_results(0)->set_unknown_in_slot(1);
  return graph;
}
// Returns a graph with a call of an operator whose arguments do not matter.
inline v1::Graph CallOf(const v1::Operator& op) {
  v1::Graph graph = Add();
  *graph.mutable_operators(0) = op;
  return graph;
}

inline v1::Ordered Define(uint64_t id, v1::Graph graph) {
  v1::Ordered message;
  message.mutable_define_graph()->set_graph_id(id);
  *message.mutable_define_graph()->mutable_graph() = std::move(graph);
  return message;
}
inline v1::Ordered RunOf(uint64_t graph, uint64_t bound, uint64_t bound_version,
                         uint64_t created) {
  v1::Ordered message;
  v1::Run* run = message.mutable_run();
  run->set_graph_id(graph);
  v1::Binding* binding = run->add_bindings();
  binding->set_storage(bound);
  binding->set_base_version(bound_version);
  binding->set_reads(true);
  binding = run->add_bindings();
  binding->set_storage(created);
  binding->set_writes(1);
  return message;
}
inline v1::Ordered Install(uint64_t storage, uint64_t base_version,
                           const std::string& bytes) {
  v1::Ordered message;
  message.mutable_install()->set_storage(storage);
  message.mutable_install()->set_base_version(base_version);
  message.mutable_install()->set_inline_value(bytes);
  return message;
}
inline v1::Ordered InstallTransfer(uint64_t storage, uint64_t transfer_id,
                                   uint64_t bytes, ContentHash hash = {1, 2}) {
  v1::Ordered message;
  message.mutable_install()->set_storage(storage);
  v1::Transfer* transfer = message.mutable_install()->mutable_transfer();
  transfer->set_transfer_id(transfer_id);
  transfer->set_size_bytes(bytes);
  transfer->set_hash_high(hash.high);
  transfer->set_hash_low(hash.low);
  return message;
}
inline v1::Ordered Seed(uint64_t storage, uint64_t base_version) {
  v1::Ordered message;
  message.mutable_install()->set_storage(storage);
  message.mutable_install()->set_base_version(base_version);
  message.mutable_install()->mutable_seed()->set_value(1);
  return message;
}
inline v1::Ordered Create(uint64_t storage, uint64_t base_version,
                          uint64_t bytes) {
  v1::Ordered message;
  message.mutable_create_storage()->set_storage(storage);
  message.mutable_create_storage()->set_base_version(base_version);
  message.mutable_create_storage()->set_size_bytes(bytes);
  return message;
}
inline v1::Ordered Read(uint64_t storage, uint64_t version,
                        const v1::TensorView& view = View(0)) {
  v1::Ordered message;
  message.mutable_read()->set_storage(storage);
  message.mutable_read()->set_version(version);
  *message.mutable_read()->mutable_view() = view;
  return message;
}
inline v1::Ordered Free(std::vector<uint64_t> storages) {
  v1::Ordered message;
  for (const uint64_t id : storages) message.mutable_free()->add_storages(id);
  return message;
}
inline v1::BulkChunk Chunk(uint64_t transfer_id, uint64_t offset,
                           const std::string& payload) {
  v1::BulkChunk chunk;
  chunk.set_transfer_id(transfer_id);
  chunk.set_offset(offset);
  chunk.set_crc32c(Crc32c(payload));
  chunk.set_payload(payload);
  return chunk;
}

}  // namespace djinn

#endif  // TESTS_E2E_WIRE_MESSAGES_H_
