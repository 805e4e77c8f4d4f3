// Djinn: run PyTorch on GPUs that are somewhere else.
//
//   #include <djinn/djinn.h>
//   #include <torch/torch.h>
//
//   CHECK(djinn::Connect({.coordinator = "127.0.0.1:7000",
//                         .token_file = "token"}).ok());
//   auto device = djinn::Device();  // "remote_accelerator:0"
//   auto y = torch::mm(a.to(device), b.to(device)).cpu();
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
#include "djinn/transfers.h"
#include "djinn/urgency.h"

#endif  // CLIENT_LIB_INCLUDE_DJINN_DJINN_H_
