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
};
inline constexpr Escape kLastEscape = Escape::kSignal;

}  // namespace djinn

#endif  // TESTS_SECURITY_ESCAPES_H_
