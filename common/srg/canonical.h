// Defines the canonical encoding: the single byte string of a graph. Equal
// graphs have equal encodings on every machine and protobuf version. The
// SHA-256 of the encoding is the fingerprint.
//
// Layout: the format version, then every field in declaration order. Integers
// are LEB128 (signed ones zigzag), floats 8 little-endian bytes; strings and
// lists are preceded by their length, variants by the index of the alternative.
// A size hole comes last, and only if there is one. Any change of meaning
// raises the version.
#ifndef COMMON_SRG_CANONICAL_H_
#define COMMON_SRG_CANONICAL_H_

#include <string>

#include "common/srg/graph.h"

namespace djinn::srg {

std::string CanonicalEncoding(const Graph& graph);

// Returns the SHA-256 of the canonical encoding, 32 bytes.
std::string Fingerprint(const Graph& graph);

}  // namespace djinn::srg

#endif  // COMMON_SRG_CANONICAL_H_
