// Addresses for storages that have no memory here, so that programs can tell
// them apart as they do where there is memory.
//
// Ranges are handed out one behind the other. After the last address come the
// first ones again, without those that are in use: an address is another
// storage's only when its first one is gone, and as late as can be.
//
// Thread-safe; calls nothing.
#ifndef CLIENT_LIB_SESSION_MODEL_ADDRESS_SPACE_H_
#define CLIENT_LIB_SESSION_MODEL_ADDRESS_SPACE_H_

#include <cstdint>

#include "common/base/mutex.h"

namespace djinn {

// A part of the space: nothing as long as it was not taken, and again when it
// was released. Stays where it is meanwhile: it knows its neighbours.
class AddressRange {
 public:
  AddressRange() = default;
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;

  // As far from the beginning of the space; more than was asked for.
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
  // Ranges begin at a multiple of so many bytes.
  static constexpr uint64_t kGranularity = 512;

  // `size_bytes` is a multiple of that.
  explicit AddressSpace(uint64_t size_bytes);

  // A range of more than `bytes`, so that what ends there is not where another
  // begins. False, without effect on `range`, where there is no such gap.
  // `range` is not one that was taken.
  bool Take(uint64_t bytes, AddressRange* range);
  // Without effect on one that was not taken.
  void Release(AddressRange* range);

 private:
  Mutex mu_;
  // Behind the last range, and before the first one: a circle in the order of
  // addresses.
  AddressRange ends_ ABSL_GUARDED_BY(mu_);
  // Where the next range may begin, and the first one behind it.
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 0;
  AddressRange* behind_ ABSL_GUARDED_BY(mu_) = &ends_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MODEL_ADDRESS_SPACE_H_
