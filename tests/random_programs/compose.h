// Makes random programs.
#ifndef TESTS_RANDOM_PROGRAMS_COMPOSE_H_
#define TESTS_RANDOM_PROGRAMS_COMPOSE_H_

#include <cstdint>

#include "tests/random_programs/program.h"

namespace djinn::random_programs {

// The program that a seed stands for. Runs it on the CPU on the way, so that
// most calls have operands that fit.
Program Compose(uint64_t seed);

}  // namespace djinn::random_programs

#endif  // TESTS_RANDOM_PROGRAMS_COMPOSE_H_
