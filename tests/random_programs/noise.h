// Disturbs the terms of sums slightly, as adding them up in another order
// would.
//
// A sum in another order equals a sum whose terms differ by some roundings, at
// most as many as there are terms. An oracle therefore disturbs the operands of
// every call that sums by more than that. This shows how far the values
// computed from such sums may differ, whatever follows from them: a difference
// of two sums, a comparison, an index.
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

  // While the scope lives, it disturbs the operands of a step that sums
  // elements. The versions of tensors do not change. The destructor restores
  // everything except what the step wrote.
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
