// What a fuzz target demands of the code under test: a broken promise ends the
// process, which is how fuzzers learn of it.
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
