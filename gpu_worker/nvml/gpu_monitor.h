// Watches a GPU through NVML: its temperature, its uncorrected ECC errors, and
// the Xids that the driver reports.
//
// An Xid, an uncorrected ECC error, or a GPU that NVML has lost is a failure,
// which stays. Xids that a program causes by its own fault, such as an access
// outside its memory, are counted and are no failure: the worker's device sees
// them itself when they are its own. Without NVML the health says so and names
// what is missing; the worker serves as well.
//
// Thread-safe. A thread of the monitor calls NVML, which may block; everybody
// else reads what it found, except where a comment says otherwise.
#ifndef GPU_WORKER_NVML_GPU_MONITOR_H_
#define GPU_WORKER_NVML_GPU_MONITOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/metrics/exposition.h"
#include "djinn/v1/usage.pb.h"
#include "gpu_worker/nvml/nvml.h"

namespace djinn::worker {

// Returns whether an Xid is a fault of the program that used the GPU, as in
// NVIDIA's list, and says nothing about the GPU.
bool IsProgramFault(uint32_t xid);

struct GpuMonitorOptions {
  std::string library;
  // The GPU: its UUID, or if that is empty its PCI address, or if that is
  // empty, too, its number.
  std::string uuid;
  std::string bus_id;
  int index = 0;
  // How often temperature and ECC errors are read. Also bounds how long Stop()
  // waits.
  absl::Duration interval = absl::Seconds(1);
};

class GpuMonitor {
 public:
  // Opens the library and reads everything once.
  explicit GpuMonitor(GpuMonitorOptions options);
  // Calls Stop().
  ~GpuMonitor();
  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;

  // Starts to watch. The thread calls `failed` when the GPU has got a failure.
  // Call it at most once.
  void Start(std::function<void()> failed);
  // Stops to watch. `failed` is not called from then on.
  void Stop();

  // Returns why the GPU must not get work; empty when nothing is known to be
  // wrong.
  std::string failure() const;
  // Asks NVML, which may block, how much of the GPU's memory no process uses.
  // Returns its errors, and Unavailable (NVML_UNAVAILABLE) without NVML.
  absl::StatusOr<uint64_t> FreeBytes() const;
  // Returns all that is known, with the failure.
  v1::GpuHealth health() const;
  // Adds what is known to a scrape.
  void Collect(const std::string& worker, Exposition* out) const;

 private:
  absl::Status Open();
  void Run();
  void Sample();
  void NoteXid(uint32_t xid);
  void NoteError(const absl::Status& status);
  // Sets the failure unless there is one.
  void Fail(std::string why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Waits until the next sample is due, and handles Xids meanwhile.
  void WaitForNext();

  const GpuMonitorOptions options_;
  // Why the GPU is not watched, if it is not. It and the next two do not change
  // after the constructor.
  absl::Status opened_;
  // Null without NVML.
  std::unique_ptr<Nvml> nvml_;
  Nvml::Gpu gpu_ = nullptr;
  // After the constructor, the thread alone uses them.
  std::unique_ptr<Nvml::XidEvents> events_;
  std::function<void()> failed_;

  mutable Mutex mu_;
  CondVar stopped_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  v1::GpuHealth health_ ABSL_GUARDED_BY(mu_);
  std::map<uint32_t, uint64_t> xids_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_NVML_GPU_MONITOR_H_
