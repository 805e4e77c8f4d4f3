// The parts of the extension djinn._djinn. module.cc assembles them; each
// function adds the classes and functions of one public header to `module`.
#ifndef CLIENT_LIB_PYTHON_BINDINGS_H_
#define CLIENT_LIB_PYTHON_BINDINGS_H_

#include <pybind11/pybind11.h>

#include <string>

#include "absl/status/status.h"
#include "djinn/error.h"
#include "djinn/urgency.h"

namespace djinn::python {

// Returns whether the interpreter is gone or ends. It then grants the GIL to no
// other thread. Needs no GIL.
inline bool InterpreterEnds() {
#if PY_VERSION_HEX >= 0x030D0000
  return !Py_IsInitialized() || Py_IsFinalizing();
#else
  return !Py_IsInitialized() || _Py_IsFinalizing();
#endif
}

// Converts every djinn::Error that a PyTorch call throws in this process to a
// Python exception. Python's `set_error_factory` sets the exceptions' class.
void BindErrors(pybind11::module_& module);

// Returns the exception object for an error. The caller holds the GIL.
pybind11::object ExceptionOf(const Error& error);

// Raises unless `status` is OK. The caller holds the GIL.
void RaiseIfError(const absl::Status& status);

void BindCompile(pybind11::module_& module);
void BindCost(pybind11::module_& module);
void BindDebug(pybind11::module_& module);
void BindProfile(pybind11::module_& module);
void BindTrace(pybind11::module_& module);
void BindTransfers(pybind11::module_& module);
void BindUrgency(pybind11::module_& module);

// Returns the priority of a name. Throws ValueError for an unknown one.
Priority PriorityNamed(const std::string& name);

// Adds the submodule `places` for djinn/_registered/watch.py. Before each call
// of a registered callable, it compares thousands of attributes and items on
// which the callable depends with their former contents. The lists and tuples
// passed to its functions must not change during a call; the objects that they
// name may change, and may raise exceptions.
void BindPlaces(pybind11::module_& module);

}  // namespace djinn::python

#endif  // CLIENT_LIB_PYTHON_BINDINGS_H_
