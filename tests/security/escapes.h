// Names the escapes that escaping_operators.cc tries.
#ifndef TESTS_SECURITY_ESCAPES_H_
#define TESTS_SECURITY_ESCAPES_H_

#include <cstdint>

namespace djinn {

enum class Escape : int64_t {
  kOpenFile,
  kOpenMemoryOfOther,
  kSocket,
  kConnectBySending,
  kFork,
  kTrace,
  kSignal,
  // The sandbox allows threads.
  kManyThreads,
};
// The last one that the sandbox refuses.
inline constexpr Escape kLastEscape = Escape::kSignal;
// Threads that kManyThreads starts.
inline constexpr int kManyThreads = 1'000;

}  // namespace djinn

#endif  // TESTS_SECURITY_ESCAPES_H_
