// Connects both ends of a stream inside one process, without gRPC, for tests
// (also under ThreadSanitizer) and for fault injection.
//
// Each direction has one delivery thread and a bounded queue, so that messages
// arrive in order and Send() never runs the peer's code. Bulk chunks travel in
// the same queue as the messages of their direction.
#ifndef COMMON_TRANSPORT_IN_PROCESS_H_
#define COMMON_TRANSPORT_IN_PROCESS_H_

#include <memory>
#include <utility>

#include "common/transport/stream.h"

namespace djinn {

struct InProcessPair {
  std::unique_ptr<ClientStream> client;
  std::unique_ptr<WorkerStream> worker;
};

// `queue_limit` bounds the messages and chunks in flight per direction.
InProcessPair MakeInProcessPair(size_t queue_limit = 256);

}  // namespace djinn

#endif  // COMMON_TRANSPORT_IN_PROCESS_H_
