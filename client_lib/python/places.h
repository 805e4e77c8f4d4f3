// Looks at the places that a registered callable depends on, for
// djinn/_watch.py, which lists them: before every call thousands of them, most
// of which hold what they held.
#ifndef CLIENT_LIB_PYTHON_PLACES_H_
#define CLIENT_LIB_PYTHON_PLACES_H_

#include <pybind11/pybind11.h>

namespace djinn::python {

// As functions of a submodule `places`. Lists and tuples that they are given
// stay as they are meanwhile; what these name may change, and raise, as it
// likes.
void BindPlaces(pybind11::module_& module);

}  // namespace djinn::python

#endif  // CLIENT_LIB_PYTHON_PLACES_H_
