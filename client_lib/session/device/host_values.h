// Values of small storages that this process can tell, too: what it uploaded,
// and what follows from that. A program that reads of them, as `if mask.all():`
// does, has the answer without a round trip.
//
// Versions are those that the session stamps writes with, as it records them:
// what was written since, in whatever way and by whatever thread, has another
// version, and is not known.
//
// Not thread-safe: the device's lock guards it.
#ifndef CLIENT_LIB_SESSION_DEVICE_HOST_VALUES_H_
#define CLIENT_LIB_SESSION_DEVICE_HOST_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <deque>

#include "client_lib/session/recording/virtual_device.h"
#include "client_lib/session/transfer/work.h"

namespace djinn {

class HostValues {
 public:
  // Bytes of a storage.
  static constexpr uint64_t kMaxBytes = VirtualDevice::kMaxHostValueBytes;
  // Storages: those that were used last.
  static constexpr size_t kMaxKept = 64;

  // Null where it is not known.
  HostValuePtr Find(const StorageVersion& version);
  // Likewise, of what may be read here.
  HostValuePtr FindReadable(const StorageVersion& version);

  // Of a version that has none yet. Without effect where the storage is too
  // large, or empty.
  void Keep(const StorageVersion& version, HostValuePtr value, bool readable);

  void Clear() { kept_.clear(); }

 private:
  struct Kept {
    StorageVersion version;
    HostValuePtr value;
    bool readable = false;
  };

  const Kept* Use(const StorageVersion& version);

  std::deque<Kept> kept_;  // the one used last at the end
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_HOST_VALUES_H_
