// Makes randomness a dependency: ids, incarnations and tokens come from here.
#ifndef COMMON_BASE_RANDOM_H_
#define COMMON_BASE_RANDOM_H_

#include <cstdint>
#include <string>

#include "common/base/mutex.h"

namespace djinn {

// Thread-safe.
class RandomSource {
 public:
  virtual ~RandomSource() = default;
  virtual std::string Bytes(size_t count) = 0;

  // Returns 64 random bits that are not all 0, so that 0 can mean "none".
  uint64_t NonZero64();
  // Returns 128 random bits in lower-case hex.
  std::string HexId();

  // Returns the kernel's generator, which is never destroyed.
  static RandomSource* Real();
};

// Counts upwards, so that every run of a test has the same ids.
class FakeRandomSource : public RandomSource {
 public:
  std::string Bytes(size_t count) override;

 private:
  Mutex mu_;
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 1;
};

}  // namespace djinn

#endif  // COMMON_BASE_RANDOM_H_
