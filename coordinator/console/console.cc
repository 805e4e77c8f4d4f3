#include "coordinator/console/console.h"

#include <utility>

#include "absl/memory/memory.h"
#include "common/base/status_macros.h"

namespace djinn::console {

absl::StatusOr<std::unique_ptr<Console>> Console::Start(
    std::unique_ptr<AdminReader> reader, Clock* clock,
    Observer::Options observer, ServerOptions server, int looks) {
  auto console = absl::WrapUnique(new Console);
  console->reader_ = std::move(reader);
  console->observer_ =
      std::make_unique<Observer>(console->reader_.get(), clock, observer);
  for (int i = 0; i < looks; ++i) {
    DJINN_RETURN_IF_ERROR(console->observer_->Look());
  }
  DJINN_ASSIGN_OR_RETURN(
      console->server_,
      ConsoleServer::Start(std::move(server), console->observer_.get(),
                           console->reader_.get()));
  console->observer_->Start();
  return console;
}

}  // namespace djinn::console
