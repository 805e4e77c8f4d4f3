// Builds small graphs by hand, for tests.
#ifndef SCHEDULER_SEMANTICS_ANALYSIS_TESTING_H_
#define SCHEDULER_SEMANTICS_ANALYSIS_TESTING_H_

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/srg/graph.h"
#include "common/srg/validate.h"
#include "scheduler/semantics/patterns/pattern.h"
#include "scheduler/semantics/patterns/patterns.h"
#include "scheduler/semantics/patterns/products.h"

namespace djinn::semantics {

using Shape = std::vector<int64_t>;

// Builds a graph call by call; calls become nodes in order. All storages are
// contiguous, except those changed by Lay().
class Builder {
 public:
  // Adds a tensor that exists before the run.
  srg::TensorView Bound(Shape sizes,
                        srg::DataType type = srg::DataType::kFloat32) {
    graph_.slots.push_back({srg::Slot::Kind::kBound});
    return View(LastSlot(), std::move(sizes), type);
  }
  srg::TensorView Integers(Shape sizes) {
    return Bound(std::move(sizes), srg::DataType::kInt64);
  }

  // Adds a call that returns one new tensor.
  srg::TensorView Call(const std::string& op,
                       std::vector<srg::Argument> arguments, Shape sizes,
                       srg::DataType type = srg::DataType::kFloat32,
                       const std::string& overload = "") {
    srg::Node& node = AddNode(op, std::move(arguments), overload);
    graph_.slots.push_back({srg::Slot::Kind::kResult});
    node.results.push_back(View(LastSlot(), std::move(sizes), type));
    return std::get<srg::TensorView>(node.results[0]);
  }
  srg::TensorView Convolve(const srg::TensorView& x, Shape weight,
                           int64_t stride, Shape out) {
    return Call(
        "conv2d",
        {x, Bound(weight), std::monostate(),
         std::vector<int64_t>{stride, stride}, std::vector<int64_t>{0, 0}},
        std::move(out));
  }
  // Adds a call that returns one new tensor whose sizes the run decides.
  void CallUnknown(const std::string& op,
                   std::vector<srg::Argument> arguments) {
    srg::Node& node = AddNode(op, std::move(arguments));
    graph_.slots.push_back({srg::Slot::Kind::kResult});
    node.results.push_back(srg::UnknownResult{LastSlot()});
  }
  // Gives the result of the last call these strides.
  srg::TensorView Lay(Shape strides) {
    auto& made = std::get<srg::TensorView>(graph_.nodes.back().results.back());
    made.strides.assign(strides.begin(), strides.end());
    return made;
  }
  // Adds a call that returns one new tensor and draws from a generator of its
  // own.
  srg::TensorView Draw(const std::string& op,
                       std::vector<srg::Argument> arguments, Shape sizes) {
    const srg::TensorView drawn =
        Call(op, std::move(arguments), std::move(sizes));
    graph_.slots.push_back({srg::Slot::Kind::kGenerator});
    graph_.nodes.back().implicit_generator_slot = LastSlot();
    return drawn;
  }
  // Adds a tensor of zeros that is created at its first use.
  srg::TensorView Created(Shape sizes) {
    uint64_t bytes = srg::ElementSize(srg::DataType::kFloat32);
    for (const int64_t size : sizes) bytes *= static_cast<uint64_t>(size);
    graph_.slots.push_back({srg::Slot::Kind::kCreated, bytes});
    return View(LastSlot(), std::move(sizes), srg::DataType::kFloat32);
  }
  // Adds a call that writes its first argument and returns it.
  srg::TensorView Write(const std::string& op,
                        std::vector<srg::Argument> arguments) {
    const srg::TensorView view = std::get<srg::TensorView>(arguments[0]);
    AddNode(op, std::move(arguments)).writes = {view.slot};
    return view;
  }
  // Adds y = x W^T with a weight of its own.
  srg::TensorView Linear(const srg::TensorView& x, int64_t out) {
    Shape sizes(x.sizes.begin(), x.sizes.end());
    const srg::TensorView weight = Bound({out, sizes.back()});
    sizes.back() = out;
    return Call("linear", {x, weight, std::monostate()}, sizes);
  }

  int last() const { return static_cast<int>(graph_.nodes.size()) - 1; }
  const srg::Graph& graph() const { return graph_; }

  // Returns a view of the same elements with other sizes.
  static srg::TensorView As(srg::TensorView view, Shape sizes) {
    return View(view.slot, std::move(sizes), view.data_type);
  }
  // Returns the transpose of a matrix.
  static srg::TensorView Transposed(srg::TensorView view) {
    std::swap(view.sizes[0], view.sizes[1]);
    std::swap(view.strides[0], view.strides[1]);
    return view;
  }

 private:
  uint32_t LastSlot() const {
    return static_cast<uint32_t>(graph_.slots.size() - 1);
  }

  static srg::TensorView View(uint32_t slot, Shape sizes, srg::DataType type) {
    srg::TensorView view;
    view.slot = slot;
    view.data_type = type;
    view.sizes.assign(sizes.begin(), sizes.end());
    view.strides.resize(sizes.size());
    int64_t stride = 1;
    for (size_t k = sizes.size(); k-- > 0;) {
      view.strides[k] = stride;
      stride *= std::max<int64_t>(sizes[k], 1);
    }
    return view;
  }

  srg::Node& AddNode(const std::string& op,
                     std::vector<srg::Argument> arguments,
                     const std::string& overload = "") {
    const auto found = std::find_if(
        graph_.operators.begin(), graph_.operators.end(),
        [&](const srg::Operator& known) {
          return known.name == "aten::" + op && known.overload == overload;
        });
    const auto index = static_cast<uint32_t>(found - graph_.operators.begin());
    if (found == graph_.operators.end()) {
      graph_.operators.push_back({"aten::" + op, overload, 0});
    }
    graph_.nodes.push_back({index, std::move(arguments)});
    return graph_.nodes.back();
  }

  srg::Graph graph_;
};

// Applies all patterns, in their order, to a graph.
class Found {
 public:
  explicit Found(const Builder& builder)
      : graph_(builder.graph()),
        valid_(srg::Validate(graph_, {}).ok()),
        frame_(graph_),
        regions_(frame_.node_count()) {
    for (const Pattern* const pattern : AllPatterns()) {
      pattern->Match(frame_, &regions_);
    }
    AddFoldingCopies(frame_, &regions_);
  }

  bool valid() const { return valid_; }
  const Frame& frame() const { return frame_; }
  const Regions& regions() const { return regions_; }
  std::string role(int node) const { return std::string(regions_.role(node)); }
  std::vector<std::string> roles() const {
    std::vector<std::string> roles;
    for (int i = 0; i < frame_.node_count(); ++i) roles.push_back(role(i));
    return roles;
  }
  std::vector<std::string> traits(int node) const {
    return regions_.all()[regions_.region_of(node)].traits;
  }

 private:
  const srg::Graph graph_;
  const bool valid_;
  const Frame frame_;
  Regions regions_;
};

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ANALYSIS_TESTING_H_
