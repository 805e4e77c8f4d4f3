// Converts absl::Status to and from grpc::Status. Payloads, such as the
// ErrorInfo that common/base/error.h attaches, travel as details of a
// google.rpc.Status ("grpc-status-details-bin"), as every gRPC library expects
// them.
#ifndef COMMON_NET_GRPC_STATUS_H_
#define COMMON_NET_GRPC_STATUS_H_

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace djinn {

// Converts a status. Texts and payloads that are too long for HTTP/2 trailers
// are cut, because a status that does not fit would reach the peer as another
// error.
grpc::Status ToGrpcStatus(const absl::Status& status);

// Converts a status. Details that do not parse are dropped; code and text
// always survive.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace djinn

#endif  // COMMON_NET_GRPC_STATUS_H_
