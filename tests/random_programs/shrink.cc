#include "tests/random_programs/shrink.h"

#include <algorithm>
#include <utility>

namespace djinn::random_programs {

Program Shrink(Program program, int attempts,
               const std::function<bool(const Program&)>& fails) {
  const auto keep_if_fails = [&](Program smaller) {
    if (attempts-- <= 0 || !fails(smaller)) return false;
    program = std::move(smaller);
    return true;
  };
  if (program.lanes > 1) {
    Program one_lane = program;
    one_lane.lanes = 1;
    keep_if_fails(std::move(one_lane));
  }
  // Ever smaller stretches, from the end, where nothing depends on them.
  for (size_t stretch = std::max<size_t>(program.steps.size() / 2, 1);;) {
    bool smaller_found = false;
    for (size_t end = program.steps.size(); end > 0;) {
      const size_t begin = end - std::min(stretch, end);
      Program smaller = program;
      smaller.steps.erase(smaller.steps.begin() + begin,
                          smaller.steps.begin() + end);
      smaller_found |= keep_if_fails(std::move(smaller));
      end = begin;
    }
    if (attempts <= 0) break;
    if (stretch > 1) {
      stretch /= 2;
    } else if (!smaller_found) {
      break;
    }
  }
  return program;
}

}  // namespace djinn::random_programs
