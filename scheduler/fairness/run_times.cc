#include "scheduler/fairness/run_times.h"

#include <algorithm>

namespace djinn::scheduler {

void RunTimes::Note(uint64_t graph, absl::Duration took, absl::Duration now) {
  Entry& entry = entries_[graph];
  if (!entry.has_first) {
    entry.has_first = true;
    return;
  }
  entry.last[entry.count++ % kLast] = took;
  entry.noted = now;
}

absl::Duration RunTimes::Expected(uint64_t graph, absl::Duration now) const {
  const auto found = entries_.find(graph);
  if (found == entries_.end()) return absl::ZeroDuration();
  const Entry& entry = found->second;
  if (entry.count == 0 || now - entry.noted > kTrusted) {
    return absl::ZeroDuration();
  }
  const auto end = entry.last.begin() + std::min<uint64_t>(entry.count, kLast);
  return *std::min_element(entry.last.begin(), end);
}

}  // namespace djinn::scheduler
