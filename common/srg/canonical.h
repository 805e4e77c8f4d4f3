// The canonical encoding: the one byte string of a graph. Equal graphs
// have equal encodings, on every machine and protobuf version; its SHA-256 is
// the fingerprint.
//
// Layout: the format version, then every field in declaration order; integers
// as LEB128 (signed ones zigzag), floats as 8 little-endian bytes, strings and
// lists preceded by their length, variants by the index of the alternative. A
// size hole comes last, and only where there is one.
// Any change of meaning raises the version.
#ifndef COMMON_SRG_CANONICAL_H_
#define COMMON_SRG_CANONICAL_H_

#include <string>

#include "common/srg/graph.h"

namespace djinn::srg {

std::string CanonicalEncoding(const Graph& graph);

// SHA-256 of the canonical encoding, 32 bytes.
std::string Fingerprint(const Graph& graph);

}  // namespace djinn::srg

#endif  // COMMON_SRG_CANONICAL_H_
