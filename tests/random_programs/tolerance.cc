#include "tests/random_programs/tolerance.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "tests/random_programs/noise.h"

namespace djinn::random_programs {
namespace {

// The number of runs with each strength. If two values are equal on the CPU,
// the probability that no run puts the other one first is 2^-48.
constexpr int kRuns = 16;
// The strengths of disturbances, in roundings. The sums of these programs have
// up to some thousand terms. In the narrower types, only the strongest
// disturbance has an effect: it makes some values round the other way.
constexpr double kStrengths[] = {16, 256, 4096};
// A value is open if most of its elements differ by at least this share of the
// largest element. In some programs each step multiplies roundings so much that
// even the weakest disturbance has this effect, and no bound is known.
constexpr double kOpen = 0.01;
// A value may differ from the expected one this many times as much as the
// disturbed value that differs most.
constexpr double kMargin = 4;

// Returns the distances of the elements; infinite where only one is finite.
at::Tensor Distance(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor wide_a = a.to(at::kDouble), wide_b = b.to(at::kDouble);
  const at::Tensor same =
      (wide_a == wide_b) | (wide_a.isnan() & wide_b.isnan());
  const at::Tensor distance = at::abs(wide_a - wide_b);
  const at::Tensor infinite =
      at::full_like(distance, std::numeric_limits<double>::infinity());
  return at::where(same, at::zeros_like(distance),
                   at::where(distance.isfinite(), distance, infinite));
}

// Returns whether the value is possible, given the disturbed forms of the
// expected one.
bool Allows(const at::Tensor& value, const at::Tensor& expected,
            const std::vector<at::Tensor>& disturbed) {
  if (expected.numel() == 0) return value.sizes() == expected.sizes();
  const at::Tensor size = expected.to(at::kDouble).abs().nan_to_num(0, 0, 0);
  at::Tensor reach;
  bool open = false;
  double weakest = 0, strongest = 0;
  for (size_t run = 0; run < disturbed.size(); ++run) {
    const at::Tensor& other = disturbed[run];
    if (!other.defined() || other.scalar_type() != expected.scalar_type() ||
        other.sizes() != expected.sizes()) {
      return true;  // the shape itself is uncertain
    }
    const at::Tensor distance = Distance(other, expected);
    reach = reach.defined() ? at::maximum(reach, distance) : distance;
    const double mean = distance.mean().item<double>();
    if (run % std::size(kStrengths) == 0) {
      weakest = std::max(weakest, mean);
      open |= ((distance > size.max() * kOpen).to(at::kDouble).mean() > 0.5)
                  .item<bool>();
    } else if (run % std::size(kStrengths) == std::size(kStrengths) - 1) {
      strongest = std::max(strongest, mean);
    }
  }
  // If the program did not multiply disturbances, weaker disturbances would
  // have a smaller effect.
  if (open && expected.is_floating_point() && weakest > strongest / 4) {
    return true;
  }
  if (value.sizes() != expected.sizes() ||
      value.scalar_type() != expected.scalar_type()) {
    return false;
  }
  if (!expected.is_floating_point()) {
    return ((reach > 0) | (value == expected)).all().item<bool>();
  }
  return (Distance(value, expected) <= reach * kMargin).all().item<bool>();
}

bool SameOutcome(const Expectation& a, const Expectation& b) {
  return a.outcome == b.outcome && a.fails == b.fails &&
         a.results == b.results && a.operands == b.operands;
}

}  // namespace

const std::vector<Tolerance::Run>& Tolerance::runs() {
  for (uint64_t seed = runs_.size(); seed < kRuns * std::size(kStrengths);
       ++seed) {
    Noise noise(seed + 1, kStrengths[seed % std::size(kStrengths)]);
    Oracle oracle(program_, /*failures=*/true, &noise, fast_);
    Run run;
    for (const Step& step : program_.steps) {
      run.expectations.push_back(oracle.Apply(step));
    }
    run.values = oracle.Finish();
    runs_.push_back(std::move(run));
  }
  return runs_;
}

bool Tolerance::AllowsRead(size_t step, const at::Tensor& value) {
  std::vector<at::Tensor> disturbed;
  for (const Run& run : runs()) {
    disturbed.push_back(run.expectations[step].value);
  }
  return Allows(value, expectations_[step].value, disturbed);
}

bool Tolerance::AllowsAtTheEnd(const FinalValue& expected,
                               const at::Tensor& value) {
  std::vector<at::Tensor> disturbed;
  for (const Run& run : runs()) {
    const auto same =
        std::find_if(run.values.begin(), run.values.end(),
                     [&](const FinalValue& final_value) {
                       return final_value.slot == expected.slot &&
                              final_value.gradient == expected.gradient;
                     });
    disturbed.push_back(same == run.values.end() ? at::Tensor() : same->value);
  }
  return Allows(value, expected.value, disturbed);
}

bool Tolerance::AllowsAnotherOutcome(size_t step) {
  return std::any_of(runs().begin(), runs().end(), [&](const Run& run) {
    return !SameOutcome(run.expectations[step], expectations_[step]);
  });
}

bool Tolerance::AllowsAnotherOutcome() {
  for (size_t step = 0; step < expectations_.size(); ++step) {
    if (AllowsAnotherOutcome(step)) return true;
  }
  return false;
}

}  // namespace djinn::random_programs
