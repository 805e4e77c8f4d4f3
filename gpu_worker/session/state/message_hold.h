// Remembers what holds up a session's next message: bytes that it receives, a
// value of another worker, a graph that the client supplies, or memory.
//
// Not thread-safe: the message flow's lock guards it.
#ifndef GPU_WORKER_SESSION_STATE_MESSAGE_HOLD_H_
#define GPU_WORKER_SESSION_STATE_MESSAGE_HOLD_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "djinn/v1/execution.pb.h"
#include "djinn/v1/types.pb.h"
#include "djinn/v1/worker_registry.pb.h"
#include "gpu_worker/session/state/pulls.h"
#include "gpu_worker/session/uploads/uploads.h"

namespace djinn::worker {

// An Install that waits for its bytes, or for an equal content.
struct ParkedUpload {
  uint64_t sequence = 0;
  uint64_t storage = 0;
  bool creation = false;
  uint64_t transfer_id = 0;
  uint64_t size_bytes = 0;
  // True when the bytes arrive, because no equal content was found.
  bool receives = false;
};
// A value that another worker sends, for an Install or for a session that
// enters.
struct ParkedPull {
  uint64_t sequence = 0;
  uint64_t storage = 0;
};

class MessageHold {
 public:
  // Tells for what the message waits, since when, and at which worker if it
  // waits for a VALUE.
  struct Awaited {
    v1::MessageWait::For what = v1::MessageWait::TURN;
    absl::Duration since;
    std::string worker_id;
  };

  // `limits`, `uploads` and `pulls` must outlive this.
  MessageHold(const v1::SessionLimits& limits, const Uploads* uploads,
              const Pulls* pulls)
      : limits_(limits), uploads_(*uploads), pulls_(*pulls) {}

  // --- The executor's thread parks the message, and takes out what it parked.

  // Waits for the upload or the pull.
  void Park(const std::optional<ParkedUpload>& upload,
            const std::optional<ParkedPull>& pull) {
    upload_ = upload;
    pull_ = pull;
  }
  // Waits until Supply() brings the graph.
  void AskFor(uint64_t graph_id, absl::Duration now) {
    need_ = Need{graph_id, now, std::nullopt};
  }
  // Notes that the message was put back for lack of memory.
  void LackRoom(uint64_t sequence, absl::Duration now);
  std::optional<ParkedUpload> TakeUpload();
  std::optional<ParkedPull> TakePull();
  std::optional<v1::DefineGraph> TakeSupply();

  // --- The client's side.

  // Accepts the client's answer to AskFor(). Returns whether the message waited
  // for it, or InvalidArgument (PROTOCOL_VIOLATION) when the client was not
  // asked.
  absl::StatusOr<bool> Supply(v1::DefineGraph supply);
  // Starts the time-out of the graph again for a new stream. Returns the
  // graph's id, or 0 when none is needed.
  uint64_t RepeatNeed(absl::Duration now);
  // Returns DeadlineExceeded (NEED_TIMEOUT) when the graph was asked for that
  // long ago and has not come.
  absl::Status CheckNeed(absl::Duration now, absl::Duration timeout) const;

  // Returns whether the message was parked or asked for a graph, and then
  // whether what it waits for is there.
  bool held() const {
    return upload_.has_value() || pull_.has_value() || need_.has_value();
  }
  bool released() const;
  // Returns what the message waits for; nothing when it is there.
  std::optional<Awaited> awaited() const;
  // Returns since when this message lacks memory; nothing when it does not.
  std::optional<absl::Duration> lacks_room(uint64_t sequence) const;

  // Forgets everything but the last answer of Supply().
  void Clear();

 private:
  // A graph whose plan the next run waits for.
  struct Need {
    uint64_t graph_id = 0;
    absl::Duration since;
    // The client's answer, until it is taken.
    std::optional<v1::DefineGraph> supply;
  };
  bool needs() const { return need_.has_value() && !need_->supply.has_value(); }

  const v1::SessionLimits& limits_;
  const Uploads& uploads_;
  const Pulls& pulls_;
  std::optional<ParkedUpload> upload_;
  std::optional<ParkedPull> pull_;
  std::optional<Need> need_;
  // The graph of the last answer to a need. The answer may arrive once more,
  // because a resumed stream repeats the question.
  uint64_t supplied_ = 0;
  // The message that was last put back for lack of memory, and since when it
  // has waited for memory.
  uint64_t no_room_for_ = 0;
  absl::Duration no_room_since_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_STATE_MESSAGE_HOLD_H_
