// One stream of a session or a worker.
#ifndef COORDINATOR_STREAM_ID_H_
#define COORDINATOR_STREAM_ID_H_

#include <cstdint>
#include <string>

namespace djinn::coordinator {

// A session or worker as one of its streams sees it. Calls with the id of a
// stream that was replaced do nothing or return Aborted.
struct StreamId {
  std::string owner;
  uint64_t stream = 0;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_STREAM_ID_H_
