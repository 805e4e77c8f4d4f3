// What a WorkTable learnt, as it outlives the process, by the keys of
// coordinator_state.proto.
#ifndef COORDINATOR_PERSISTENCE_LEARNT_STATE_H_
#define COORDINATOR_PERSISTENCE_LEARNT_STATE_H_

#include <map>
#include <string>

#include "coordinator/tables/work_table.h"

namespace djinn::coordinator {

std::map<std::string, std::string> EncodeLearnt(
    const WorkTable::Learnt& learnt);

// Of a state that has other entries, too. What cannot be read, or was counted
// in another way, is left out with a line in the log: it is learnt again.
WorkTable::Learnt DecodeLearnt(const std::map<std::string, std::string>& state);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_PERSISTENCE_LEARNT_STATE_H_
