// Tells requests that a web page makes a browser send from those of this host's
// programs. Ports that need no password, or show a page, refuse the former.
#ifndef COMMON_NET_MONITORING_REQUEST_ORIGIN_H_
#define COMMON_NET_MONITORING_REQUEST_ORIGIN_H_

#include "absl/strings/string_view.h"

namespace httplib {
struct Request;
}  // namespace httplib

namespace djinn {

// Returns whether a Host header names the loopback, with any port: a tunnel may
// have another one.
bool NamesLoopback(absl::string_view host);

// Returns whether a Host header has an address in place of a name. An attacker
// can point a name at the loopback (DNS rebinding), and no address.
bool NamesAddress(absl::string_view host);

// Returns whether a page of another site made a browser send the request. If
// `linked`, a link of another site is allowed, because that site does not see
// the answer.
bool IsForeign(const httplib::Request& request, bool linked);

}  // namespace djinn

#endif  // COMMON_NET_MONITORING_REQUEST_ORIGIN_H_
