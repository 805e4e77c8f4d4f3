// Implements the streams of stream.h over shared memory, for a client and a
// worker on the same machine that the same user runs. Nothing is encrypted or
// has checksums, because nothing leaves the machine's memory. The Hello says
// who the client is, as over any transport.
#ifndef COMMON_TRANSPORT_SHARED_MEMORY_SHARED_MEMORY_STREAM_H_
#define COMMON_TRANSPORT_SHARED_MEMORY_SHARED_MEMORY_STREAM_H_

#include <memory>

#include "common/transport/shared_memory/shared_memory_end.h"
#include "common/transport/stream.h"

namespace djinn {

// Makes the client's end. `open` runs in the stream's thread after Start(), and
// its failure closes the stream. `wake` is an event of the stream's own.
std::unique_ptr<ClientStream> MakeSharedMemoryClientStream(
    SharedMemoryEnd::OpenFunction open, Descriptor wake,
    SharedMemoryEnd::Options options = {});

std::unique_ptr<WorkerStream> MakeSharedMemoryWorkerStream(
    SharedConnection connection, SharedMemoryEnd::Options options = {});

}  // namespace djinn

#endif  // COMMON_TRANSPORT_SHARED_MEMORY_SHARED_MEMORY_STREAM_H_
