// Makes random programs.
#ifndef TESTS_RANDOM_PROGRAMS_COMPOSE_H_
#define TESTS_RANDOM_PROGRAMS_COMPOSE_H_

#include <cstdint>

#include "tests/random_programs/program.h"

namespace djinn::random_programs {

// Returns the program that belongs to a seed. Composes it while executing it on
// the CPU, so that most calls have suitable operands.
Program Compose(uint64_t seed);

}  // namespace djinn::random_programs

#endif  // TESTS_RANDOM_PROGRAMS_COMPOSE_H_
