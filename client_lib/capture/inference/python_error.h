// Drops exceptions of kernels that are written in Python.
#ifndef CLIENT_LIB_CAPTURE_INFERENCE_PYTHON_ERROR_H_
#define CLIENT_LIB_CAPTURE_INFERENCE_PYTHON_ERROR_H_

namespace djinn::capture {

// PyTorch turns an exception of a kernel in Python into a C++ exception and
// leaves it set in the interpreter. A handler that does not throw again calls
// this. Returns false, and leaves the exception set, if the handler has to
// throw again, because the program is to end (KeyboardInterrupt, SystemExit).
bool DropPythonError();

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_INFERENCE_PYTHON_ERROR_H_
