// Passes on the standard output and error of an executor.
//
// A tenant that took its executor over may write anything. So the executor has
// its own pipe, and each of its lines becomes a field of a line that the
// supervisor writes. The executor can forge neither another tenant's name nor
// the end of a line. Lines beyond its allowance wait in the pipe or are lost.
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

  // Returns the descriptor to poll; -1 while there is nothing to read.
  int polled() const;
  // Returns whether bytes that were read may be a line that is due.
  bool waits() const { return !unread_.empty() && allowance_ >= 1; }
  // Returns the lines that have arrived and that the allowance covers.
  std::vector<std::string> Take();
  // Returns the rest of the executor's output, including a last line without an
  // end. Call it once, last.
  std::vector<std::string> TakeLast();
  // Increases the allowance by that of the time that passed.
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

// Returns the level that a line of common/log names, and removes the beginning
// that all such lines have: the time, the level and the role. Returns "warning"
// for other lines.
absl::string_view ConsumeHead(absl::string_view* line);

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_EXECUTOR_LOG_H_
