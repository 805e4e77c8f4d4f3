// The streams of stream.h over shared memory: for a client and a worker on the
// same machine, run by the same user. Nothing is encrypted or checked by
// checksums, as nothing leaves the machine's memory; who the client is, its
// Hello says, as over any transport.
#ifndef COMMON_TRANSPORT_SHARED_MEMORY_SHARED_MEMORY_STREAM_H_
#define COMMON_TRANSPORT_SHARED_MEMORY_SHARED_MEMORY_STREAM_H_

#include <memory>

#include "common/transport/shared_memory/shared_memory_end.h"
#include "common/transport/stream.h"

namespace djinn {

// `open` runs in the stream's thread once it is started; what it fails with
// closes the stream. `wake` is an event of the stream's own.
std::unique_ptr<ClientStream> MakeSharedMemoryClientStream(
    SharedMemoryEnd::OpenFunction open, Descriptor wake,
    SharedMemoryEnd::Options options = {});

std::unique_ptr<WorkerStream> MakeSharedMemoryWorkerStream(
    SharedConnection connection, SharedMemoryEnd::Options options = {});

}  // namespace djinn

#endif  // COMMON_TRANSPORT_SHARED_MEMORY_SHARED_MEMORY_STREAM_H_
