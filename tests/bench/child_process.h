// Runs a helper program in a process of its own beside the benchmark, as
// Djinn's worker runs.
#ifndef TESTS_BENCH_CHILD_PROCESS_H_
#define TESTS_BENCH_CHILD_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace djinn::bench {

// Returns the path of a program in the same folder as this one.
std::string SiblingProgram(absl::string_view name);

// Returns the path of this program.
std::string OwnProgram();

// A process that runs until it ends by itself or its standard input ends. Not
// thread-safe.
class ChildProcess {
 public:
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(
      const std::string& program, const std::vector<std::string>& arguments);

  // Ends its input and waits for its exit.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Returns the next line of the output. Returns Unavailable when the output
  // has ended, or after ten seconds.
  absl::StatusOr<std::string> ReadLine();

  // Writes a line to its input. Returns Unavailable when it reads no more.
  absl::Status WriteLine(const std::string& line);

  // Ends its input.
  void EndInput();

  // Waits until it ends by itself. Returns an error unless its status is 0.
  absl::Status Wait();

  // 0 after Wait().
  pid_t pid() const { return pid_; }

 private:
  ChildProcess(pid_t pid, int input, int output)
      : pid_(pid), input_(input), output_(output) {}

  pid_t pid_;
  int input_;   // Its standard input, for writing; -1 once ended.
  int output_;  // Its standard output, for reading.
  std::string unread_;
};

}  // namespace djinn::bench

#endif  // TESTS_BENCH_CHILD_PROCESS_H_
