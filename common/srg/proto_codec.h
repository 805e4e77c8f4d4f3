// Structure to and from its wire form.
#ifndef COMMON_SRG_PROTO_CODEC_H_
#define COMMON_SRG_PROTO_CODEC_H_

#include "absl/status/statusor.h"
#include "common/srg/structure.h"
#include "djinn/v1/srg.pb.h"

namespace djinn::srg {

// The message's own structure is checked (every oneof set, enums known);
// everything about meaning is Validate()'s. InvalidArgument
// (MALFORMED_STRUCTURE) names the node or slot.
absl::StatusOr<Structure> FromProto(const v1::Structure& message);
absl::StatusOr<TensorView> FromProto(const v1::TensorView& message);

v1::Structure ToProto(const Structure& structure);
v1::TensorView ToProto(const TensorView& view);

}  // namespace djinn::srg

#endif  // COMMON_SRG_PROTO_CODEC_H_
