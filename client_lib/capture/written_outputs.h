// What a call that writes its arguments is looked at for before it is recorded:
// the errors that PyTorch raises, and the sizes that out= arguments get.
#ifndef CLIENT_LIB_CAPTURE_WRITTEN_OUTPUTS_H_
#define CLIENT_LIB_CAPTURE_WRITTEN_OUTPUTS_H_

#include <ATen/core/stack.h>

#include "client_lib/capture/operator_info.h"

namespace djinn::capture {

// False: only the worker could tell, and the whole call has been carried out;
// the results are on the stack. Throws as CaptureCall().
bool PrepareOutputs(const OperatorInfo& info, torch::jit::Stack* stack);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_WRITTEN_OUTPUTS_H_
