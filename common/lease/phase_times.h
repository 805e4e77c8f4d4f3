// Divides device time by phases; the phases add up to the total.
#ifndef COMMON_LEASE_PHASE_TIMES_H_
#define COMMON_LEASE_PHASE_TIMES_H_

#include <array>
#include <string>

#include "absl/time/time.h"
#include "djinn/v1/lease.pb.h"
#include "djinn/v1/notes.pb.h"

namespace djinn {

// Returns a name such as "llm_decode"; "unknown" for the unspecified phase.
std::string PhaseName(v1::Phase phase);

// Returns the phase; unspecified for a number that is none.
v1::Phase KnownPhase(int phase);

class PhaseTimes {
 public:
  static constexpr int kPhases = v1::Phase_ARRAYSIZE;

  PhaseTimes() = default;
  // Takes the times that a peer reported.
  explicit PhaseTimes(
      const google::protobuf::RepeatedPtrField<v1::PhaseUse>& uses);

  absl::Duration of(v1::Phase phase) const { return times_[phase]; }
  absl::Duration total() const;
  void Add(v1::Phase phase, absl::Duration time) { times_[phase] += time; }
  PhaseTimes& operator+=(const PhaseTimes& other);
  PhaseTimes& operator-=(const PhaseTimes& other);

  // Returns the growth since `before`, given that the total grew to `total`. No
  // phase is negative, and time without a phase counts as unspecified.
  PhaseTimes GrownSince(const PhaseTimes& before, absl::Duration total) const;

  // Writes the times that are not 0.
  void Describe(google::protobuf::RepeatedPtrField<v1::PhaseUse>* uses) const;

  friend bool operator==(const PhaseTimes&, const PhaseTimes&) = default;

 private:
  std::array<absl::Duration, kPhases> times_ = {};
};

}  // namespace djinn

#endif  // COMMON_LEASE_PHASE_TIMES_H_
