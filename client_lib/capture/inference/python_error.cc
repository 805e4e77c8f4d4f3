#include "client_lib/capture/inference/python_error.h"

// Python's C API, which this library does not need: the addresses are null in a
// process without Python.
extern "C" {
extern void* PyExc_Exception __attribute__((weak));
void* PyErr_Occurred() __attribute__((weak));
int PyErr_ExceptionMatches(void* type) __attribute__((weak));
void PyErr_Clear() __attribute__((weak));
int PyGILState_Ensure() __attribute__((weak));
void PyGILState_Release(int state) __attribute__((weak));
}

namespace djinn::capture {

bool DropPythonError() {
  if (&PyErr_Occurred == nullptr) return true;
  const int state = PyGILState_Ensure();
  const bool drops = PyErr_Occurred() == nullptr ||
                     PyErr_ExceptionMatches(PyExc_Exception) != 0;
  if (drops) PyErr_Clear();
  PyGILState_Release(state);
  return drops;
}

}  // namespace djinn::capture
