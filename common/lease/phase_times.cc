#include "common/lease/phase_times.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"
#include "common/base/proto_duration.h"

namespace djinn {

std::string PhaseName(v1::Phase phase) {
  if (KnownPhase(phase) == v1::PHASE_UNSPECIFIED) return "unknown";
  return absl::AsciiStrToLower(
      absl::StripPrefix(v1::Phase_Name(phase), "PHASE_"));
}

v1::Phase KnownPhase(int phase) {
  return v1::Phase_IsValid(phase) ? static_cast<v1::Phase>(phase)
                                  : v1::PHASE_UNSPECIFIED;
}

PhaseTimes::PhaseTimes(
    const google::protobuf::RepeatedPtrField<v1::PhaseUse>& uses) {
  for (const v1::PhaseUse& use : uses) {
    Add(KnownPhase(use.phase()), FromProtoDuration(use.device_time()));
  }
}

absl::Duration PhaseTimes::total() const {
  absl::Duration sum;
  for (const absl::Duration time : times_) sum += time;
  return sum;
}

PhaseTimes& PhaseTimes::operator+=(const PhaseTimes& other) {
  for (int phase = 0; phase < kPhases; ++phase) {
    times_[phase] += other.times_[phase];
  }
  return *this;
}

PhaseTimes& PhaseTimes::operator-=(const PhaseTimes& other) {
  for (int phase = 0; phase < kPhases; ++phase) {
    times_[phase] -= other.times_[phase];
  }
  return *this;
}

PhaseTimes PhaseTimes::GrownSince(const PhaseTimes& before,
                                  absl::Duration total) const {
  PhaseTimes grown;
  absl::Duration left = total;
  for (int phase = v1::PHASE_UNSPECIFIED + 1; phase < kPhases; ++phase) {
    const absl::Duration more = std::min(
        std::max(times_[phase] - before.times_[phase], absl::ZeroDuration()),
        left);
    grown.times_[phase] = more;
    left -= more;
  }
  grown.times_[v1::PHASE_UNSPECIFIED] = left;
  return grown;
}

void PhaseTimes::Describe(
    google::protobuf::RepeatedPtrField<v1::PhaseUse>* uses) const {
  for (int phase = 0; phase < kPhases; ++phase) {
    if (times_[phase] == absl::ZeroDuration()) continue;
    v1::PhaseUse* const use = uses->Add();
    use->set_phase(static_cast<v1::Phase>(phase));
    *use->mutable_device_time() = ToProtoDuration(times_[phase]);
  }
}

}  // namespace djinn
