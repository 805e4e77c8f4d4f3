// Encodes and decodes the tuning cache of a WorkTable, under the keys of
// coordinator_state.proto.
#ifndef COORDINATOR_PERSISTENCE_LEARNED_STATE_H_
#define COORDINATOR_PERSISTENCE_LEARNED_STATE_H_

#include <map>
#include <string>

#include "coordinator/tables/work_table.h"

namespace djinn::coordinator {

std::map<std::string, std::string> EncodeLearned(
    const WorkTable::Learned& learned);

// Returns the tuning cache in a state that also has other entries. Leaves out,
// and logs, entries that cannot be read or whose amounts were counted in
// another way.
WorkTable::Learned DecodeLearned(
    const std::map<std::string, std::string>& state);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_PERSISTENCE_LEARNED_STATE_H_
