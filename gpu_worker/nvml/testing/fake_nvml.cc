// Replaces libnvidia-ml in tests. The environment variable DJINN_FAKE_NVML
// names a file that describes the GPUs, one in a line, in the order of their
// numbers:
//
//   UUID BUS_ID TEMPERATURE ECC_ERRORS XIDS [FREE_BYTES]
//   GPU-aaaa 0000:01:00.0 41 0 -
//   GPU-bbbb 0000:02:00.0 none none 13,79
//
// "none" stands for a value that the GPU does not measure, "lost" for the
// temperature of a lost GPU. Without FREE_BYTES, all memory is used. Each Xid
// is reported once. If the file does not exist, the driver is not loaded. Every
// call reads the file again.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kSuccess = 0;
constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;
constexpr int kDriverNotLoaded = 9;
constexpr int kTimeout = 10;
constexpr int kGpuIsLost = 15;

struct Gpu {
  std::string uuid, bus_id, temperature, errors;
  std::vector<unsigned> xids;
  unsigned long long free_bytes = 0;
};

struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

struct EventData {
  void* device;
  unsigned long long type;
  unsigned long long data;
  unsigned gpu_instance;
  unsigned compute_instance;
};

bool Read(std::vector<Gpu>* gpus) {
  const char* const path = std::getenv("DJINN_FAKE_NVML");
  std::ifstream file(path == nullptr ? "" : path);
  if (!file) return false;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    Gpu gpu;
    std::string xids;
    if (!(words >> gpu.uuid >> gpu.bus_id >> gpu.temperature >> gpu.errors >>
          xids)) {
      continue;
    }
    if (!(words >> gpu.free_bytes)) gpu.free_bytes = 0;
    std::istringstream numbers(xids);
    std::string number;
    while (xids != "-" && std::getline(numbers, number, ',')) {
      gpu.xids.push_back(static_cast<unsigned>(std::stoul(number)));
    }
    gpus->push_back(gpu);
  }
  return true;
}

// Handles are numbers from 1.
void* HandleOf(size_t index) { return reinterpret_cast<void*>(index + 1); }

bool Find(void* handle, Gpu* gpu) {
  std::vector<Gpu> gpus;
  const size_t index = reinterpret_cast<size_t>(handle) - 1;
  if (!Read(&gpus) || index >= gpus.size()) return false;
  *gpu = gpus[index];
  return true;
}

int Copy(const std::string& text, char* out, unsigned size) {
  if (text.size() + 1 > size) return kNotSupported;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return kSuccess;
}

struct EventSet {
  void* gpu = nullptr;
  // Number of Xids that were reported.
  size_t reported = 0;
};

}  // namespace

extern "C" {

int nvmlInit_v2() {
  std::vector<Gpu> gpus;
  return Read(&gpus) ? kSuccess : kDriverNotLoaded;
}
int nvmlShutdown() { return kSuccess; }
const char* nvmlErrorString(int result) {
  switch (result) {
    case kNotFound:
      return "Not Found";
    case kDriverNotLoaded:
      return "Driver Not Loaded";
    case kGpuIsLost:
      return "GPU is lost";
    default:
      return "Unknown Error";
  }
}
int nvmlSystemGetDriverVersion(char* out, unsigned size) {
  return Copy("580.0", out, size);
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  std::vector<Gpu> gpus;
  if (!Read(&gpus)) return kDriverNotLoaded;
  *count = static_cast<unsigned>(gpus.size());
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  Gpu gpu;
  *handle = HandleOf(index);
  return Find(*handle, &gpu) ? kSuccess : kNotFound;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** handle) {
  std::vector<Gpu> gpus;
  if (!Read(&gpus)) return kDriverNotLoaded;
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (gpus[i].bus_id != bus_id) continue;
    *handle = HandleOf(i);
    return kSuccess;
  }
  return kNotFound;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  std::vector<Gpu> gpus;
  if (!Read(&gpus)) return kDriverNotLoaded;
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (gpus[i].uuid != uuid) continue;
    *handle = HandleOf(i);
    return kSuccess;
  }
  return kNotFound;
}
int nvmlDeviceGetUUID(void* handle, char* out, unsigned size) {
  Gpu gpu;
  return Find(handle, &gpu) ? Copy(gpu.uuid, out, size) : kNotFound;
}
int nvmlDeviceGetMemoryInfo(void* handle, Memory* memory) {
  Gpu gpu;
  if (!Find(handle, &gpu)) return kNotFound;
  constexpr unsigned long long kTotal = 1ULL << 40;
  *memory = {kTotal, gpu.free_bytes, kTotal - gpu.free_bytes};
  return kSuccess;
}
int nvmlDeviceGetTemperature(void* handle, int /*sensor*/, unsigned* celsius) {
  Gpu gpu;
  if (!Find(handle, &gpu)) return kNotFound;
  if (gpu.temperature == "none") return kNotSupported;
  if (gpu.temperature == "lost") return kGpuIsLost;
  *celsius = static_cast<unsigned>(std::stoul(gpu.temperature));
  return kSuccess;
}
int nvmlDeviceGetTotalEccErrors(void* handle, int type, int /*counter*/,
                                unsigned long long* errors) {
  Gpu gpu;
  if (!Find(handle, &gpu)) return kNotFound;
  if (gpu.errors == "none") return kNotSupported;
  // Type 1 are errors that were not corrected.
  *errors = type == 1 ? std::stoull(gpu.errors) : 7;
  return kSuccess;
}
int nvmlEventSetCreate(void** set) {
  *set = new EventSet;
  return kSuccess;
}
int nvmlEventSetFree(void* set) {
  delete static_cast<EventSet*>(set);
  return kSuccess;
}
int nvmlDeviceRegisterEvents(void* handle, unsigned long long types,
                             void* set) {
  Gpu gpu;
  if (!Find(handle, &gpu)) return kNotFound;
  if (types != 0x8) return kNotSupported;
  static_cast<EventSet*>(set)->gpu = handle;
  return kSuccess;
}
int nvmlEventSetWait_v2(void* set, EventData* event, unsigned milliseconds) {
  EventSet& events = *static_cast<EventSet*>(set);
  const auto until = std::chrono::steady_clock::now() +
                     std::chrono::milliseconds(milliseconds);
  do {
    Gpu gpu;
    if (Find(events.gpu, &gpu) && events.reported < gpu.xids.size()) {
      *event = {events.gpu, 0x8, gpu.xids[events.reported++], 0, 0};
      return kSuccess;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  } while (std::chrono::steady_clock::now() < until);
  return kTimeout;
}

}  // extern "C"
