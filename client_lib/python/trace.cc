#include "djinn/trace.h"

#include <memory>
#include <string>

#include "client_lib/python/bindings.h"

namespace djinn::python {

namespace py = pybind11;

void BindTrace(py::module_& module) {
  module.def(
      "configure_tracing",
      [](std::string endpoint, double sample_ratio, bool nodes,
         std::string ca_file, std::string certificate_file,
         std::string private_key_file, std::string server_name, bool insecure) {
        absl::Status status;
        {
          const py::gil_scoped_release release;
          status = ConfigureTracing({endpoint, sample_ratio, nodes, ca_file,
                                     certificate_file, private_key_file,
                                     server_name, insecure});
        }
        RaiseIfError(status);
      },
      py::arg("endpoint"), py::arg("sample_ratio"), py::arg("nodes"),
      py::arg("ca_file"), py::arg("certificate_file"),
      py::arg("private_key_file"), py::arg("server_name"), py::arg("insecure"));
  py::class_<TraceScope>(module, "TraceScope")
      .def(py::init([](const std::string& traceparent) {
        auto scope = std::make_unique<TraceScope>(traceparent);
        RaiseIfError(scope->status());
        return scope;
      }));
}

}  // namespace djinn::python
