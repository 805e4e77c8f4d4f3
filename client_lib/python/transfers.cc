#include "djinn/transfers.h"

#include <torch/csrc/autograd/python_variable.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "client_lib/python/bindings.h"
#include "common/base/mutex.h"
#include "djinn/error.h"

namespace djinn::python {
namespace {

namespace py = pybind11;

// Passes the numbers of finished reads to the Python thread that runs the
// callbacks. The threads that finish reads call it; they never take the GIL.
class ReadyQueue {
 public:
  // Never destroyed, because reads may finish while the process ends.
  static ReadyQueue& Get() {
    static ReadyQueue* const queue = new ReadyQueue;
    return *queue;
  }

  void Push(uint64_t number) {
    MutexLock lock(&mu_);
    numbers_.push_back(number);
    changed_.Signal();
  }
  // Returns nullopt after Stop().
  std::optional<uint64_t> Pop() {
    MutexLock lock(&mu_);
    while (!stopped_ && numbers_.empty()) changed_.Wait(&mu_);
    if (stopped_) return std::nullopt;
    const uint64_t number = numbers_.front();
    numbers_.pop_front();
    return number;
  }
  void Stop() {
    MutexLock lock(&mu_);
    stopped_ = true;
    changed_.SignalAll();
  }

 private:
  Mutex mu_;
  CondVar changed_;
  // The queue is bounded by the number of unfinished reads with a callback.
  std::deque<uint64_t> numbers_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

PendingTensor StartRead(const py::object& tensor) {
  if (!THPVariable_Check(tensor.ptr())) {
    throw py::type_error("read_async() needs a torch.Tensor");
  }
  const at::Tensor& value = THPVariable_Unpack(tensor.ptr());
  absl::StatusOr<PendingTensor> pending = absl::UnknownError("");
  {
    const py::gil_scoped_release release;
    pending = ReadAsync(value);
  }
  RaiseIfError(pending.status());
  return *std::move(pending);
}

py::object WaitFor(const PendingTensor& pending,
                   const std::optional<double>& timeout) {
  absl::StatusOr<at::Tensor> value = absl::UnknownError("");
  {
    const py::gil_scoped_release release;
    value = pending.Wait(timeout.has_value() ? absl::Seconds(*timeout)
                                             : absl::InfiniteDuration());
  }
  if (!value.ok() &&
      Error::FromStatus(value.status()).reason() == "VALUE_PENDING") {
    PyErr_SetString(PyExc_TimeoutError,
                    std::string(value.status().message()).c_str());
    throw py::error_already_set();
  }
  RaiseIfError(value.status());
  return py::reinterpret_steal<py::object>(THPVariable_Wrap(*value));
}

// The Python callback for upload progress. Guarded by the GIL.
PyObject* progress = nullptr;

// Runs on the uploading thread, where PyTorch's bindings have released the GIL.
void ReportProgress(uint64_t done, uint64_t total) {
  if (InterpreterEnds()) return;
  const py::gil_scoped_acquire acquire;
  if (progress == nullptr) return;
  const auto callback = py::reinterpret_borrow<py::object>(progress);
  try {
    callback(done, total);
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable("djinn.on_upload_progress");
  }
}

void SetProgress(const py::object& callback, uint64_t min_bytes) {
  Py_XDECREF(progress);
  progress = callback.is_none() ? nullptr : callback.inc_ref().ptr();
  const py::gil_scoped_release release;
  SetUploadProgress(callback.is_none() ? nullptr : &ReportProgress, min_bytes);
}

}  // namespace

void BindTransfers(py::module_& module) {
  py::class_<PendingTensor>(module, "PendingTensor")
      .def("ready", &PendingTensor::Ready,
           py::call_guard<py::gil_scoped_release>())
      .def("wait", &WaitFor)
      .def("push_when_ready",
           [](const PendingTensor& pending, uint64_t number) {
             const py::gil_scoped_release release;
             pending.OnReady([number] { ReadyQueue::Get().Push(number); });
           });
  module.def("read_async", &StartRead);
  module.def(
      "pop_ready", [] { return ReadyQueue::Get().Pop(); },
      py::call_guard<py::gil_scoped_release>());
  module.def("stop_ready", [] { ReadyQueue::Get().Stop(); });
  module.def("set_upload_progress", &SetProgress);
}

}  // namespace djinn::python
