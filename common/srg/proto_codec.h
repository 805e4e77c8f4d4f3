// Converts a Graph to and from its wire form.
#ifndef COMMON_SRG_PROTO_CODEC_H_
#define COMMON_SRG_PROTO_CODEC_H_

#include "absl/status/statusor.h"
#include "common/srg/graph.h"
#include "djinn/v1/srg.pb.h"

namespace djinn::srg {

// Converts a message. Checks only its form (every oneof is set, enumerators are
// known); Validate() checks its meaning. InvalidArgument (MALFORMED_GRAPH)
// names the node or slot.
absl::StatusOr<Graph> FromProto(const v1::Graph& message);
absl::StatusOr<TensorView> FromProto(const v1::TensorView& message);

v1::Graph ToProto(const Graph& graph);
v1::TensorView ToProto(const TensorView& view);

}  // namespace djinn::srg

#endif  // COMMON_SRG_PROTO_CODEC_H_
