// Tells the commands of the coordinator that leads from those of one that led
// before: every message of an elected coordinator carries its term, and terms
// grow.
//
// Thread-safe.
#ifndef COMMON_LEASE_LEADER_TERM_H_
#define COMMON_LEASE_LEADER_TERM_H_

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace djinn {

class LeaderTerm {
 public:
  // Notes the term of a message. Returns Unavailable (STALE_LEADER), and the
  // message must then be ignored, when an earlier message had a higher term. A
  // coordinator that was not elected sends 0, which is no term.
  absl::Status Note(uint64_t term) {
    uint64_t known = known_.load();
    while (term > known && !known_.compare_exchange_weak(known, term)) {
    }
    if (term == 0 || term >= known) return absl::OkStatus();
    return MakeError(absl::StatusCode::kUnavailable, "STALE_LEADER",
                     absl::StrCat("the coordinator leads in term ", term,
                                  ", but a later one leads in term ", known));
  }

  // Returns the highest term so far; 0 for none.
  uint64_t known() const { return known_.load(); }

 private:
  std::atomic<uint64_t> known_{0};
};

}  // namespace djinn

#endif  // COMMON_LEASE_LEADER_TERM_H_
