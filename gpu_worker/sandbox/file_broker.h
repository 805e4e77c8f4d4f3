// Opens the files that a sandboxed process still needs, in a process of its
// own.
//
// The driver of a GPU opens its device files for every mapping, and computing
// libraries load others late. A filter of system calls sees no names, so the
// sandbox opens nothing itself: it asks this broker, which holds a list of
// names and hands over descriptors. The broker is confined by Landlock to the
// same files, so that a link that leads elsewhere is refused by the kernel.
//
// The broker ends with the process that forked it.
#ifndef GPU_WORKER_SANDBOX_FILE_BROKER_H_
#define GPU_WORKER_SANDBOX_FILE_BROKER_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/transport/shared_memory/shared_region.h"

namespace djinn::worker {

// Absolute paths without "." or ".." that the broker opens. Those that do not
// exist are left out.
struct FileRules {
  // Folders beneath which shared libraries are read: files whose names contain
  // ".so". Other files there stay closed.
  std::vector<std::string> libraries;
  // Files, and folders with all that lies beneath, that are read.
  std::vector<std::string> readable;
  // Files that are read and written.
  std::vector<std::string> devices;
};

// Open() is thread-safe; the other functions are not.
class FileBroker {
 public:
  // Forks the broker. The process has one thread yet, and has called
  // PrepareSandbox(). Returns Internal (NO_SANDBOX) when the system refuses.
  static absl::StatusOr<FileBroker> Fork();

  FileBroker(FileBroker&&) = default;
  FileBroker& operator=(FileBroker&&) = delete;

  // Confines the broker to the rules for ever; it opens nothing before that.
  // Call it once. Returns Unimplemented (NO_SANDBOX), which names the kernel's
  // option, where there is no Landlock, and Internal (NO_SANDBOX) otherwise.
  absl::Status Confine(const FileRules& rules);

  // Returns a descriptor, or a negative error number: -EACCES for a file that
  // is not listed, or flags that would change more than the file's content.
  // Waits ten seconds at most. Safe in a signal handler.
  int Open(const char* path, int flags) const;

 private:
  explicit FileBroker(Descriptor socket) : socket_(std::move(socket)) {}

  // Invalid once moved from. Has the type SOCK_SEQPACKET.
  Descriptor socket_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SANDBOX_FILE_BROKER_H_
