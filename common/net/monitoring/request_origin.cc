#include "common/net/monitoring/request_origin.h"

#include <arpa/inet.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "httplib.h"

namespace djinn {
namespace {

// Returns the header without the port.
absl::string_view HostOf(absl::string_view header) {
  const size_t colon = header.rfind(':');
  const bool has_port =
      colon != absl::string_view::npos && !absl::EndsWith(header, "]");
  return has_port ? header.substr(0, colon) : header;
}

}  // namespace

bool NamesLoopback(absl::string_view host) {
  host = HostOf(host);
  return host == "localhost" || host == "127.0.0.1" || host == "[::1]";
}

bool NamesAddress(absl::string_view host) {
  host = HostOf(host);
  in6_addr parsed;
  if (absl::ConsumePrefix(&host, "[")) {
    return absl::ConsumeSuffix(&host, "]") &&
           inet_pton(AF_INET6, std::string(host).c_str(), &parsed) == 1;
  }
  return inet_pton(AF_INET, std::string(host).c_str(), &parsed) == 1;
}

bool IsForeign(const httplib::Request& request, bool linked) {
  if (request.has_header("Origin") &&
      request.get_header_value("Origin") !=
          "http://" + request.get_header_value("Host")) {
    return true;
  }
  if (!request.has_header("Sec-Fetch-Site")) return false;
  const std::string site = request.get_header_value("Sec-Fetch-Site");
  const bool opens =
      linked && request.get_header_value("Sec-Fetch-Mode") == "navigate";
  return site != "same-origin" && site != "none" && !opens;
}

}  // namespace djinn
