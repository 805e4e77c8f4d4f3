// Says why a run's structure is not one that was defined before, for the debug
// level "execution". Used by the sender only.
#ifndef CLIENT_LIB_SESSION_STREAM_STRUCTURE_HISTORY_H_
#define CLIENT_LIB_SESSION_STREAM_STRUCTURE_HISTORY_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "client_lib/session/recording/segment.h"

namespace djinn {

class StructureHistory {
 public:
  // Structures that a new one is compared with, the latest.
  static constexpr size_t kMaxKept = 32;

  // How the segment's calls differ from the structure most like it, in words.
  // Keeps them under the id.
  std::string Explain(const Segment& segment, uint64_t structure_id);

 private:
  struct Kept {
    uint64_t structure_id;
    std::vector<Segment::Mark> calls;
  };

  std::deque<Kept> kept_;  // latest first
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_STREAM_STRUCTURE_HISTORY_H_
