// Reads and sets the switches of PyTorch in this process on which the bits of
// results depend.
#ifndef COMMON_TORCH_PROCESS_SWITCHES_H_
#define COMMON_TORCH_PROCESS_SWITCHES_H_

#include "common/srg/switches.h"

namespace djinn {

// Returns the process's switches. `flush_denormal` is the calling thread's.
srg::Switches ReadSwitches();

// Sets the process's switches, and `flush_denormal` of the calling thread and
// of the compute threads that serve it; a processor without that mode is left
// as it is. PyTorch does not synchronise them: no
// other thread may compute meanwhile. May throw c10::Error.
void WriteSwitches(const srg::Switches& switches);

}  // namespace djinn

#endif  // COMMON_TORCH_PROCESS_SWITCHES_H_
