// Checks a property that a fuzz target demands of the code under test. A
// violation ends the process, which is how fuzzers find it.
#ifndef COMMON_FUZZ_REQUIRE_H_
#define COMMON_FUZZ_REQUIRE_H_

#include <cstdio>
#include <cstdlib>

namespace djinn::fuzz {

inline void Require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

}  // namespace djinn::fuzz

#endif  // COMMON_FUZZ_REQUIRE_H_
