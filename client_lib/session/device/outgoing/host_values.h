// Keeps values of small storages that this process knows: those that it
// uploaded, and those that follow from them. A program that reads one, as in
// `if mask.all():`, gets the answer without a round trip.
//
// Each value belongs to a version, as the session stamps it when it records a
// write. A later write by any thread makes a new version, whose value is
// unknown.
//
// Not thread-safe: the recorder's lock guards it.
#ifndef CLIENT_LIB_SESSION_DEVICE_OUTGOING_HOST_VALUES_H_
#define CLIENT_LIB_SESSION_DEVICE_OUTGOING_HOST_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <deque>

#include "client_lib/session/recording/virtual_device.h"
#include "client_lib/session/transfer/work.h"

namespace djinn {

class HostValues {
 public:
  // Limit on the bytes of a storage.
  static constexpr uint64_t kMaxBytes = VirtualDevice::kMaxHostValueBytes;
  // Limit on storages; the most recently used ones stay.
  static constexpr size_t kMaxKept = 64;

  // Returns the value, or null if it is unknown.
  HostValuePtr Find(const StorageVersion& version);
  // Returns the value if reads may be answered from it, or null.
  HostValuePtr FindReadable(const StorageVersion& version);

  // Keeps the value of a version that has none yet. Does nothing if the storage
  // is too large or empty.
  void Keep(const StorageVersion& version, HostValuePtr value, bool readable);

  void Clear() { kept_.clear(); }

 private:
  struct Kept {
    StorageVersion version;
    HostValuePtr value;
    bool readable = false;
  };

  const Kept* Use(const StorageVersion& version);

  std::deque<Kept> kept_;  // the most recently used at the end
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_OUTGOING_HOST_VALUES_H_
