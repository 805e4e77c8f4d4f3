// Explains why a run's graph is a new one, for the debug level "execution".
// Used by the sender only.
#ifndef CLIENT_LIB_SESSION_STREAM_GRAPH_HISTORY_H_
#define CLIENT_LIB_SESSION_STREAM_GRAPH_HISTORY_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "client_lib/session/recording/segment.h"

namespace djinn {

class GraphHistory {
 public:
  // Limit on the latest graphs, which a new one is compared with.
  static constexpr size_t kMaxKept = 32;

  // Returns a text that says how the segment's calls differ from the most
  // similar graph. Stores the calls under the id.
  std::string Explain(const Segment& segment, uint64_t graph_id);

 private:
  struct Kept {
    uint64_t graph_id;
    std::vector<Segment::Mark> calls;
  };

  std::deque<Kept> kept_;  // latest first
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_STREAM_GRAPH_HISTORY_H_
