// Removes steps of a program, and then of its callables, as long as the program
// still fails.
#ifndef TESTS_RANDOM_PROGRAMS_SHRINK_H_
#define TESTS_RANDOM_PROGRAMS_SHRINK_H_

#include <functional>

#include "tests/random_programs/program.h"

namespace djinn::random_programs {

// Returns a smaller program for which `fails` still holds. `fails` must hold
// for `program`. Unless `attempts` ran out, no further step of the program
// itself (as opposed to its callables) can be removed from the result.
Program Shrink(Program program, int attempts,
               const std::function<bool(const Program&)>& fails);

}  // namespace djinn::random_programs

#endif  // TESTS_RANDOM_PROGRAMS_SHRINK_H_
