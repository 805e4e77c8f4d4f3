// djinn/profile.h for Python.
#ifndef CLIENT_LIB_PYTHON_PROFILE_H_
#define CLIENT_LIB_PYTHON_PROFILE_H_

#include <pybind11/pybind11.h>

namespace djinn::python {

void BindProfile(pybind11::module_& module);

}  // namespace djinn::python

#endif  // CLIENT_LIB_PYTHON_PROFILE_H_
