#include "tests/random_programs/compose.h"

#include <utility>
#include <vector>

#include "tests/random_programs/composer.h"
#include "tests/random_programs/makers.h"

namespace djinn::random_programs {
namespace {

struct WeightedMaker {
  int weight;
  void (*make)(Composer&);
};

Composer::Profile ProfileOf(uint64_t seed) {
  std::mt19937_64 random(seed ^ 0x9e3779b97f4a7c15);
  Composer::Profile profile;
  profile.steps = 10 + static_cast<int>(random() % 50);
  profile.lanes = random() % 3 == 0 ? 2 + static_cast<int>(random() % 2) : 1;
  profile.gradients = random() % 3 == 0;
  profile.failures = random() % 4 == 0;
  if (random() % 2 == 0) {
    profile.steps = 5 + static_cast<int>(random() % 15);
    profile.loops = 1 + static_cast<int>(random() % 2);
  }
  return profile;
}

}  // namespace

Program Compose(uint64_t seed) {
  static const std::vector<WeightedMaker> kMakers = {
      {6, MakeFactory}, {8, MakeUpload},       {12, MakeUnary},
      {6, MakeCopy},    {16, MakeElementwise}, {6, MakeReduction},
      {14, MakeView},   {12, MakeIndexing},    {6, MakeMatmul},
      {4, MakeConcat},  {6, MakeRandomDraw},   {6, MakeStorageChange},
      {5, MakeNetwork}, {4, MakeOrdering},     {5, MakeRead},
      {4, MakeDrop},
  };
  Composer composer(seed, ProfileOf(seed));
  int total = 0;
  for (const WeightedMaker& maker : kMakers) total += maker.weight;
  for (int i = 0; i < 3; ++i) MakeUpload(composer);
  for (int i = 0; i < composer.profile().steps; ++i) {
    composer.BeginStep();
    if (composer.Chance(static_cast<double>(composer.profile().loops) /
                        composer.profile().steps)) {
      MakeLoop(composer);
      continue;
    }
    if (composer.profile().gradients && composer.Chance(0.2)) {
      MakeGradient(composer);
      continue;
    }
    if (composer.profile().failures && composer.Chance(0.12)) {
      MakeFailure(composer);
      continue;
    }
    int64_t choice = composer.Int(0, total - 1);
    for (const WeightedMaker& maker : kMakers) {
      choice -= maker.weight;
      if (choice >= 0) continue;
      maker.make(composer);
      break;
    }
  }
  return std::move(composer).Take();
}

}  // namespace djinn::random_programs
