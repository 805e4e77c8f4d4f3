// Why TLS with a peer fails, in words. gRPC says "certificate verify failed" at
// best, and of what the peer objects to only "Socket closed".
#ifndef COMMON_NET_TLS_PROBE_H_
#define COMMON_NET_TLS_PROBE_H_

#include <string>

#include "absl/status/status.h"
#include "common/net/tls.h"

namespace djinn {

// `status` is how a call ended on a channel to `address` with `security`. When
// it is Unavailable, tries a handshake as the channel would, for two seconds at
// most, and returns FailedPrecondition (TLS_HANDSHAKE) with what is wrong when
// that fails for a reason of TLS. Any other status is returned as it is.
// Decides nothing else: no call travels on the connection that is tried.
absl::Status ExplainTlsFailure(absl::Status status, const std::string& address,
                               const ChannelSecurity& security);

}  // namespace djinn

#endif  // COMMON_NET_TLS_PROBE_H_
