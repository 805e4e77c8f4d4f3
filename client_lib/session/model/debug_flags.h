// Holds what the program asked to observe of its calls: see djinn/debug.h.
//
// All flags share one word, so that an unobserved call pays for one load.
// Thread-safe.
#ifndef CLIENT_LIB_SESSION_MODEL_DEBUG_FLAGS_H_
#define CLIENT_LIB_SESSION_MODEL_DEBUG_FLAGS_H_

#include <atomic>
#include <cstdint>

namespace djinn::debug {

enum Flag : uint32_t {
  // The process waits for every call. DJINN_EAGER=1.
  kEager = 1,
  // Calls record their call sites. DJINN_CALL_SITES=1.
  kCallSites = 2,
  // Debug levels of DJINN_DEBUG; at most one is set.
  kInterception = 4,
  kShapeInference = 8,
  kExecution = 16,
  // The program named the phase of its calls.
  kPhases = 32,
  // A profile runs.
  kProfile = 64,
  // Requests may be traced.
  kTrace = 128,
};
inline constexpr uint32_t kLevels =
    kInterception | kShapeInference | kExecution;

// Initialized from the environment when the library is loaded.
extern std::atomic<uint32_t> flags;

inline uint32_t Flags() { return flags.load(std::memory_order_relaxed); }
inline bool Has(Flag flag) { return (Flags() & flag) != 0; }

// Sets the bits of `mask` to `value`.
void Set(uint32_t mask, uint32_t value);

}  // namespace djinn::debug

#endif  // CLIENT_LIB_SESSION_MODEL_DEBUG_FLAGS_H_
