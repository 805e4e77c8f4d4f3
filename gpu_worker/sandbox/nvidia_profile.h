// Lists what the user-mode part of NVIDIA's driver needs while a process uses a
// GPU whose context exists already: commands to device files, and files.
//
// The commands are those that gVisor lets through for computing
// (pkg/sentry/devices/nvproxy/seccomp_filters.go, capabilities "compute" and
// "utility"), without those that read and write another process' memory for a
// debugger. The filter sees a command's number, not what it points to: the
// driver checks that itself.
#ifndef GPU_WORKER_SANDBOX_NVIDIA_PROFILE_H_
#define GPU_WORKER_SANDBOX_NVIDIA_PROFILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "gpu_worker/sandbox/file_broker.h"

namespace djinn::worker {

// Bits of an ioctl's number that name a command to /dev/nvidiactl or
// /dev/nvidiaN: its type, which is 'F', and its own number. Sizes differ
// between versions of the driver, which checks them.
inline constexpr uint32_t kNvidiaCommandMask = 0xffff;
inline constexpr uint32_t kNvidiaType = 'F' << 8;
inline constexpr uint32_t kNvidiaCommands[] = {
    kNvidiaType | 0x27,        // RM_ALLOC_MEMORY
    kNvidiaType | 0x29,        // RM_FREE
    kNvidiaType | 0x2a,        // RM_CONTROL
    kNvidiaType | 0x2b,        // RM_ALLOC
    kNvidiaType | 0x34,        // RM_DUP_OBJECT
    kNvidiaType | 0x35,        // RM_SHARE
    kNvidiaType | 0x4a,        // RM_VID_HEAP_CONTROL
    kNvidiaType | 0x4e,        // RM_MAP_MEMORY
    kNvidiaType | 0x4f,        // RM_UNMAP_MEMORY
    kNvidiaType | 0x5e,        // RM_UPDATE_DEVICE_MAPPING_INFO
    kNvidiaType | 200,         // CARD_INFO
    kNvidiaType | (200 + 1),   // REGISTER_FD
    kNvidiaType | (200 + 6),   // ALLOC_OS_EVENT
    kNvidiaType | (200 + 7),   // FREE_OS_EVENT
    kNvidiaType | (200 + 10),  // CHECK_VERSION_STR
    kNvidiaType | (200 + 12),  // ATTACH_GPUS_TO_FD
    kNvidiaType | (200 + 14),  // SYS_PARAMS
    kNvidiaType | (200 + 18),  // WAIT_OPEN_COMPLETE
};

// Commands to /dev/nvidia-uvm, which have no type.
inline constexpr uint32_t kUvmCommands[] = {
    0x30000001,  // INITIALIZE
    0x30000002,  // DEINITIALIZE
    23,          // CREATE_RANGE_GROUP
    24,          // DESTROY_RANGE_GROUP
    25,          // REGISTER_GPU_VASPACE
    26,          // UNREGISTER_GPU_VASPACE
    27,          // REGISTER_CHANNEL
    28,          // UNREGISTER_CHANNEL
    29,          // ENABLE_PEER_ACCESS
    30,          // DISABLE_PEER_ACCESS
    31,          // SET_RANGE_GROUP
    33,          // MAP_EXTERNAL_ALLOCATION
    34,          // FREE
    37,          // REGISTER_GPU
    38,          // UNREGISTER_GPU
    39,          // PAGEABLE_MEM_ACCESS
    42,          // SET_PREFERRED_LOCATION
    43,          // UNSET_PREFERRED_LOCATION
    44,          // ENABLE_READ_DUPLICATION
    45,          // DISABLE_READ_DUPLICATION
    46,          // SET_ACCESSED_BY
    47,          // UNSET_ACCESSED_BY
    51,          // MIGRATE
    53,          // MIGRATE_RANGE_GROUP
    65,          // MAP_DYNAMIC_PARALLELISM_REGION
    66,          // UNMAP_EXTERNAL
    68,          // ALLOC_SEMAPHORE_POOL
    72,          // VALIDATE_VA_RANGE
    73,          // CREATE_EXTERNAL_RANGE
    75,          // MM_INITIALIZE
};

// Returns the files that this process still needs: the device files of the GPU
// at `bus_id`, what the driver and the C library read about the machine, and
// the folders of the shared libraries that are loaded, because libraries load
// their parts when they are first used. `root` precedes /dev and /proc/driver,
// for tests. Returns FailedPrecondition (NO_SANDBOX) when a file that tells the
// GPU's number, or a device file, is missing.
absl::StatusOr<FileRules> FilesOfGpu(const std::string& bus_id,
                                     const std::string& root = "");

}  // namespace djinn::worker

#endif  // GPU_WORKER_SANDBOX_NVIDIA_PROFILE_H_
