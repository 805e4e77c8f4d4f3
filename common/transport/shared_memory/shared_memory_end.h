// One end of a shared-memory connection: sends and receives messages as bytes,
// and bulk chunks, over the rings of a SharedConnection. shared_memory_stream.h
// makes the two stream interfaces of it.
//
// A sender writes into the ring by itself when there is room, and wakes the
// peer only if that sleeps: between two busy ends no system call is made. What
// does not fit waits in a queue, which the end's own thread writes on when the
// peer says that there is room. The same thread receives, calls the handler,
// and sleeps at the socket when there is nothing to do.
//
// Receiving is a role (receiver_role.h), which the thread lends to others that
// Attend(). While nobody has it the peer wakes nobody.
//
// An end says goodbye with a status and waits for the peer's, a little while. A
// socket that ends without one means that the peer's process is gone: what it
// had written is still received, then the end is Unavailable.
#ifndef COMMON_TRANSPORT_SHARED_MEMORY_SHARED_MEMORY_END_H_
#define COMMON_TRANSPORT_SHARED_MEMORY_SHARED_MEMORY_END_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/transport/receiver_role.h"
#include "common/transport/shared_memory/frame_ring.h"
#include "common/transport/shared_memory/shared_region.h"
#include "common/transport/shared_memory/spin_wait.h"
#include "common/transport/stream.h"

namespace djinn {

class SharedMemoryEnd {
 public:
  // Called by the end's thread, and but for OnClosed() by attendants; one call
  // at a time. May call the end, but not destroy it.
  class Handler {
   public:
    virtual ~Handler() = default;
    // A whole message; an error ends the connection.
    virtual absl::Status OnBytes(absl::string_view message) = 0;
    virtual void OnBulk(uint64_t transfer_id, uint64_t offset,
                        absl::Span<const absl::string_view> pieces) = 0;
    // A queue that was full is at most half full again.
    virtual void OnRoom() {}
    virtual void OnBulkRoom() {}
    // Last.
    virtual void OnClosed(absl::Status status) = 0;
  };

  // Gets the connection, in the end's thread; gives up when `wake` is readable.
  using OpenFunction =
      std::function<absl::StatusOr<SharedConnection>(int wake)>;

  struct Options {
    // Chunks that a sender writes by itself before the thread goes on: whoever
    // sends may serve others, too.
    int bulk_burst = 8;
    // Messages and chunks that may wait for room before a sender is told.
    size_t queue_limit = 256;
    size_t bulk_queue_limit = 4;
    // How long the peer may take to say goodbye.
    absl::Duration close_timeout = absl::Seconds(2);
    // A waiting sender's patience with a peer that takes nothing.
    absl::Duration stuck_write = absl::Seconds(60);
    // Larger ones are refused, as over gRPC.
    size_t max_message_bytes = size_t{64} << 20;
  };

  // Without a connection yet. `wake` is an event of its own.
  SharedMemoryEnd(SharedSide side, Options options, Descriptor wake);
  SharedMemoryEnd(SharedSide side, Options options,
                  SharedConnection connection);
  // Closes, and waits for the thread.
  ~SharedMemoryEnd();

  // Once. `open` may be null when there is a connection. `handler` outlives
  // this.
  void Start(OpenFunction open, Handler* handler);

  // Takes a message or a chunk without waiting. False: the queue is full, until
  // OnRoom() or OnBulkRoom() says otherwise. After the end they are dropped.
  bool Send(absl::string_view message);
  bool SendBulk(uint64_t transfer_id, uint64_t offset, SharedBytes payload);

  // The same, but return when the bytes are in the ring. Cancelled once the
  // end is closed.
  absl::Status SendAndWait(absl::string_view message);
  absl::Status SendBulkAndWait(uint64_t transfer_id, uint64_t offset,
                               SharedBytes payload);

  // As ClientStream::Close().
  void Close(absl::Status status);

  // As Attendable.
  bool Attend(absl::FunctionRef<bool()> done, absl::Duration patience);
  void Recall();
  void Nudge();

