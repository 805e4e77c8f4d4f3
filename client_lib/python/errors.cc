#include "client_lib/python/errors.h"

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace djinn::python {
namespace {

namespace py = pybind11;

// Makes an exception of (code, reason, error id, message, seconds until a retry
// or None). Set once, at import;
// never freed, since threads may still fail while the interpreter ends.
PyObject* factory = nullptr;

[[noreturn]] void Raise(const Error& error) {
  const py::object exception = ExceptionOf(error);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())),
                  exception.ptr());
  throw py::error_already_set();
}

// Runs below PyTorch's Python bindings, which have released the GIL and hand
// error_already_set to the caller, from autograd's threads too. An interpreter
// that is ending gives the GIL to nobody else.
void Translate(const Error& error) {
  if (factory == nullptr || !Py_IsInitialized() || _Py_IsFinalizing()) return;
  const py::gil_scoped_acquire acquire;
  Raise(error);
}

}  // namespace

py::object ExceptionOf(const Error& error) {
  py::object retry_after = py::none();
  if (const auto delay = error.retry_after()) {
    retry_after = py::float_(absl::ToDoubleSeconds(*delay));
  }
  return py::reinterpret_borrow<py::object>(factory)(
      absl::StatusCodeToString(error.status().code()), error.reason(),
      error.error_id(), std::string(error.status().message()), retry_after);
}

void RaiseIfError(const absl::Status& status) {
  if (!status.ok()) Raise(Error::FromStatus(status));
}

void BindErrors(py::module_& module) {
  module.def("set_error_factory", [](const py::function& made) {
    factory = made.inc_ref().ptr();
    SetErrorTranslator(&Translate);
  });
}

}  // namespace djinn::python
