// Djinn runs PyTorch programs on accelerators of other machines. This header
// includes the whole public API:
//
//   #include <djinn/djinn.h>
//   #include <torch/torch.h>
//
//   CHECK(djinn::Connect({.coordinator = "127.0.0.1:7000",
//                         .token_file = "token"}).ok());
//   auto device = djinn::Device();  // "remote_accelerator:0"
//   auto y = torch::mm(a.to(device), b.to(device)).cpu();
//
// Tensors on the device behave like those on any other PyTorch device. Calls on
// them return before they are executed; reading a value waits for it. djinn::
// functions return absl::Status; calls on tensors throw djinn::Error
// (djinn/error.h) if Djinn fails, and c10::Error if the call itself is wrong.
#ifndef CLIENT_LIB_INCLUDE_DJINN_DJINN_H_
#define CLIENT_LIB_INCLUDE_DJINN_DJINN_H_

#include "djinn/capture_scope.h"
#include "djinn/compile.h"
#include "djinn/compile_module.h"
#include "djinn/connect.h"
#include "djinn/cost.h"
#include "djinn/debug.h"
#include "djinn/embedded_cluster.h"
#include "djinn/error.h"
#include "djinn/execution_mode.h"
#include "djinn/graph.h"
#include "djinn/hints.h"
#include "djinn/profile.h"
#include "djinn/statistics.h"
#include "djinn/trace.h"
#include "djinn/transfers.h"
#include "djinn/urgency.h"

#endif  // CLIENT_LIB_INCLUDE_DJINN_DJINN_H_
