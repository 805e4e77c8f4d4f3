// Determines which results of a program are possible if sums are taken in
// another order.
//
// A fixed tolerance does not suffice: the difference of two nearly equal sums
// is as large as its own rounding errors, and the results of comparisons,
// roundings and sorting may differ entirely. The program is therefore run on
// the CPU many times, each time with other disturbances of the terms of its
// sums, of several strengths (noise.h). A value may differ from the CPU's a few
// times as much as the disturbed run that differs most. An integer, a truth
// value or a shape may differ if one of the disturbed runs differs. If even the
// weakest disturbances grow large, because the program multiplies them, no
// bound is known. Where all disturbed runs agree, only the CPU's own value is
// right.
#ifndef TESTS_RANDOM_PROGRAMS_TOLERANCE_H_
#define TESTS_RANDOM_PROGRAMS_TOLERANCE_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "tests/random_programs/oracle.h"
#include "tests/random_programs/program.h"

namespace djinn::random_programs {

// Runs the program when it is first used, which seeds the generators of this
// process. Not thread-safe.
class Tolerance {
 public:
  // `program` and `expectations` must outlive this object. The expectations are
  // the results of the undisturbed program. `fast` says that the program begins
  // in fast mode; steps in strict mode are not disturbed.
  Tolerance(const Program& program,
            const std::vector<Expectation>& expectations, bool fast)
      : program_(program), expectations_(expectations), fast_(fast) {}

  // Returns whether a read at this step may return the value.
  bool AllowsRead(size_t step, const at::Tensor& value);
  // Returns whether a tensor that is alive at the end may hold the value.
  bool AllowsAtTheEnd(const FinalValue& expected, const at::Tensor& value);
  // Returns whether the outcome of the step may be another than on the CPU: it
  // may raise or not raise, or return tensors of other shapes.
  bool AllowsAnotherOutcome(size_t step);
  // Returns whether any step may have another outcome.
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
