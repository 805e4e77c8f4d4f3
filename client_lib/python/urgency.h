// djinn/urgency.h for Python.
#ifndef CLIENT_LIB_PYTHON_URGENCY_H_
#define CLIENT_LIB_PYTHON_URGENCY_H_

#include <pybind11/pybind11.h>

#include <string>

#include "djinn/urgency.h"

namespace djinn::python {

// Throws ValueError for a name that there is not.
Priority PriorityNamed(const std::string& name);

void BindUrgency(pybind11::module_& module);

}  // namespace djinn::python

#endif  // CLIENT_LIB_PYTHON_URGENCY_H_
