// Runs the console: an observer of a cluster, and the server of its page.
#ifndef COORDINATOR_CONSOLE_CONSOLE_H_
#define COORDINATOR_CONSOLE_CONSOLE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "coordinator/console/admin_reader.h"
#include "coordinator/console/console_server.h"
#include "coordinator/console/observer.h"

namespace djinn::console {

class Console {
 public:
  // Looks at the cluster `looks` times, and starts to serve, and to look at
  // intervals, if each succeeds. `clock` outlives the console. Errors: those of
  // the Admin service, and of ConsoleServer::Start().
  static absl::StatusOr<std::unique_ptr<Console>> Start(
      std::unique_ptr<AdminReader> reader, Clock* clock,
      Observer::Options observer, ServerOptions server, int looks = 1);

  const std::string& address() const { return server_->address(); }

 private:
  Console() = default;

  std::unique_ptr<AdminReader> reader_;
  std::unique_ptr<Observer> observer_;
  std::unique_ptr<ConsoleServer> server_;
};

}  // namespace djinn::console

#endif  // COORDINATOR_CONSOLE_CONSOLE_H_
