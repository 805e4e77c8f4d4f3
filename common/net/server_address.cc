#include "common/net/server_address.h"

#include <arpa/inet.h>
#include <sys/un.h>

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/error.h"

namespace djinn {
namespace {

absl::Status Malformed(absl::string_view address, absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, "MALFORMED_ADDRESS",
                   absl::StrCat("address \"", address, "\": ", what));
}

// Accepts only spellings that cannot resolve to any other host.
bool IsLoopback(absl::string_view host) {
  if (host == "localhost" || host == "::1") return true;
  in_addr parsed;
  return inet_pton(AF_INET, std::string(host).c_str(), &parsed) == 1 &&
         (ntohl(parsed.s_addr) >> 24) == 127;
}

}  // namespace

absl::Status CheckAddress(absl::string_view address, bool other_hosts) {
  absl::string_view path = address;
  if (absl::ConsumePrefix(&path, "unix:")) {
    absl::ConsumePrefix(&path, "//");
    if (path.empty()) return Malformed(address, "no path after unix:");
    if (path.size() >= sizeof(sockaddr_un::sun_path)) {
      return Malformed(address,
                       absl::StrCat("the path has ", path.size(),
                                    " bytes, Unix sockets allow ",
                                    sizeof(sockaddr_un::sun_path) - 1));
    }
    return absl::OkStatus();
  }
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos || colon == 0) {
    return Malformed(address, "expected host:port or unix:PATH");
  }
  absl::string_view host = address.substr(0, colon);
  const absl::string_view port_text = address.substr(colon + 1);
  int port;
  if (!absl::SimpleAtoi(port_text, &port) || port < 0 || port > 65535) {
    return Malformed(address, "expected a port from 0 to 65535 at the end");
  }
  if (absl::ConsumePrefix(&host, "[")) {
    if (!absl::ConsumeSuffix(&host, "]")) {
      return Malformed(address, "missing ] in the host");
    }
  } else if (absl::StrContains(host, ":")) {
    return Malformed(address,
                     "expected host:port, with IPv6 hosts in brackets");
  }
  if (!other_hosts && !IsLoopback(host)) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, "INSECURE_ADDRESS",
        absl::StrCat("address \"", address,
                     "\" is not on the loopback: tokens and tensors would "
                     "cross the network unencrypted. Set up TLS (`tls` in a "
                     "server's configuration, `coordinator_tls` in a "
                     "worker's, DJINN_TLS_CA_FILE for programs and djinnctl), "
                     "use 127.0.0.1 or a Unix socket, or say `insecure: true` "
                     "(DJINN_INSECURE=1 for programs and djinnctl)"),
        {{"address", std::string(address)}});
  }
  return absl::OkStatus();
}

std::vector<std::string> SplitAddresses(absl::string_view list) {
  std::vector<std::string> addresses;
  for (const absl::string_view address : absl::StrSplit(list, ',')) {
    addresses.emplace_back(absl::StripAsciiWhitespace(address));
  }
  return addresses;
}

}  // namespace djinn
