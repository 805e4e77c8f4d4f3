// Encodes the tuning cache of a WorkTable, by the keys of
// coordinator_state.proto.
#ifndef COORDINATOR_PERSISTENCE_LEARNED_STATE_H_
#define COORDINATOR_PERSISTENCE_LEARNED_STATE_H_

#include <map>
#include <string>

#include "coordinator/tables/work_table.h"

namespace djinn::coordinator {

std::map<std::string, std::string> EncodeLearned(
    const WorkTable::Learned& learned);

// Decodes the tuning cache out of a state that has other entries, too. Leaves
// out, with a line in the log, what cannot be read or was counted in another
// way.
WorkTable::Learned DecodeLearned(
    const std::map<std::string, std::string>& state);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_PERSISTENCE_LEARNED_STATE_H_
