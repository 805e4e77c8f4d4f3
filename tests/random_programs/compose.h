// Makes random programs.
#ifndef TESTS_RANDOM_PROGRAMS_COMPOSE_H_
#define TESTS_RANDOM_PROGRAMS_COMPOSE_H_

#include <cstdint>

#include "tests/random_programs/program.h"

namespace djinn::random_programs {

// Returns the program that belongs to a seed. Executes it on the CPU while
// composing, so that most calls have operands that fit.
Program Compose(uint64_t seed);

}  // namespace djinn::random_programs

#endif  // TESTS_RANDOM_PROGRAMS_COMPOSE_H_
