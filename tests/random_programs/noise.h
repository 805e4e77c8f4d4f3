// Disturbs the terms of sums slightly, as adding them up in another order
// would.
//
// A sum taken in another order is that of terms that differ by at most as many
// roundings as there are terms. So an oracle disturbs the operands of every
// call that adds something up by more than that. It thereby shows how far the
// values computed from such sums may differ, whatever follows: a difference of
// two sums, a comparison, an index.
#ifndef TESTS_RANDOM_PROGRAMS_NOISE_H_
#define TESTS_RANDOM_PROGRAMS_NOISE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/random_programs/machine.h"
#include "tests/random_programs/program.h"

namespace djinn::random_programs {

// Disturbs operands by random amounts. Not thread-safe.
class Noise {
 public:
  // Changes elements by up to `roundings` times their type's precision.
  Noise(uint64_t seed, double roundings)
      : random_(seed), roundings_(roundings) {}

  // While it lives, disturbs the operands of a step that adds up elements.
  // Tensors' versions stay unchanged. The destructor restores everything except
  // what the step wrote.
  class Scope {
   public:
    // Does nothing if `noise` is null.
    Scope(Noise* noise, const Step& step, const Machine& machine);
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope();

   private:
    struct Kept {
      c10::Storage storage;
      size_t element_size;
      std::string before;
      std::string disturbed;
    };
    std::vector<Kept> kept_;
  };

 private:
  void Disturb(const at::Tensor& elements);

  std::mt19937_64 random_;
  const double roundings_;
};

}  // namespace djinn::random_programs

#endif  // TESTS_RANDOM_PROGRAMS_NOISE_H_
