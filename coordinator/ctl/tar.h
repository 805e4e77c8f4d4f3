// Writes tar archives of texts.
#ifndef COORDINATOR_CTL_TAR_H_
#define COORDINATOR_CTL_TAR_H_

#include <string>
#include <vector>

#include "absl/time/time.h"

namespace djinn::ctl {

struct ArchivedFile {
  // Relative path of at most 100 bytes.
  std::string name;
  std::string text;
};

// Returns an archive in the format "ustar". All files have this time, and are
// for their owner alone.
std::string TarOf(const std::vector<ArchivedFile>& files, absl::Time time);

}  // namespace djinn::ctl

#endif  // COORDINATOR_CTL_TAR_H_
