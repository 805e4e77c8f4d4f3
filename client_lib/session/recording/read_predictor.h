// Prefetches what a program will read. A loop reads the same result of the same
// call every time around, a training step its loss: when that call comes again
// the value can be asked for at once, and is back before the program asks.
//
// A call is known by its position: a hash of the lane and of the calls that it
// recorded since it last read, the call included. Two reads of what the call at
// a position wrote make a prediction; one that comes in vain unmakes it. Being
// wrong costs a small message and changes nothing.
//
// Not thread-safe: the device's lock guards it.
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
  // Larger values are not asked for in advance.
  static constexpr uint64_t kMaxBytes = 1024;
  // Bounds of what is remembered: calls that wrote, positions, lanes.
  static constexpr size_t kMaxWrites = 512;
  static constexpr size_t kMaxPositions = 256;
  static constexpr size_t kMaxLanes = 256;

  struct Prediction {
    // Which of the call's touches.
    uint32_t touch = 0;
    srg::TensorView view;
    uint64_t bytes = 0;
    // Reads seen less predictions that came in vain.
    int confidence = 0;
    // Asked for, and not read since.
    bool pending = false;
  };

  // The segment's last call was recorded in its lane. The read to expect after
  // it, until the next method is called; null when there is none.
  const Prediction* OnCall(const Segment& segment);

  // Likewise for an output of a recording that the lane executes, in order.
  const Prediction* OnOutput(uint32_t lane, uint64_t recording, uint32_t output,
                             uint64_t storage_id);

  // The lane reads the storage; what it records next begins anew.
  void OnRead(uint32_t lane, uint64_t storage_id, const srg::TensorView& view,
              uint64_t bytes);
  // The lane has a value without asking for it; likewise.
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
  // What calls wrote, the last one first; at most kMaxWrites.
  std::deque<Write> writes_;
  absl::flat_hash_map<uint64_t, Prediction> predictions_;  // by position
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_RECORDING_READ_PREDICTOR_H_
