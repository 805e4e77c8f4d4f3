// Builds graphs of the fake device's operators, for tests.
//
//   FakeGraph s;
//   const uint32_t x = s.Bound();
//   const uint32_t y = s.Add(x, x, 4);     // y = x + x, four elements
//   s.FillInPlace(y, 4);                   // y.fill_(float hole)
#ifndef GPU_WORKER_DEVICE_FAKE_FAKE_GRAPH_H_
#define GPU_WORKER_DEVICE_FAKE_FAKE_GRAPH_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/srg/graph.h"
#include "gpu_worker/device/fake/fake_device.h"

namespace djinn::worker {

class FakeGraph {
 public:
  static srg::TensorView View(uint32_t slot, int64_t count,
                              int64_t offset = 0) {
    return {slot, srg::DataType::kFloat32, {count}, {1}, offset};
  }

  uint32_t Slot(srg::Slot::Kind kind, uint64_t created_bytes = 0) {
    graph_.slots.push_back({kind, created_bytes});
    return static_cast<uint32_t>(graph_.slots.size() - 1);
  }
  uint32_t Bound() { return Slot(srg::Slot::Kind::kBound); }
  uint32_t Generator() { return Slot(srg::Slot::Kind::kGenerator); }
  uint32_t Created(uint64_t bytes) {
    return Slot(srg::Slot::Kind::kCreated, bytes);
  }

  srg::Argument Hole() { return srg::FloatHole{graph_.float_hole_count++}; }

  srg::Node& Call(const std::string& name, std::vector<srg::Argument> arguments,
                  std::vector<srg::Result> results = {}) {
    size_t op = 0;
    while (op < graph_.operators.size() && graph_.operators[op].name != name) {
      ++op;
    }
    if (op == graph_.operators.size()) {
      graph_.operators.push_back({name, "", kFakeSchemaHash});
    }
    srg::Node node;
    node.operator_index = static_cast<uint32_t>(op);
    node.arguments = std::move(arguments);
    node.results = std::move(results);
    graph_.nodes.push_back(std::move(node));
    return graph_.nodes.back();
  }

  // Appends a one-operand operator with one result of the same size.
  uint32_t Unary(const std::string& name, uint32_t x, int64_t count) {
    const uint32_t r = Slot(srg::Slot::Kind::kResult);
    Call(name, {View(x, count)}, {View(r, count)});
    return r;
  }
  uint32_t Add(uint32_t x, uint32_t y, int64_t count) {
    const uint32_t r = Slot(srg::Slot::Kind::kResult);
    Call("fake::add", {View(x, count), View(y, count)}, {View(r, count)});
    return r;
  }
  // Multiplies x by the first element of w, row by row: each element is a row.
  uint32_t Scale(uint32_t x, uint32_t w, int64_t count) {
    const uint32_t r = Slot(srg::Slot::Kind::kResult);
    Call("fake::scale", {View(x, count), View(w, 1)}, {View(r, count)});
    return r;
  }
  void AddInPlace(uint32_t x, uint32_t y, int64_t count) {
    Call("fake::add_", {View(x, count), View(y, count)}).writes = {x};
  }
  // x[offset : offset + count].fill_(float hole)
  void FillInPlace(uint32_t x, int64_t count, int64_t offset = 0) {
    srg::Argument hole = Hole();
    srg::Node& node =
        Call("fake::fill_", {View(x, count, offset), std::move(hole)});
    node.writes = {x};
    node.overwrites = {x};
  }
  void FailInPlace(uint32_t x, int64_t count) {
    Call("fake::fail_", {View(x, count)}).writes = {x};
  }
  uint32_t Draw(uint32_t generator, int64_t count) {
    const uint32_t r = Slot(srg::Slot::Kind::kResult);
    Call("fake::draw", {count}, {View(r, count)}).implicit_generator_slot =
        generator;
    return r;
  }
  uint32_t Nonzero(uint32_t x, int64_t count) {
    const uint32_t r = Slot(srg::Slot::Kind::kResult);
    Call("fake::nonzero", {View(x, count)}, {srg::UnknownResult{r}});
    return r;
  }

  const srg::Graph& get() const { return graph_; }

 private:
  srg::Graph graph_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_FAKE_FAKE_GRAPH_H_
