// Opens NVIDIA's management library, libnvidia-ml, at run time, so that a
// program that uses it also starts without it.
//
// Declares the few functions and types of NVML's stable C interface that Djinn
// uses. They have the names of NVML's documentation without the prefix.
#ifndef GPU_WORKER_NVML_NVML_H_
#define GPU_WORKER_NVML_NVML_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace djinn::worker {

// C interface. Values are those of nvml.h; they never change.
namespace nvml_abi {

using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kNotSupported = 3;
inline constexpr Result kNotFound = 6;
inline constexpr Result kDriverNotLoaded = 9;
inline constexpr Result kTimeout = 10;
inline constexpr Result kGpuIsLost = 15;

using Handle = void*;
inline constexpr unsigned kTextSize = 96;
inline constexpr uint64_t kXidEvent = 0x8;
inline constexpr int kGpuTemperature = 0;
inline constexpr int kUncorrectedError = 1;
inline constexpr int kVolatileCounter = 0;

struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

struct EventData {
  Handle device;
  unsigned long long type;
  // The number of the Xid.
  unsigned long long data;
  unsigned gpu_instance;
  unsigned compute_instance;
};

}  // namespace nvml_abi

// A loaded library, initialised until it is destroyed. Errors are Unavailable
// (NVML_UNAVAILABLE), which names the library or the function; an error of a
// GPU that no longer answers is DataLoss (GPU_LOST).
//
// Thread-safe.
class Nvml {
 public:
  // A GPU, valid while the Nvml lives.
  using Gpu = nvml_abi::Handle;

  // Loads and initialises the library, whose name may have a path.
  static absl::StatusOr<std::unique_ptr<Nvml>> Open(const std::string& library);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Returns the driver's version, such as "580.65.06"; empty if it is unknown.
  std::string DriverVersion() const;

  // Returns the number of GPUs that this process may use.
  absl::StatusOr<unsigned> Count() const;
  // Return a GPU by its number, in the order of PCI addresses, by its PCI
  // address such as "0000:17:00.0", or by its UUID.
  absl::StatusOr<Gpu> ByIndex(unsigned index) const;
  absl::StatusOr<Gpu> ByBusId(const std::string& bus_id) const;
  absl::StatusOr<Gpu> ByUuid(const std::string& uuid) const;
  // Returns an identifier that no other GPU has, such as "GPU-5d7f…".
  absl::StatusOr<std::string> Uuid(Gpu gpu) const;

  // Returns the memory that no process uses.
  absl::StatusOr<uint64_t> FreeBytes(Gpu gpu) const;

  // These two return nullopt if the GPU does not measure the value.
  absl::StatusOr<std::optional<uint32_t>> Temperature(Gpu gpu) const;
  // Counts memory errors that were not corrected since the driver was loaded.
  absl::StatusOr<std::optional<uint64_t>> UncorrectedEccErrors(Gpu gpu) const;

  // Xids of one GPU since the construction of this object.
  class XidEvents {
   public:
    virtual ~XidEvents() = default;
    // Waits for the next Xid. Returns nullopt if there is none in time.
    virtual absl::StatusOr<std::optional<uint32_t>> Wait(
        absl::Duration timeout) = 0;
  };
  // Returns null if the driver reports no Xids. The result must not outlive
  // this object.
  absl::StatusOr<std::unique_ptr<XidEvents>> WatchXids(Gpu gpu) const;

 private:
  struct Functions;
  class Events;

  explicit Nvml(std::string library);
  absl::Status ToStatus(nvml_abi::Result result, const char* function) const;

  const std::string library_;
  std::unique_ptr<Functions> functions_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_NVML_NVML_H_
