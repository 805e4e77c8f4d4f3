// Encodes and decodes the program memory of a WorkTable, under the keys of
// coordinator_state.proto.
#ifndef COORDINATOR_PERSISTENCE_PROGRAM_MEMORY_H_
#define COORDINATOR_PERSISTENCE_PROGRAM_MEMORY_H_

#include <map>
#include <string>

#include "coordinator/tables/work_table.h"

namespace djinn::coordinator {

std::map<std::string, std::string> EncodeProgramMemory(
    const WorkTable::ProgramMemory& memory);

// Returns the program memory in a state that also has other entries. Leaves
// out, and logs, entries that cannot be read or whose amounts were counted in
// another way.
WorkTable::ProgramMemory DecodeProgramMemory(
    const std::map<std::string, std::string>& state);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_PERSISTENCE_PROGRAM_MEMORY_H_
