#include "djinn/cost.h"

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client_lib/python/bindings.h"

namespace djinn::python {

namespace py = pybind11;

void BindCost(py::module_& module) {
  // These release the GIL, because each may wait for a worker.
  py::class_<CostScope>(module, "CostScope")
      .def(py::init<>(), py::call_guard<py::gil_scoped_release>())
      .def("close", &CostScope::Close, py::call_guard<py::gil_scoped_release>())
      // Returns (seconds, bytes up, bytes down, runs).
      .def("get", [](CostScope& scope) {
        absl::StatusOr<Cost> cost;
        {
          const py::gil_scoped_release release;
          cost = scope.Get();
        }
        RaiseIfError(cost.status());
        return py::make_tuple(absl::ToDoubleSeconds(cost->device_time),
                              cost->bytes_up, cost->bytes_down, cost->runs);
      });
}

}  // namespace djinn::python
