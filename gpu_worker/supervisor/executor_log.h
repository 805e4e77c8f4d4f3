// Passes on what an executor writes to its standard output and error.
//
// A tenant that took its executor over may write anything. So the executor has
// a pipe of its own, and each of its lines becomes a field of a line that the
// supervisor writes. Neither another tenant's name nor the end of a line can be
// forged, and what the executor writes in excess of its allowance waits in the
// pipe or is lost.
#ifndef GPU_WORKER_SUPERVISOR_EXECUTOR_LOG_H_
#define GPU_WORKER_SUPERVISOR_EXECUTOR_LOG_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/transport/shared_memory/shared_region.h"

namespace djinn::worker {

// Not thread-safe.
class ExecutorLog {
 public:
  // Longer lines are cut into several.
  static constexpr size_t kMaxLineBytes = 4096;
  // Lines of a burst, lines per second for ever, and further ones that a
  // process may leave when it ends. A line counts once more for each
  // kBytesPerLine bytes.
  static constexpr double kBurst = 256;
  static constexpr double kLinesPerSecond = 5;
  static constexpr double kLastLines = 64;
  static constexpr size_t kBytesPerLine = 1024;

  // Reads from nothing.
  ExecutorLog() = default;
  // Takes the reading end of the pipe, which does not block.
  explicit ExecutorLog(Descriptor pipe) : pipe_(std::move(pipe)) {}

  // Returns the descriptor to poll; -1 while nothing is to be read.
  int polled() const;
  // Returns whether bytes that were read may be a line that is due.
  bool waits() const { return !unread_.empty() && allowance_ >= 1; }
  // Returns the lines that have arrived and that the allowance covers.
  std::vector<std::string> Take();
  // Returns what the executor has written before its end, the line without an
  // end included. Call it once, last.
  std::vector<std::string> TakeLast();
  // Adds to the allowance what the time since allows.
  void Age(absl::Duration passed);

 private:
  // Moves whole lines from unread_ to `lines` while the allowance lasts.
  void Cut(std::vector<std::string>* lines);
  void Add(absl::string_view line, std::vector<std::string>* lines);

  Descriptor pipe_;
  // Bytes that were read and are not taken yet.
  std::string unread_;
  double allowance_ = kBurst;
};

// Logs lines of the executor with this number, each at the level that it names.
// The tenant is empty for the spare executor.
void LogForExecutor(absl::string_view tenant, uint64_t number,
                    const std::vector<std::string>& lines);

// Returns the level that a line of common/log names, and cuts what every such
// line begins with off: the time, the level and the role. Returns "warning" for
// other lines.
absl::string_view ConsumeHead(absl::string_view* line);

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_EXECUTOR_LOG_H_
