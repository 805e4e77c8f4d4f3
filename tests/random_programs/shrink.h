// Takes steps out of a program, and then out of its callables, as long as what
// it shows remains.
#ifndef TESTS_RANDOM_PROGRAMS_SHRINK_H_
#define TESTS_RANDOM_PROGRAMS_SHRINK_H_

#include <functional>

#include "tests/random_programs/program.h"

namespace djinn::random_programs {

// `fails` must hold for the program; it holds for the one returned, from which
// no single step of its own can be taken without losing it, unless `attempts`
// ran out.
Program Shrink(Program program, int attempts,
               const std::function<bool(const Program&)>& fails);

}  // namespace djinn::random_programs

#endif  // TESTS_RANDOM_PROGRAMS_SHRINK_H_
