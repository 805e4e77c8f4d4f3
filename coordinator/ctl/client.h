// Executes commands with a coordinator's Admin service, and prints the answers.
#ifndef COORDINATOR_CTL_CLIENT_H_
#define COORDINATOR_CTL_CLIENT_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "coordinator/ctl/command_line.h"
#include "grpcpp/channel.h"

namespace djinn::ctl {

// Prints the answers, and waits.
struct Terminal {
  // Prints text.
  std::function<void(absl::string_view)> print;
  std::function<void(absl::Duration)> sleep;
  // True for a terminal: each output of a watch then replaces the previous one.
  bool clears = false;
};

// Executes a command that needs a coordinator. InvalidArgument without a reason
// means a wrong flag; other errors are the coordinator's.
absl::Status RunCommand(const Command& command,
                        const std::shared_ptr<grpc::Channel>& channel,
                        std::string token, Terminal terminal);

}  // namespace djinn::ctl

#endif  // COORDINATOR_CTL_CLIENT_H_
