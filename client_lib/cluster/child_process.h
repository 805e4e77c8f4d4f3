// A program run as a child process, with its output in a file.
//
// The child is in a process group of its own (a Ctrl-C at the terminal is for
// the parent) and inherits nothing but a lifeline: the reading end of a pipe,
// as descriptor kLifelineFd, which reaches end of file when this process is
// gone. Not thread-safe.
#ifndef CLIENT_LIB_CLUSTER_CHILD_PROCESS_H_
#define CLIENT_LIB_CLUSTER_CHILD_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace djinn {

class ChildProcess {
 public:
  static constexpr int kLifelineFd = 3;

  ChildProcess() = default;
  // Kills what still runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Runs `program` (a path) with the arguments after its name; `lifeline` is
  // the pipe's reading end. Output is appended to `log_path`.
  absl::Status Start(const std::string& program,
                     const std::vector<std::string>& arguments, int lifeline,
                     const std::string& log_path);

  // 0 before Start(). The number of a child that ended stays.
  pid_t pid() const { return pid_; }
  // Also notices an end that came by itself.
  bool Running();
  void Signal(int signal);
  // True when the child ended within `timeout`.
  bool WaitForExit(absl::Duration timeout);
  // Asks it to end, then insists.
  void Stop(absl::Duration grace);

  // "ended with status 2", for error texts.
  std::string DescribeEnd() const;
  // The last lines of its output.
  std::string LogTail() const;

 private:
  pid_t pid_ = 0;
  bool running_ = false;
  int wait_status_ = 0;
  std::string log_path_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_CLUSTER_CHILD_PROCESS_H_
