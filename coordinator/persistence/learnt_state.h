// Encodes the tuning cache of a WorkTable, by the keys of
// coordinator_state.proto.
#ifndef COORDINATOR_PERSISTENCE_LEARNT_STATE_H_
#define COORDINATOR_PERSISTENCE_LEARNT_STATE_H_

#include <map>
#include <string>

#include "coordinator/tables/work_table.h"

namespace djinn::coordinator {

std::map<std::string, std::string> EncodeLearnt(
    const WorkTable::Learnt& learnt);

// Decodes the tuning cache out of a state that has other entries, too. Leaves
// out, with a line in the log, what cannot be read or was counted in another
// way.
WorkTable::Learnt DecodeLearnt(const std::map<std::string, std::string>& state);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_PERSISTENCE_LEARNT_STATE_H_
