// Explains why TLS with a peer fails. gRPC says "certificate verify failed" at
// best, and only "Socket closed" if the peer objects.
#ifndef COMMON_NET_TLS_TLS_PROBE_H_
#define COMMON_NET_TLS_TLS_PROBE_H_

#include <string>

#include "absl/status/status.h"
#include "common/net/tls/tls.h"

namespace djinn {

// Explains `status`, with which a call ended on a channel to `address` with
// `security`. If it is Unavailable, tries a handshake like the channel's for at
// most two seconds, and returns FailedPrecondition (TLS_HANDSHAKE) with the
// fault if that fails for a reason of TLS. Returns any other status as it is.
// No call travels on the connection of the trial.
absl::Status ExplainTlsFailure(absl::Status status, const std::string& address,
                               const ChannelSecurity& security);

}  // namespace djinn

#endif  // COMMON_NET_TLS_TLS_PROBE_H_
