// How a value was made, to make it again on another worker in place of fetching
// it.
//
// A *cheap* one took nothing but a few calls that are as good as free: a mask,
// positions, a tensor of zeros. It is rematerialized wherever it is needed. Any
// other is a matter of what making it takes and what fetching it takes, and of
// its operands, which may not hold any more what they held.
#ifndef CLIENT_LIB_SESSION_MULTI_WORKER_REMATERIALIZATION_H_
#define CLIENT_LIB_SESSION_MULTI_WORKER_REMATERIALIZATION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "client_lib/session/model/call.h"
#include "client_lib/session/multi_worker/held_value.h"

namespace djinn {

// Immutable, so that values made from others share theirs.
struct Rematerialization {
  // Calls in all, at most: what more made is fetched.
  static constexpr uint32_t kMaxCalls = 8;

  Rematerialization() = default;
  ~Rematerialization();
  Rematerialization(const Rematerialization&) = delete;
  Rematerialization& operator=(const Rematerialization&) = delete;

  // The last call; its touches name no storages. Meaningless without calls: of
  // zeros that nothing has touched.
  Call call;
  // By touch, what made what the storage held before the call. Null for what is
  // born by it; and, unless it is cheap, where that is not known.
  std::vector<std::shared_ptr<const Rematerialization>> before;
  // Empty if it is cheap. Otherwise by touch, who holds that, as long as it
  // does; may be null where `before` is not, and is for what is born.
  std::vector<std::shared_ptr<HeldValue>> held;
  // The touch that is the value's.
  uint32_t made = 0;
  // Of the value's storage.
  uint64_t size_bytes = 0;
  uint32_t calls = 0;
  // Of all that is made on the way, the value included.
  uint64_t bytes = 0;
  // The session's root errors when the call was recorded, or the first one that
  // is executed on the way.
  uint64_t errors_before = 0;
  // Unless it is cheap: the member that made it.
  int member = 0;

  bool cheap() const { return held.empty(); }

  // What this takes here, and where that is added up; null for cheap ones.
  int64_t footprint = 0;
  std::shared_ptr<std::atomic<int64_t>> footprints;
};

// Whether the operator is as good as free and, at least of whole numbers, gives
// the same bits wherever it is executed: it makes, compares, masks or copies
// elements one by one. Thread-safe.
bool IsCheap(uint32_t operator_id);

// Of what `call`, which was not recorded yet, makes; `before` as above. Null
// where it is not cheap, draws, makes nothing or several values, does not know
// its results, what it reads was made otherwise, much more is made on the way,
// or it computes with real numbers, whose last bits are a processor's own
// (arange, and sums, which may be fused with a product).
std::shared_ptr<Rematerialization> RematerializationOf(
    const Call& call,
    std::vector<std::shared_ptr<const Rematerialization>> before);

// Of what is not cheap; `before` and `held` as above, by touch. Null where the
// operator is not known to give the same bits (repeatable.h), draws, makes
// nothing or several values, does not know its results, overwrites in part what
// nobody can make again, or would take much more memory. Forgets how operands
// were made where that would be too many calls and somebody holds them.
std::shared_ptr<Rematerialization> WeighedRematerializationOf(
    const Call& call,
    std::vector<std::shared_ptr<const Rematerialization>> before,
    std::vector<std::shared_ptr<HeldValue>> held);

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MULTI_WORKER_REMATERIALIZATION_H_
