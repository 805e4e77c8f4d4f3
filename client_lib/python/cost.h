// What pieces of a program cost, for Python.
#ifndef CLIENT_LIB_PYTHON_COST_H_
#define CLIENT_LIB_PYTHON_COST_H_

#include <pybind11/pybind11.h>

namespace djinn::python {

void BindCost(pybind11::module_& module);

}  // namespace djinn::python

#endif  // CLIENT_LIB_PYTHON_COST_H_
