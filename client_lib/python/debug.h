// djinn/debug.h for Python: debug levels, and the lines that make the calls.
#ifndef CLIENT_LIB_PYTHON_DEBUG_H_
#define CLIENT_LIB_PYTHON_DEBUG_H_

#include <pybind11/pybind11.h>

namespace djinn::python {

void BindDebug(pybind11::module_& module);

}  // namespace djinn::python

#endif  // CLIENT_LIB_PYTHON_DEBUG_H_
