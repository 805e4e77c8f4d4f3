#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client_lib/python/bindings.h"

namespace djinn::python {
namespace {

namespace py = pybind11;

// Creates an exception from (code, reason, error id, message, seconds until a
// retry or None). Set once, at import, and never freed, because threads may
// still fail while the interpreter ends.
PyObject* factory = nullptr;

[[noreturn]] void Raise(const Error& error) {
  const py::object exception = ExceptionOf(error);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())),
                  exception.ptr());
  throw py::error_already_set();
}

// Runs below PyTorch's Python bindings, and also on autograd's threads. The
// bindings have released the GIL, and raise the error_already_set in their
// caller. An interpreter that is ending grants the GIL to no other thread.
void Translate(const Error& error) {
  if (factory == nullptr || InterpreterEnds()) return;
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
