// Registered callables for Python: djinn/_compile.py.
#ifndef CLIENT_LIB_PYTHON_COMPILE_H_
#define CLIENT_LIB_PYTHON_COMPILE_H_

#include <pybind11/pybind11.h>

namespace djinn::python {

void BindCompile(pybind11::module_& module);

}  // namespace djinn::python

#endif  // CLIENT_LIB_PYTHON_COMPILE_H_
