// Holds the state of the checkpoints of a device (checkpoint_steps.h). A
// checkpoint reads values back, so that a recovery installs them instead of
// computing them again. The client keeps the bytes, as anchors in its lineage
// (client_lib/session/lineage).
//
// All values of a checkpoint are those of one point of the order of messages:
// until it has asked for the last one, no further work is encoded. Values that
// depend on each other would otherwise never lose their chains. A sixteenth of
// checkpoint_memory may be on its way at a time, so that nothing waits for
// small states.
//
// The connection's lock guards it; ConnectionState says why.
#ifndef CLIENT_LIB_SESSION_DEVICE_REPLICA_CHECKPOINT_H_
#define CLIENT_LIB_SESSION_DEVICE_REPLICA_CHECKPOINT_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client_lib/session/lineage/lineage.h"
#include "client_lib/session/transfer/work.h"

namespace djinn {

struct CheckpointState {
  // The share of checkpoint_memory that may be on its way. A larger value
  // travels alone.
  static constexpr uint64_t kShareUnderWay = 16;

  // A value that is read back. It owns its destination, because chunks may
  // still arrive after the checkpoint was given up.
  struct Read final : ReadWait {
    // `buffer` is null for a value inside the reply.
    Read(const Lineage::Value& of, std::shared_ptr<char[]> buffer,
         uint64_t bytes)
        : ReadWait(buffer.get(), bytes), of(of), buffer(std::move(buffer)) {}

    const Lineage::Value of;  // its producer is held
    const std::shared_ptr<char[]> buffer;
  };

  // Whether checkpoints are made from time to time, and not only when the
  // lineage is nearly full, or something in it is not kept.
  bool enabled = false;
  // The value of `asked` after whose checkpoint the device leaves its worker on
  // the client's machine for one of the cluster; 0: it stays.
  uint64_t leaves_after = 0;

  // --- The checkpoint under way ---

  bool under_way = false;
  // The storages that are still to be asked for, the next one last.
  std::vector<uint64_t> left;
  std::vector<std::shared_ptr<Read>> reads;
  uint64_t bytes_under_way = 0;
  uint64_t values = 0;  // that arrived
  uint64_t bytes = 0;   // of those values
  absl::Duration began;
  // The value of `asked` up to which it is the answer.
  uint64_t answers = 0;
  // The error if there is no room for all of its values.
  absl::Status no_room;

  // --- The last checkpoint ---

  absl::Duration ended;
  // The time that it took.
  absl::Duration took;
  // Bytes of the lineage at its end, and of the temporary file.
  uint64_t bytes_after = 0;
  uint64_t spilled_after = 0;
  // The outcome of the last one that was asked for.
  absl::Status outcome;
  bool warned = false;  // that there is no room

  // Whether a message wrote something since the last checkpoint began.
  bool new_messages = false;
  // Checkpoints that were asked for, and the last one that is done.
  uint64_t asked = 0;
  uint64_t answered = 0;
  // Number of pieces of work that precede the last one that was asked for.
  uint64_t works_before = 0;

  // Forgets the checkpoint under way.
  void GiveUp() {
    under_way = false;
    left.clear();
    reads.clear();
    bytes_under_way = 0;
    // The checkpoint was asked for only to leave the worker, which is lost.
    if (leaves_after > answered && leaves_after == asked) --asked;
    leaves_after = 0;
    new_messages = true;
  }
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_REPLICA_CHECKPOINT_H_
