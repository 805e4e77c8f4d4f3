// Makes the body of a loop: steps that are made once, and then repeated with
// other slots and numbers.
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

// A body's first time, whose steps are part of the program.
struct Body {
  std::vector<Step> steps;
  // Slots that the body uses but does not make, and slots that it makes.
  std::set<int> used;
  std::vector<int> made;
  // A layer's weights among the used slots.
  std::set<int> weights;
  // Maps a used slot to the slot that replaces it the next time.
  std::map<int, int> carried;
  // The slot that is read each time, unless it is kNoTensor.
  int read = kNoTensor;
};

Body MakeBody(Composer& c);
// Makes a body that ends in a loss, which may have gradients by its weights.
Body MakeLearningBody(Composer& c);

// Returns whether the argument is a number that may change from one iteration
// to the next: an operand, or a bound or size along a dimension.
bool IsNumber(const Step& step, size_t argument);
c10::IValue Changed(const c10::IValue& value, int time);

// Returns other elements. Integers keep their range, as indices must.
at::Tensor Other(Composer& c, const at::Tensor& values);

// Maps slots of the first time to those of another time.
using Renamed = std::map<int, int>;
int SlotIn(const Renamed& slots, int slot);
std::set<int> SlotsIn(const Renamed& slots);

// Makes the step use the slots of another iteration. Returns false if one of
// these slots is missing.
bool Rename(const Renamed& slots, Step* step);
// Replaces the slots of an iteration by those that the body carries over to the
// next iteration.
void Advance(Composer& c, const Body& body, Renamed* slots);
// Drops the slots that one time made, except `kept`.
void DropMade(Composer& c, const std::vector<int>& made,
              const std::set<int>& kept);
// Reads the slot that the body names.
void ReadMade(Composer& c, const Body& body, const Renamed& slots);

}  // namespace djinn::random_programs

#endif  // TESTS_RANDOM_PROGRAMS_LOOP_BODY_H_
