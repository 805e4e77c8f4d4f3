// Device time by phases, which it is the sum of.
#ifndef COMMON_LEASE_PHASE_TIMES_H_
#define COMMON_LEASE_PHASE_TIMES_H_

#include <array>
#include <string>

#include "absl/time/time.h"
#include "djinn/v1/lease.pb.h"
#include "djinn/v1/notes.pb.h"

namespace djinn {

// "llm_decode"; "unknown" for what is unspecified.
std::string PhaseName(v1::Phase phase);

// A phase that only newer programs know counts as unspecified.
v1::Phase KnownPhase(int phase);

class PhaseTimes {
 public:
  static constexpr int kPhases = v1::Phase_ARRAYSIZE;

  PhaseTimes() = default;
  // As a peer says.
  explicit PhaseTimes(
      const google::protobuf::RepeatedPtrField<v1::PhaseUse>& uses);

  absl::Duration of(v1::Phase phase) const { return times_[phase]; }
  absl::Duration total() const;
  void Add(v1::Phase phase, absl::Duration time) { times_[phase] += time; }
  PhaseTimes& operator+=(const PhaseTimes& other);
  PhaseTimes& operator-=(const PhaseTimes& other);

  // What these grew by since `before`, if that is `total` in all: no phase has
  // less than nothing, and what is not said of any is unspecified.
  PhaseTimes GrownSince(const PhaseTimes& before, absl::Duration total) const;

  // Sets those that are not 0.
  void Describe(google::protobuf::RepeatedPtrField<v1::PhaseUse>* uses) const;

  friend bool operator==(const PhaseTimes&, const PhaseTimes&) = default;

 private:
  std::array<absl::Duration, kPhases> times_ = {};
};

}  // namespace djinn

#endif  // COMMON_LEASE_PHASE_TIMES_H_
