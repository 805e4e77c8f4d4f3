// What a program may come to when sums are taken in another order.
//
// No fixed tolerance would do: the difference of two nearly equal sums is as
// large as its own rounding errors, and what is compared, rounded or sorted may
// come out quite otherwise. So the program is run on the CPU many times, each
// time with other and larger disturbances of what it adds up (noise.h). A value
// may be as far from the CPU's as a few times the farthest of those; an
// integer, a truth value or a shape may be another where one of those had
// another. Where even the weakest disturbances grow large, in feedback that
// multiplies them, nothing is known. Where no disturbance reaches, and wherever
// all of them agree, nothing but the CPU's own value is right.
#ifndef TESTS_RANDOM_PROGRAMS_TOLERANCE_H_
#define TESTS_RANDOM_PROGRAMS_TOLERANCE_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "tests/random_programs/oracle.h"
#include "tests/random_programs/program.h"

namespace djinn::random_programs {

// Not thread-safe. Runs the program when it is first asked, which seeds the
// generators of this process.
class Tolerance {
 public:
  // Both must outlive it; what the undisturbed program comes to. `fast`: the
  // program begins in fast mode; no step in strict mode is disturbed.
  Tolerance(const Program& program,
            const std::vector<Expectation>& expectations, bool fast)
      : program_(program), expectations_(expectations), fast_(fast) {}

  // Whether a read at this step may give the value.
  bool AllowsRead(size_t step, const at::Tensor& value);
  // Whether a tensor that is alive at the end may hold it.
  bool AllowsAtTheEnd(const FinalValue& expected, const at::Tensor& value);
  // Whether the step may raise where it does not, the other way round, or give
  // tensors of other shapes.
  bool AllowsAnotherOutcome(size_t step);
  // Whether any step may.
  bool AllowsAnotherOutcome();

 private:
  struct Run {
    std::vector<Expectation> expectations;
    std::vector<FinalValue> values;
  };

  const std::vector<Run>& runs();

  const Program& program_;
  const std::vector<Expectation>& expectations_;
  const bool fast_;
  std::vector<Run> runs_;
};

}  // namespace djinn::random_programs

#endif  // TESTS_RANDOM_PROGRAMS_TOLERANCE_H_
