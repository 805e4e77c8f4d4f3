// djinn/transfers.h for Python.
#ifndef CLIENT_LIB_PYTHON_TRANSFERS_H_
#define CLIENT_LIB_PYTHON_TRANSFERS_H_

#include <pybind11/pybind11.h>

namespace djinn::python {

void BindTransfers(pybind11::module_& module);

}  // namespace djinn::python

#endif  // CLIENT_LIB_PYTHON_TRANSFERS_H_
