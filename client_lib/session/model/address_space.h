// Assigns addresses to storages that have no memory in this process, so that
// programs can distinguish them by address.
//
// The space assigns ranges in ascending order. After the last address it starts
// again at the first and skips the ranges that are in use. An address is
// therefore reused only after its storage is released, and as late as possible.
//
// Thread-safe; calls nothing.
#ifndef CLIENT_LIB_SESSION_MODEL_ADDRESS_SPACE_H_
#define CLIENT_LIB_SESSION_MODEL_ADDRESS_SPACE_H_

#include <cstdint>

#include "common/base/mutex.h"

namespace djinn {

// A range of the space. A range is empty before AddressSpace::Take() and after
// Release(). It must not move while it is taken, because its neighbours point
// to it.
class AddressRange {
 public:
  AddressRange() = default;
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;

  // Return the offset from the start of the space, and the size, which exceeds
  // the requested one.
  uint64_t begin() const { return begin_; }
  uint64_t size_bytes() const { return end_ - begin_; }

 private:
  friend class AddressSpace;
  uint64_t begin_ = 0;
  uint64_t end_ = 0;
  AddressRange* before_ = nullptr;
  AddressRange* after_ = nullptr;
};

class AddressSpace {
 public:
  // Every range begins at a multiple of this many bytes.
  static constexpr uint64_t kGranularity = 512;

  // `size_bytes` is a multiple of kGranularity.
  explicit AddressSpace(uint64_t size_bytes);

  // Assigns to `range` more than `bytes` bytes, so that the end of one range is
  // never the start of another. `range` must not be taken already. If no gap is
  // large enough, returns false and leaves `range` unchanged.
  bool Take(uint64_t bytes, AddressRange* range);
  // Empties `range`; does nothing if it is not taken.
  void Release(AddressRange* range);

 private:
  Mutex mu_;
  // The sentinel closes a circular list in the order of addresses: it follows
  // the last range and precedes the first one.
  AddressRange ends_ ABSL_GUARDED_BY(mu_);
  // The address at which the next search starts, and the first range behind it.
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 0;
  AddressRange* behind_ ABSL_GUARDED_BY(mu_) = &ends_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MODEL_ADDRESS_SPACE_H_
