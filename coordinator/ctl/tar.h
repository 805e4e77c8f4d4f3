// Writes tar archives of texts.
#ifndef COORDINATOR_CTL_TAR_H_
#define COORDINATOR_CTL_TAR_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
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

// Writes the archive to `path`, for its owner alone (mode 0600). Replaces an
// existing file only if `replace` is set, and in one step; otherwise returns
// InvalidArgument, and leaves the file as it is. Returns InvalidArgument as
// well, which names the path and the fault, if it cannot be written.
absl::Status WriteArchive(const std::string& path, absl::string_view archive,
                          bool replace);

}  // namespace djinn::ctl

#endif  // COORDINATOR_CTL_TAR_H_
