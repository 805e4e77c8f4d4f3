// Declares the makers, each of which adds a few steps of one kind to a program.
#ifndef TESTS_RANDOM_PROGRAMS_MAKERS_H_
#define TESTS_RANDOM_PROGRAMS_MAKERS_H_

#include "tests/random_programs/composer.h"
#include "tests/random_programs/loop_body.h"

namespace djinn::random_programs {

// make_elementwise.cc
void MakeUnary(Composer& c);
void MakeElementwise(Composer& c);  // binary and ternary; in place; out=
void MakeCopy(Composer& c);         // between views, dtypes and devices

// make_view.cc
void MakeView(Composer& c);
void MakeStorageChange(Composer& c);  // resize_, set_, set_data, ...

// make_indexing.cc
void MakeIndexing(Composer& c);

// make_computation.cc
void MakeReduction(Composer& c);
void MakeMatmul(Composer& c);
void MakeConcat(Composer& c);
void MakeOrdering(Composer& c);  // sort, topk, cumsum, ...
void MakeNetwork(Composer& c);   // layers and losses

// make_loop.cc
void MakeLoop(Composer& c);  // repeats a body, or calls a callable

// make_calls.cc
void MakeCalls(Composer& c, const Body& body, int times);  // calls a callable

// make_state.cc
void MakeFactory(Composer& c);
void MakeUpload(Composer& c);
void MakeRandomDraw(Composer& c);
void MakeGradient(Composer& c);
void MakeFailure(Composer& c);  // calls whose errors only a worker finds
void MakeRead(Composer& c);
void MakeDrop(Composer& c);

}  // namespace djinn::random_programs

#endif  // TESTS_RANDOM_PROGRAMS_MAKERS_H_