 private:
  struct Pending {
    FrameKind kind = FrameKind::kMessage;
    uint64_t transfer_id = 0;
    uint64_t offset = 0;
    SharedBytes payload;
    // Bytes of a message that are in the ring.
    size_t written = 0;
  };
  // What goes out over one ring.
  struct Lane {
    std::optional<FrameRingWriter> ring;
    std::deque<Pending> queue;
    // Counted since the beginning, to know when one's own is gone.
    uint64_t added = 0;
    uint64_t gone = 0;
    // A sender was told that the queue is full.
    bool stalled = false;
  };

  void SetConnectionLocked(SharedConnection connection)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Adds to the queue, or writes at once. Returns the number to wait for.
  uint64_t AddLocked(Pending pending, bool owned, Lane* lane)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Writes what fits.
  void WriteLocked(Lane* lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WriteAllLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CloseLocked(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropQueuesLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool OverLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status WaitUntilGone(uint64_t ticket, Lane* lane)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Wakes the peer if it sleeps and something was written for it.
  void WakePeerLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // The thread's.
  void Run();
  absl::Status Establish();
  // Lends the role where something came and the thread is not needed; returns
  // when the thread has it.
  void TakeTurns(bool any);
  bool EndsLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // An attendant must leave, and the thread not lend.
  bool ThreadNeeded();

  // Wakes the attendant.
  void WakeOwn();

  // Whoever has the role.
  bool Over();
  // Takes and writes what there is; true if anything came.
  bool Advance();
  absl::StatusOr<bool> Receive();
  absl::Status TakeFrame(const FrameRingReader::Frame& frame);
  absl::StatusOr<bool> ReceiveChunk();
  void PopAndTell(FrameRingReader* ring);
  // Writes on; tells senders of room.
  void Flush();
  // Says that this side sleeps, unless there is something to do.
  bool GoToSleep(SharedSleep how);
  // Until something comes, or the thread is recalled. The thread's way, which
  // sees the peer's process end.
  void SleepAtSocket();
  // An attendant's, if nobody nudged it since, which costs less, and wakes it
  // on a processor of its own: a byte on a socket makes Linux pull who is woken
  // to the sender's.
  void SleepAtWord(uint64_t nudges, absl::Duration patience);

  const SharedSide side_;
  const Options options_;
  const Descriptor wake_;
  OpenFunction open_;
  Handler* handler_ = nullptr;

  Mutex mu_;
  CondVar room_;
  // Set once; what it holds is used without the lock.
  std::optional<SharedConnection> connection_ ABSL_GUARDED_BY(mu_);
  Lane control_ ABSL_GUARDED_BY(mu_);
  Lane bulk_ ABSL_GUARDED_BY(mu_);
  bool wrote_ ABSL_GUARDED_BY(mu_) = false;
  // Chunks sent since the thread looked.
  int burst_ ABSL_GUARDED_BY(mu_) = 0;
  // This side's goodbye, and when to stop waiting for the peer's.
  std::optional<absl::Status> goodbye_ ABSL_GUARDED_BY(mu_);
  absl::Duration give_up_ ABSL_GUARDED_BY(mu_) = absl::InfiniteDuration();
  bool said_goodbye_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<absl::Status> peers_goodbye_ ABSL_GUARDED_BY(mu_);
  // The peer is gone, or was given up.
  bool gone_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  // What went wrong with the connection.
  absl::Status broken_ ABSL_GUARDED_BY(mu_);

  ReceiverRole role_;
  // Used by whoever has the role.
  std::optional<FrameRingReader> control_in_;
  std::optional<FrameRingReader> bulk_in_;
  std::string message_;
  int socket_ = -1;
  const SharedRegion* region_ = nullptr;
  bool hung_up_ = false;
  SpinWait spin_;  // attendants'

  std::thread thread_;
};

}  // namespace djinn

#endif  // COMMON_TRANSPORT_SHARED_MEMORY_SHARED_MEMORY_END_H_
