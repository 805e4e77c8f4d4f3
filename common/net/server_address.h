// Decides which addresses may be used without encryption: this host's loopback
// and Unix sockets, unless the operator says `insecure`.
#ifndef COMMON_NET_SERVER_ADDRESS_H_
#define COMMON_NET_SERVER_ADDRESS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace djinn {

// Accepts "unix:PATH" and "host:port" (IPv6 hosts in brackets; port 0 only
// makes sense for servers). Returns InvalidArgument (MALFORMED_ADDRESS), which
// names the fault, or FailedPrecondition (INSECURE_ADDRESS) for a host other
// than localhost, 127.0.0.0/8 and ::1, unless TLS or the operator allows
// `other_hosts`.
absl::Status CheckAddress(absl::string_view address, bool other_hosts);

// Divides a list of addresses at its commas, and removes the spaces around
// each. The addresses, of which there is at least one, may be malformed.
std::vector<std::string> SplitAddresses(absl::string_view list);

}  // namespace djinn

#endif  // COMMON_NET_SERVER_ADDRESS_H_
