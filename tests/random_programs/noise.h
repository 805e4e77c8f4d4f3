// Disturbs what sums are made of by a little, as another order of adding up
// does.
//
// Sums taken in another order are those of terms that differ by as many
// roundings as there are terms, at most. An oracle that disturbs the operands
// of every call that adds something up by more than that shows how far the
// values computed from it may go, whatever comes in between: a difference of
// two such sums, a comparison, an index.
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

// Not thread-safe.
class Noise {
 public:
  // Elements change by up to `roundings` times their type's precision.
  Noise(uint64_t seed, double roundings)
      : random_(seed), roundings_(roundings) {}

  // Disturbs while it lives what a step adds up, behind PyTorch's back:
  // tensors' versions stay. Afterwards all is as it was, but for what the step
  // wrote.
  class Scope {
   public:
    // Null: does nothing.
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
