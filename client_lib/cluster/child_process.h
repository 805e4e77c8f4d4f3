// Runs a program as a child process, with its output in a file.
//
// The child has a process group of its own, so that a Ctrl-C at the terminal
// reaches only the parent. Of the parent's descriptors it inherits only a
// lifeline: the reading end of a pipe, as descriptor kLifelineFd, which reaches
// end of file when the parent ends. Not thread-safe.
#ifndef CLIENT_LIB_CLUSTER_CHILD_PROCESS_H_
#define CLIENT_LIB_CLUSTER_CHILD_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace djinn {

class ChildProcess {
 public:
  static constexpr int kLifelineFd = 3;

  ChildProcess() = default;
  // Kills the child if it is still running.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Runs `program` (a path) with `arguments`, which do not include its name.
  // `lifeline` is the reading end of the pipe. Appends output to `log_path`.
  absl::Status Start(const std::string& program,
                     const std::vector<std::string>& arguments, int lifeline,
                     const std::string& log_path);

  // Returns the process id, which stays valid after the child ended, or 0
  // before Start().
  pid_t pid() const { return pid_; }
  // Returns whether the child runs. Notices an end that Stop() did not cause.
  bool Running();
  void Signal(int signal);
  // Returns true if the child ended within `timeout`.
  bool WaitForExit(absl::Duration timeout);
  // Sends SIGTERM, then SIGKILL after `grace`.
  void Stop(absl::Duration grace);

  // Returns how the child ended, such as "ended with status 2", for error
  // texts.
  std::string DescribeEnd() const;
  // Returns the last lines of its output.
  std::string LogTail() const;

 private:
  pid_t pid_ = 0;
  bool running_ = false;
  int wait_status_ = 0;
  std::string log_path_;
};

// Finds djinn-coordinator and djinn-worker on this machine.
struct ClusterPrograms {
  std::string coordinator;
  std::string worker;
};

// Searches $DJINN_BIN_DIR if it is set. Otherwise searches the folder of the
// library or program that contains this code, the folder of the running
// program, and the build tree that contains either of these folders. Returns
// NotFound (PROGRAM_MISSING), which names the folders searched.
absl::StatusOr<ClusterPrograms> FindClusterPrograms();

}  // namespace djinn

#endif  // CLIENT_LIB_CLUSTER_CHILD_PROCESS_H_
