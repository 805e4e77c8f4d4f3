#include "gpu_worker/supervisor/processor_share.h"

#include <algorithm>

namespace djinn::worker {

bool ProcessorShare::Note(const Round& round) {
  const double part = round.processors /
                      static_cast<double>(std::max<size_t>(round.sharers, 1));
  const absl::Duration least = -kAllowance * round.processors;
  owed_ = std::max(owed_, least);
  if (round.others_compute) {
    owed_ += std::max(round.cpu - round.held * round.processors,
                      absl::ZeroDuration()) -
             round.passed * part;
  }
  owed_ =
      std::clamp(owed_, -kAllowance * round.processors, kLongestPause * part);
  return round.others_compute && owed_ > absl::ZeroDuration();
}

}  // namespace djinn::worker
