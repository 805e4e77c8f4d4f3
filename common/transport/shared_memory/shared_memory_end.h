// One end of a shared-memory connection. It sends and receives messages as
// bytes, and bulk chunks, over the rings of a SharedConnection.
// shared_memory_stream.h turns it into the two stream interfaces.
//
// A sender writes into the ring itself when there is room, and wakes the peer
// only if that sleeps: two busy ends make no system call. Data that does not
// fit waits in a queue, which the end's own thread writes when the peer reports
// room. The same thread receives, calls the handler, and sleeps at the socket
// when there is nothing to do.
//
// Receiving is a role (receiver_role.h), which the thread lends to threads in
// Lead(). While no thread has the role, the peer wakes none.
//
// An end closes with a status and waits a short time for the peer's. A socket
// that ends without one means that the peer's process is gone. The end then
// receives what the peer had written, and is Unavailable.
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
  // Receives the events of an end. The end's thread calls it, and leaders
  // call everything but OnClosed(). One call runs at a time. It may call the
  // end, but must not destroy it.
  class Handler {
   public:
    virtual ~Handler() = default;
    // Delivers a whole message. An error ends the connection.
    virtual absl::Status OnBytes(absl::string_view message) = 0;
    virtual void OnBulk(uint64_t transfer_id, uint64_t offset,
                        absl::Span<const absl::string_view> pieces) = 0;
    // Called when a queue that was full is at most half full again.
    virtual void OnRoom() {}
    virtual void OnBulkRoom() {}
    // The last call.
    virtual void OnClosed(absl::Status status) = 0;
  };

  // Opens the connection, in the end's thread. Gives up when `wake` is
  // readable.
  using OpenFunction =
      std::function<absl::StatusOr<SharedConnection>(int wake)>;

  struct Options {
    // Chunks that a sender writes itself before it leaves the rest to the
    // thread, because the sender may have other work.
    int bulk_burst = 8;
    // Messages and chunks that may wait in the queue before a sender is told
    // that it is full.
    size_t queue_limit = 256;
    size_t bulk_queue_limit = 4;
    // Time that the peer may take to close its end.
    absl::Duration close_timeout = absl::Seconds(2);
    // Time for which a waiting sender bears with a peer that reads nothing.
    absl::Duration stuck_write = absl::Seconds(60);
    // Larger messages are refused, as over gRPC.
    size_t max_message_bytes = size_t{64} << 20;
  };

  // The first one has no connection yet; `wake` is an event of its own.
  SharedMemoryEnd(SharedSide side, Options options, Descriptor wake);
  SharedMemoryEnd(SharedSide side, Options options,
                  SharedConnection connection);
  // Closes, and waits for the thread.
  ~SharedMemoryEnd();

  // Starts the thread. Called once. `open` may be null when there is a
  // connection. `handler` outlives this end.
  void Start(OpenFunction open, Handler* handler);

  // Queue a message or a chunk without waiting. They return false when the
  // queue is full; OnRoom() or OnBulkRoom() then follows. After the end,
  // messages and chunks are dropped.
  bool Send(absl::string_view message);
  bool SendBulk(uint64_t transfer_id, uint64_t offset, SharedBytes payload);

  // Send a message or a chunk, and return when its bytes are in the ring. They
  // return Cancelled once the end is closed.
  absl::Status SendAndWait(absl::string_view message);
  absl::Status SendBulkAndWait(uint64_t transfer_id, uint64_t offset,
                               SharedBytes payload);

  // See ClientStream::Close().
  void Close(absl::Status status);

  // As LeadableStream says.
  bool Lead(absl::FunctionRef<bool()> done, absl::Duration patience);
  void Reclaim();
  void Wake();

 private:
  struct Pending {
    FrameKind kind = FrameKind::kMessage;
    uint64_t transfer_id = 0;
    uint64_t offset = 0;
    SharedBytes payload;
    // Bytes of a message that are in the ring already.
    size_t written = 0;
  };
  // Data that waits to be sent over one ring.
  struct Outgoing {
    std::optional<FrameRingWriter> ring;
    std::deque<Pending> queue;
    // Items queued and items sent since the beginning. A sender knows from them
    // when its own item is sent.
    uint64_t added = 0;
    uint64_t gone = 0;
    // Whether a sender was told that the queue is full.
    bool stalled = false;
  };

  void SetConnectionLocked(SharedConnection connection)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Adds to the queue, or writes at once. Returns the number of the item, to
  // wait for.
  uint64_t AddLocked(Pending pending, bool owned, Outgoing* lane)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Writes the queued data that fits.
  void WriteLocked(Outgoing* lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WriteAllLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CloseLocked(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropQueuesLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool OverLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status WaitUntilGone(uint64_t ticket, Outgoing* lane)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Wakes the peer if it sleeps and something was written for it.
  void WakePeerLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // The functions of the end's thread.
  void Run();
  absl::Status Establish();
  // Returns whether a leader must leave and the thread must not lend.
  bool ThreadNeeded();

  // Wakes the leader.
  void WakeOwn();

  // The functions of the role's holder follow.
  bool Over();
  // Receives and writes what is there. Returns true if anything came.
  bool Advance();
  absl::StatusOr<bool> Receive();
  absl::Status TakeFrame(const FrameRingReader::Frame& frame);
  absl::StatusOr<bool> ReceiveChunk();
  void PopAndTell(FrameRingReader* ring);
  // Writes queued data, and tells senders that there is room.
  void Flush();
  // Publishes that this side sleeps, unless there is something to do.
  bool GoToSleep(SharedSleep how);
  // Sleeps until something comes or the thread is reclaimed. The end's own
  // thread sleeps this way, so that it notices the end of the peer's process.
  void SleepAtSocket();
  // Sleeps unless there was a wake since `wakes`. Leaders sleep this way:
  // it costs less, and the thread wakes on a processor of its own. A byte on a
  // socket would make Linux pull the woken thread to the sender's processor.
  void SleepAtWord(uint64_t wakes, absl::Duration patience);

  const SharedSide side_;
  const Options options_;
  const Descriptor wake_;
  OpenFunction open_;
  Handler* handler_ = nullptr;

  Mutex mu_;
  CondVar room_;
  // Set once. What it points to is used without the lock.
  std::optional<SharedConnection> connection_ ABSL_GUARDED_BY(mu_);
  Outgoing control_ ABSL_GUARDED_BY(mu_);
  Outgoing bulk_ ABSL_GUARDED_BY(mu_);
  bool wrote_ ABSL_GUARDED_BY(mu_) = false;
  // Chunks that senders wrote since the thread last looked.
  int burst_ ABSL_GUARDED_BY(mu_) = 0;
  // The status with which this side closes, and the time until which it waits
  // for the peer's status.
  std::optional<absl::Status> goodbye_ ABSL_GUARDED_BY(mu_);
  absl::Duration give_up_ ABSL_GUARDED_BY(mu_) = absl::InfiniteDuration();
  bool said_goodbye_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<absl::Status> peers_goodbye_ ABSL_GUARDED_BY(mu_);
  // Whether the peer is gone, or the wait for it was given up.
  bool gone_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  // The fault that broke the connection.
  absl::Status broken_ ABSL_GUARDED_BY(mu_);

  ReceiverRole role_;
  // Used by the role's holder.
  std::optional<FrameRingReader> control_in_;
  std::optional<FrameRingReader> bulk_in_;
  std::string message_;
  int socket_ = -1;
  const SharedRegion* region_ = nullptr;
  bool hung_up_ = false;
  SpinWait spin_;  // used by leaders

  std::thread thread_;
};

}  // namespace djinn

#endif  // COMMON_TRANSPORT_SHARED_MEMORY_SHARED_MEMORY_END_H_
