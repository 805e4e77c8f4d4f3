// Watches a GPU through NVML: its temperature, its uncorrected ECC errors, and
// the Xids that the driver reports.
//
// An Xid, an uncorrected ECC error, or a GPU that NVML has lost is a failure.
// It lasts until the process ends. Xids that a program causes itself, such as
// an access outside its memory, are counted and are no failure: if they are the
// worker's own, its device notices them. Without NVML, the health names what is
// missing, and the worker serves.
//
// Thread-safe. A thread of the monitor calls NVML, which may block. The other
// functions return what that thread found, unless their comments say otherwise.
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

// Returns whether NVIDIA's list calls the Xid a fault of the program that used
// the GPU. Such an Xid says nothing about the GPU.
bool IsProgramFault(uint32_t xid);

struct GpuMonitorOptions {
  std::string library;
  // The GPU: its UUID. If that is empty, its PCI address; if both are empty,
  // its number.
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

  // Starts to watch. The thread calls `failed` when the GPU fails. Call it at
  // most once.
  void Start(std::function<void()> failed);
  // Stops to watch. `failed` is not called from then on.
  void Stop();

  // Returns why the GPU must not get work; empty if no failure is known.
  std::string failure() const;
  // Returns the GPU memory that no process uses. Calls NVML, which may block.
  // Returns its errors, and Unavailable (NVML_UNAVAILABLE) without NVML.
  absl::StatusOr<uint64_t> FreeBytes() const;
  // Returns everything that is known, including the failure.
  v1::GpuHealth health() const;
  // Adds everything that is known to a scrape.
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
  // The reason if the GPU is not watched. This field and the next two do not
  // change after the constructor.
  absl::Status opened_;
  // Null without NVML.
  std::unique_ptr<Nvml> nvml_;
  Nvml::Gpu gpu_ = nullptr;
  // After the constructor, only the thread uses these two.
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
