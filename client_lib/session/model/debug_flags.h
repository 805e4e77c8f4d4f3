// What a program asked to see of its calls: see djinn/debug.h.
//
// One word for everything, so that a call that nobody looks at pays for one
// load. Thread-safe.
#ifndef CLIENT_LIB_SESSION_MODEL_DEBUG_FLAGS_H_
#define CLIENT_LIB_SESSION_MODEL_DEBUG_FLAGS_H_

#include <atomic>
#include <cstdint>

namespace djinn::debug {

enum Flag : uint32_t {
  // Every call is waited for. DJINN_EAGER=1.
  kEager = 1,
  // DJINN_CALL_SITES=1.
  kCallSites = 2,
  // DJINN_DEBUG; one of them at most.
  kInterception = 4,
  kShapeInference = 8,
  kExecution = 16,
  // Somebody named the phase of his calls.
  kPhases = 32,
  // A profile runs.
  kProfile = 64,
};
inline constexpr uint32_t kLevels =
    kInterception | kShapeInference | kExecution;

// From the environment, when the library is loaded.
extern std::atomic<uint32_t> flags;

inline uint32_t Flags() { return flags.load(std::memory_order_relaxed); }
inline bool Has(Flag flag) { return (Flags() & flag) != 0; }

// Sets the bits of `mask` to `value`.
void Set(uint32_t mask, uint32_t value);

}  // namespace djinn::debug

#endif  // CLIENT_LIB_SESSION_MODEL_DEBUG_FLAGS_H_
