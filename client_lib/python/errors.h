// Djinn's failures as Python exceptions, with their fields.
#ifndef CLIENT_LIB_PYTHON_ERRORS_H_
#define CLIENT_LIB_PYTHON_ERRORS_H_

#include <pybind11/pybind11.h>

#include "absl/status/status.h"
#include "djinn/error.h"

namespace djinn::python {

// Makes every djinn::Error that a PyTorch call throws in this process a Python
// exception of the class that Python sets by `set_error_factory`.
void BindErrors(pybind11::module_& module);

// The exception object; with the GIL.
pybind11::object ExceptionOf(const Error& error);

// Raises unless OK; with the GIL.
void RaiseIfError(const absl::Status& status);

}  // namespace djinn::python

#endif  // CLIENT_LIB_PYTHON_ERRORS_H_
