// Predicts which values a program will read, so that the device can prefetch
// them. A loop often reads a result of the same call in every iteration, such
// as a training step's loss. At the next such call, the device requests the
// value at once and may have it before the program asks.
//
// A call's position identifies it: a hash of the lane and of the calls that the
// lane recorded since its last read, including this call. A position is
// predicted after two reads of a value that the call at this position wrote. It
// is no longer predicted after a prefetched value is not read. A wrong
// prediction costs a small message and does not change any result.
//
// Not thread-safe: the recorder's lock guards it.
#ifndef CLIENT_LIB_SESSION_RECORDING_READ_PREDICTOR_H_
#define CLIENT_LIB_SESSION_RECORDING_READ_PREDICTOR_H_

#include <cstdint>
#include <deque>

#include "absl/container/flat_hash_map.h"
#include "client_lib/session/recording/segment.h"
#include "common/srg/graph.h"

namespace djinn {

class ReadPredictor {
 public:
  // Larger values are not prefetched.
  static constexpr uint64_t kMaxBytes = 1024;
  // Limits on the remembered writes, positions and lanes.
  static constexpr size_t kMaxWrites = 512;
  static constexpr size_t kMaxPositions = 256;
  static constexpr size_t kMaxLanes = 256;

  struct Prediction {
    // Index among the call's touches.
    uint32_t touch = 0;
    srg::TensorView view;
    uint64_t bytes = 0;
    // Reads seen, minus the penalties for prefetches that were not read.
    int confidence = 0;
    // The value was prefetched and not read since.
    bool pending = false;
  };

  // Notes that the segment's last call was recorded in its lane. Returns the
  // read to expect after this call, or null. The pointer is valid until the
  // next call of a method.
  const Prediction* OnCall(const Segment& segment);

  // Like OnCall(), for an output of a captured graph that the lane
  // executes. The caller passes outputs in order.
  const Prediction* OnOutput(uint32_t lane, uint64_t captured_graph,
                             uint32_t output, uint64_t storage_id);

  // Notes that the lane reads the storage, and resets the lane's position.
  void OnRead(uint32_t lane, uint64_t storage_id, const srg::TensorView& view,
              uint64_t bytes);
  // Notes that the lane got a value without a request, and resets the lane's
  // position.
  void OnAnswered(uint32_t lane);

 private:
  struct Write {
    uint64_t storage_id = 0;
    uint64_t position = 0;
    uint32_t touch = 0;
  };

  uint64_t* PositionOf(uint32_t lane);
  void NoteWrite(const Write& write);
  const Prediction* Predict(uint64_t position, size_t touches);

  absl::flat_hash_map<uint32_t, uint64_t> positions_;  // by lane
  // Writes by calls, the last one first; at most kMaxWrites.
  std::deque<Write> writes_;
  absl::flat_hash_map<uint64_t, Prediction> predictions_;  // by position
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_RECORDING_READ_PREDICTOR_H_
