#include "common/lease/phase_times.h"

#include "gtest/gtest.h"

namespace djinn {
namespace {

PhaseTimes Times(int prefill, int decode) {
  PhaseTimes times;
  times.Add(v1::PHASE_LLM_PREFILL, absl::Seconds(prefill));
  times.Add(v1::PHASE_LLM_DECODE, absl::Seconds(decode));
  return times;
}

TEST(PhaseTimesTest, NamesAreWhatPeopleWrite) {
  EXPECT_EQ(PhaseName(v1::PHASE_LLM_DECODE), "llm_decode");
  EXPECT_EQ(PhaseName(v1::PHASE_UNSPECIFIED), "unknown");
  EXPECT_EQ(PhaseName(static_cast<v1::Phase>(99)), "unknown");
}

TEST(PhaseTimesTest, SurvivesTheWire) {
  v1::LeaseUse use;
  Times(1, 2).Describe(use.mutable_phases());
  EXPECT_EQ(use.phases_size(), 2);
  EXPECT_EQ(PhaseTimes(use.phases()), Times(1, 2));
}

TEST(PhaseTimesTest, AnInvalidPhaseIsUnspecified) {
  v1::LeaseUse use;
  v1::PhaseUse* const added = use.add_phases();
  added->set_phase(static_cast<v1::Phase>(99));
  added->mutable_device_time()->set_seconds(3);
  const PhaseTimes times(use.phases());
  EXPECT_EQ(times.of(v1::PHASE_UNSPECIFIED), absl::Seconds(3));
  EXPECT_EQ(times.total(), absl::Seconds(3));
}

TEST(PhaseTimesTest, GrowthAddsUpToTheWholeWhateverIsSaid) {
  const PhaseTimes grown =
      Times(4, 9).GrownSince(Times(3, 4), absl::Seconds(8));
  EXPECT_EQ(grown.of(v1::PHASE_LLM_PREFILL), absl::Seconds(1));
  EXPECT_EQ(grown.of(v1::PHASE_LLM_DECODE), absl::Seconds(5));
  EXPECT_EQ(grown.of(v1::PHASE_UNSPECIFIED), absl::Seconds(2));
  // A peer may report more than the total, and negative times.
  const PhaseTimes lied = Times(9, 1).GrownSince(Times(0, 4), absl::Seconds(2));
  EXPECT_EQ(lied.of(v1::PHASE_LLM_PREFILL), absl::Seconds(2));
  EXPECT_EQ(lied.of(v1::PHASE_LLM_DECODE), absl::ZeroDuration());
  EXPECT_EQ(lied.total(), absl::Seconds(2));
}

}  // namespace
}  // namespace djinn
