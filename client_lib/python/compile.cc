#include "djinn/compile.h"

#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "client_lib/python/bindings.h"

namespace djinn::python {
namespace {

namespace py = pybind11;

std::vector<at::Tensor> TensorsOf(const py::list& list) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(list.size());
  for (const py::handle item : list) {
    // isinstance() would trust the object's own __class__.
    if (!PyType_IsSubtype(Py_TYPE(item.ptr()),
                          reinterpret_cast<PyTypeObject*>(THPVariableClass))) {
      throw py::type_error("a registered callable takes tensors only");
    }
    tensors.push_back(THPVariable_Unpack(item.ptr()));
  }
  return tensors;
}

// `values` is None, or a function of a captured graph's number that returns its
// values, or None if the call must not be replayed.
py::object Replay(RegisteredCallable& callable, const std::string& key,
                  const py::list& arguments, const py::list& parameters,
                  const py::object& values) {
  const std::vector<at::Tensor> inputs = TensorsOf(arguments);
  const std::vector<at::Tensor> used = TensorsOf(parameters);
  std::optional<RegisteredCallable::Result> result;
  RegisteredCallable::Values read_values;
  if (!values.is_none()) {
    read_values = [&](uint64_t captured_graph, std::vector<uint64_t>* read) {
      const py::gil_scoped_acquire acquire;
      const py::object found = values(captured_graph);
      if (found.is_none()) return false;
      *read = found.cast<std::vector<uint64_t>>();
      return true;
    };
  }
  {
    const py::gil_scoped_release release;
    result = callable.Replay(key, inputs, used, read_values);
  }
  if (!result.has_value()) return py::none();
  py::list outputs;
  for (at::Tensor& tensor : result->outputs) {
    outputs.append(
        py::reinterpret_steal<py::object>(THPVariable_Wrap(std::move(tensor))));
  }
  return py::make_tuple(result->captured_graph, std::move(outputs));
}

}  // namespace

void BindCompile(py::module_& module) {
  py::class_<RegisteredCallable>(module, "RegisteredCallable")
      .def(py::init([](std::string name, bool is_graph) {
             using Kind = RegisteredCallable::Kind;
             return std::make_unique<RegisteredCallable>(
                 std::move(name), is_graph ? Kind::kGraph : Kind::kFunction);
           }),
           py::arg("name"), py::arg("is_graph") = false)
      .def("replay", &Replay, py::arg("key"), py::arg("arguments"),
           py::arg("parameters"), py::arg("values") = py::none())
      .def(
          "begin",
          [](RegisteredCallable& callable, const std::string& key,
             const py::list& arguments, const py::list& parameters,
             uint64_t skipped_calls, const py::object& counters) {
            const std::vector<at::Tensor> inputs = TensorsOf(arguments);
            const std::vector<at::Tensor> used = TensorsOf(parameters);
            VaryingNumbers varying;
            if (!counters.is_none()) {
              varying = {true, TensorsOf(counters)};
            }
            const py::gil_scoped_release release;
            return callable.Begin(key, inputs, used, skipped_calls, varying);
          },
          py::arg("key"), py::arg("arguments"), py::arg("parameters"),
          py::arg("skipped_calls"), py::arg("counters") = py::none())
      .def("end",
           [](RegisteredCallable& callable, const py::list& outputs) {
             const std::vector<at::Tensor> tensors = TensorsOf(outputs);
             const py::gil_scoped_release release;
             return callable.End(tensors);
           })
      .def("abandon",
           [](RegisteredCallable& callable) {
             const py::gil_scoped_release release;
             callable.Abandon();
           })
      .def("forget",
           [](RegisteredCallable& callable) {
             const py::gil_scoped_release release;
             callable.Forget();
           })
      .def("numbers_of",
           [](const RegisteredCallable& callable, uint64_t captured_graph) {
             RegisteredCallable::Numbers numbers =
                 callable.NumbersOf(captured_graph);
             return std::make_tuple(std::move(numbers.bits),
                                    numbers.predecessor);
           })
      .def("vary", &RegisteredCallable::Vary)
      .def("captured_graphs",
           [](const RegisteredCallable& callable) {
             const py::gil_scoped_release release;
             return callable.CapturedGraphs();
           })
      .def("statistics", [](const RegisteredCallable& callable) {
        const CompileStatistics statistics = callable.statistics();
        return std::make_tuple(statistics.replays, statistics.captures,
                               statistics.refusal);
      });
}

}  // namespace djinn::python
