// The body of a loop: steps that are made once, and then again over other
// slots and numbers.
#ifndef TESTS_RANDOM_PROGRAMS_LOOP_BODY_H_
#define TESTS_RANDOM_PROGRAMS_LOOP_BODY_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <map>
#include <set>
#include <vector>

#include "tests/random_programs/composer.h"
#include "tests/random_programs/program.h"

namespace djinn::random_programs {

// A body's first time around, which is part of the program.
struct Body {
  std::vector<Step> steps;
  // What it uses and does not make, and what it makes.
  std::set<int> used;
  std::vector<int> made;
  // Of what it uses: a layer's weights.
  std::set<int> weights;
  // By what it used: what takes its place the next time.
  std::map<int, int> carried;
  // Read each time, unless kNoTensor.
  int read = kNoTensor;
};

Body MakeBody(Composer& c);
// One that ends in a loss, which may have gradients by its weights.
Body MakeLearningBody(Composer& c);

// Whether the argument is a number that may change from one time to the next:
// operands, and bounds and sizes along a dimension.
bool IsNumber(const Step& step, size_t argument);
c10::IValue Changed(const c10::IValue& value, int time);

// Other elements of the same range, as indices must be.
at::Tensor Other(Composer& c, const at::Tensor& values);

// By the slots of the first time: those of another one.
using Renamed = std::map<int, int>;
int SlotIn(const Renamed& slots, int slot);
std::set<int> SlotsIn(const Renamed& slots);

// Has the step use the slots of another time; false when one is missing.
bool Rename(const Renamed& slots, Step* step);
// What comes in place of what the body used, after a time whose slots these
// are.
void Advance(Composer& c, const Body& body, Renamed* slots);
// Drops what a time made, but for what is kept.
void DropMade(Composer& c, const std::vector<int>& made,
              const std::set<int>& kept);
// Reads what the body says.
void ReadMade(Composer& c, const Body& body, const Renamed& slots);

}  // namespace djinn::random_programs

#endif  // TESTS_RANDOM_PROGRAMS_LOOP_BODY_H_
