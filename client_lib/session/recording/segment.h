// Stores a stretch of one lane's calls in flat arrays. Record() appends to it,
// and the sender turns it into a run.
//
// Clear() keeps the memory, so that recording in a loop allocates nothing. Not
// thread-safe: the recorder's lock guards an open segment, and the sender owns
// a sealed one.
#ifndef CLIENT_LIB_SESSION_RECORDING_SEGMENT_H_
#define CLIENT_LIB_SESSION_RECORDING_SEGMENT_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client_lib/session/model/call.h"
#include "client_lib/session/model/execution_flag.h"

namespace djinn {

class Segment {
 public:
  // A segment is sealed at this many calls at the latest.
  static constexpr size_t kMaxCalls = 1024;
  // A segment repeats its start when its last kRepeatCalls calls equal its
  // first ones. It is checked for this once it has this many calls before the
  // last kRepeatCalls.
  static constexpr size_t kMinCallsBeforeRepeat = 64;
  static constexpr size_t kRepeatCalls = 4;

  // The end of one call's range in each array.
  struct Mark {
    uint64_t hash = 0;  // of the operator and the template bytes
    uint32_t operator_id = 0;
    uint32_t bytes_end = 0;
    uint32_t touches_end = 0;
    uint32_t floats_end = 0;
    uint32_t scalar_tensors_end = 0;
    uint32_t site = 0;  // not compared
  };
  // A touch that creates its storage zero-filled, with the storage's size in
  // bytes.
  struct Creation {
    uint32_t touch = 0;
    uint64_t bytes = 0;
  };

  // Opens the segment for the lane; it is sealed at `cap` calls. `serial` is
  // unique in the device and not 0.
  void Open(uint32_t lane, uint64_t serial, size_t cap);
  // Makes the storages' entries with this serial stale.
  void Seal() { serial_ = 0; }

  // Appends the call; moves its touches.
  void Append(Call* call);
  // Notes that the next call's i-th touch creates its storage zero-filled.
  void AddCreation(size_t touch_of_next_call, uint64_t bytes) {
    creations_.push_back(
        {static_cast<uint32_t>(touches_.size() + touch_of_next_call), bytes});
  }

  // Returns whether the segment should be split before its last kRepeatCalls
  // calls, because a new iteration of a loop seems to begin with them.
  bool RepeatsItsStart() const;
  // Moves the last `calls` calls to `next`, which is empty.
  void MoveTail(size_t calls, Segment* next);

  // Drops the contents of a sealed segment, including references to storages.
  // Keeps the memory unless it is unusually large.
  void Clear();

  uint32_t lane() const { return lane_; }
  uint64_t serial() const { return serial_; }
  size_t cap() const { return cap_; }
  absl::Span<const Mark> calls() const { return calls_; }
  absl::Span<const Touch> touches() const { return touches_; }
  absl::Span<const Touch> touches_of_last_call() const {
    const size_t count = calls_.size();
    return touches().subspan(count > 1 ? calls_[count - 2].touches_end : 0);
  }
  absl::Span<const Creation> creations() const { return creations_; }
  absl::Span<const double> floats() const { return floats_; }
  absl::Span<const ScalarValue> scalar_tensors() const {
    return scalar_tensors_;
  }
  absl::string_view bytes() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }
  // Returns roughly the segment's size here and on the wire.
  size_t footprint_bytes() const {
    return bytes_.size() + touches_.size() * sizeof(Touch) +
           floats_.size() * sizeof(double) +
           scalar_tensors_.size() * sizeof(ScalarValue);
  }

  // The run must request metadata, because its last call has unknown results.
  bool wants_metadata = false;
  // The execution mode at the time the calls were recorded.
  RunMode mode;
  // The thread that issued the calls, for the recorder.
  uint64_t thread = 0;

 private:
  uint32_t lane_ = 0;
  uint64_t serial_ = 0;
  size_t cap_ = kMaxCalls;
  std::vector<Mark> calls_;
  std::vector<uint8_t> bytes_;
  std::vector<Touch> touches_;
  std::vector<Creation> creations_;
  std::vector<double> floats_;
  std::vector<ScalarValue> scalar_tensors_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_RECORDING_SEGMENT_H_
