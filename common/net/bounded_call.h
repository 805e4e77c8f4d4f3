// A streaming call of which no operation blocks its caller without a limit.
//
// gRPC's own streams wait in Write() until the socket has the bytes. When a
// peer freezes while a write is half done, nothing ends that wait: a cancelled
// call waits for its connection, a closing connection waits for its write, and
// the keepalive ping that would detect the frozen peer waits behind that write.
// (TCP gives up after a while, because gRPC asks it to; a Unix socket does
// not.) Here one operation begins a write and the next one waits for it, on
// gRPC's C interface, which knows deadlines. Cancel() ends every wait.
//
// Messages are slices. gRPC holds their memory until the bytes are copied to
// the socket or the connection ends. The call may be destroyed earlier: a
// thread of its own then frees what gRPC still uses when the connection ends.
//
// Thread-safe, but only one thread at a time reads, and only one finishes.
#ifndef COMMON_NET_BOUNDED_CALL_H_
#define COMMON_NET_BOUNDED_CALL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "google/protobuf/message.h"
#include "grpc/support/time.h"
#include "grpcpp/channel.h"
#include "grpcpp/support/slice.h"
#include "grpcpp/support/status.h"

namespace djinn {

class BoundedCall {
 public:
  // Keys and values. gRPC ends the process for those that it does not allow.
  using Headers = std::vector<std::pair<std::string, std::string>>;

  // Prepares the call and sends nothing. Headers are sent with the first
  // message.
  BoundedCall(std::shared_ptr<grpc::Channel> channel, const std::string& method,
              const Headers& headers = {});
  // Cancels the call. No thread may read any more.
  ~BoundedCall();

  // Waits until the previous message has left, and begins to send this one.
  // Returns false when the call takes no more messages.
  bool Write(absl::Span<const grpc::Slice> message);
  bool WriteMessage(const google::protobuf::Message& message);
  // Tells the peer that nothing follows. Returns false, without an effect,
  // while a write is under way.
  bool EndWrites();
  // Waits for the next message. Returns false when nothing follows.
  bool Read(std::vector<grpc::Slice>* message);
  // Waits for the next message and parses it. Returns false when nothing
  // follows, or when the bytes are not such a message; `invalid` then has
  // ParseRawMessage()'s error.
  bool ReadMessage(google::protobuf::Message* message, absl::Status* invalid);
  // Waits for the next message for at most `patience`, and returns kNothing
  // then.
  enum class Received { kMessage, kNothing, kEnd };
  Received TryReadMessage(absl::Duration patience,
                          google::protobuf::Message* message,
                          absl::Status* invalid);
  // Returns a header that the peer sent before its first message, once that was
  // read; empty if there is no such header.
  std::string PeerHeader(absl::string_view key) const;
  // Returns the status of the call after Read() returned false.
  grpc::Status Finish();
  // Wakes all waiting threads. The call takes no more messages.
  void Cancel();

  // Returns for how long gRPC has been writing the last message.
  absl::Duration WritingFor();

 private:
  struct State;

  Received ReadUntil(gpr_timespec deadline, std::vector<grpc::Slice>* message);

  // Takes note if the write in progress has ended. With `wait`, waits for that
  // end unless the call is cancelled. Returns false while the write is in
  // progress.
  bool Settle(bool wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_);
  // Begins a batch of operations with a message, or with the end if `message`
  // is empty.
  void BeginWrite(absl::Span<const grpc::Slice> message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_);

  std::unique_ptr<State> state_;
  std::atomic<bool> cancelled_{false};
  // When the write under way began, in nanoseconds; 0 when there is none.
  std::atomic<int64_t> writing_since_{0};

  Mutex write_mu_;
  bool begun_ ABSL_GUARDED_BY(write_mu_) = false;  // headers were sent
  bool writes_over_ ABSL_GUARDED_BY(write_mu_) = false;
};

}  // namespace djinn

#endif  // COMMON_NET_BOUNDED_CALL_H_
