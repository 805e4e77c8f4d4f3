// Randomness as a dependency: ids, incarnations and tokens come from here.
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

  // Never 0, so that 0 can mean "none".
  uint64_t NonZero64();
  // 128 bits in lower-case hex.
  std::string HexId();

  // The kernel's generator; never destroyed.
  static RandomSource* Real();
};

// Counts upwards: the same ids in every run.
class FakeRandomSource : public RandomSource {
 public:
  std::string Bytes(size_t count) override;

 private:
  Mutex mu_;
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 1;
};

}  // namespace djinn

#endif  // COMMON_BASE_RANDOM_H_
