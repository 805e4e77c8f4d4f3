// Serves the console's page and its data over HTTP, to this host alone.
//
//   GET /                      the page; and its files: no secrets
//   GET /api/overview          the rest needs "authorization: Bearer CODE"
//   GET /api/workers
//   GET /api/runs[?after=CHANGE][&before=CHANGE]
//   GET /api/shares
//   GET /api/memory[?at=MICROS]
//   GET /api/lineage
//   GET /api/graphs
//   GET /api/graph?fingerprint=HEX
//
// pictures.h has the answers. Errors are JSON: {"reason": ..., "text": ...}.
//
// Nothing here changes anything: other methods than GET are refused, and an
// AdminReader cannot. The access code travels in a header that scripts of the
// page's own origin alone can set, never in a URL or a cookie, so a foreign
// page can neither read nor use it. Requests that name another host (DNS
// rebinding) or come from another origin are refused. Paths are looked up in a
// table; no file is opened.
#ifndef COORDINATOR_CONSOLE_CONSOLE_SERVER_H_
#define COORDINATOR_CONSOLE_CONSOLE_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "coordinator/console/admin_reader.h"
#include "coordinator/console/observer.h"

namespace djinn::console {

struct ServerOptions {
  // "host:port" of the loopback. Port 0 stands for any free one.
  std::string address;
  // A secret that every request for data must carry.
  std::string access_code;
  // How often the page asks.
  absl::Duration interval = absl::Seconds(2);
  // Time for the whole of a request, and of an answer.
  absl::Duration request_timeout = absl::Seconds(2);
  absl::Duration answer_timeout = absl::Seconds(30);
};

// Accepts "host:port" of the loopback. Returns FailedPrecondition
// (INSECURE_ADDRESS) for another host, and InvalidArgument (MALFORMED_ADDRESS)
// for anything else, with what to do instead: a console has no TLS.
absl::Status CheckConsoleAddress(absl::string_view address);

class ConsoleServer {
 public:
  // Starts to serve. The reader and the observer outlive the server, whose
  // threads call both. Errors: those of CheckConsoleAddress(); Unavailable
  // (CANNOT_LISTEN).
  static absl::StatusOr<std::unique_ptr<ConsoleServer>> Start(
      ServerOptions options, Observer* observer, AdminReader* reader);
  virtual ~ConsoleServer() = default;

  // Returns the address with the port in use.
  virtual const std::string& address() const = 0;
};

}  // namespace djinn::console

#endif  // COORDINATOR_CONSOLE_CONSOLE_SERVER_H_
