// How a value was made, where that took nothing but a few cheap calls: a mask,
// positions, a tensor of zeros. Where such a value is needed on another worker,
// making it again moves fewer bytes than fetching it.
#ifndef CLIENT_LIB_SESSION_RECIPE_H_
#define CLIENT_LIB_SESSION_RECIPE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "client_lib/session/call.h"

namespace djinn {

// Immutable, so that values made from others share theirs.
struct Recipe {
  // Calls in all, at most: what more made is fetched.
  static constexpr uint32_t kMaxCalls = 8;

  // The last call; its touches name no storages. Meaningless without calls: of
  // zeros that nothing has touched.
  Call call;
  // By touch, what made what the storage held before the call. Null for what is
  // born by it.
  std::vector<std::shared_ptr<const Recipe>> before;
  // The touch that is the value's.
  uint32_t made = 0;
  // Of the value's storage.
  uint64_t size_bytes = 0;
  uint32_t calls = 0;
  // Of all that is made on the way, the value included.
  uint64_t bytes = 0;
};

// Whether the operator is as good as free and, at least of whole numbers, gives
// the same bits wherever it is carried out: it makes, compares, masks or copies
// elements one by one. Thread-safe.
bool IsCheap(uint32_t operator_id);

// Of what `call`, which was not recorded yet, makes; `before` as above. Null
// where it is not cheap, draws, makes nothing or several values, does not know
// its results, what it reads was made otherwise, much more is made on the way,
// or it computes with real numbers, whose last bits are a processor's own
// (arange, and sums, which may be fused with a product).
std::shared_ptr<const Recipe> RecipeOf(
    const Call& call, std::vector<std::shared_ptr<const Recipe>> before);

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_RECIPE_H_
