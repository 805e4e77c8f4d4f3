// A streaming call none of whose operations keeps its caller for ever.
//
// gRPC's own streams wait in Write() until the socket has the bytes. When a
// peer freezes while a write is half done, nothing ends that wait: a cancelled
// call waits for its connection, a connection that is to be closed waits for
// its write, and the keepalive ping that would find the peer out waits behind
// that write. (TCP gives up after a while, which gRPC asks it to; a Unix socket
// does not.) Here a write is begun by one operation and waited for by the next,
// on gRPC's C interface, which knows deadlines; Cancel() ends every wait.
//
// Messages are slices; gRPC holds what they point at until the bytes are
// copied to the socket or the connection ends. The call may be destroyed
// before: what gRPC still uses of it is then left to a thread of its own, which
// frees it when the connection ends.
//
// Thread-safe, but one thread at a time reads, and one finishes.
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
  // Keys and values. The process dies of those that gRPC does not allow.
  using Headers = std::vector<std::pair<std::string, std::string>>;

  // Sends nothing yet; headers go with the first message.
  BoundedCall(std::shared_ptr<grpc::Channel> channel, const std::string& method,
              const Headers& headers = {});
  // Cancels. Nobody may read any more.
  ~BoundedCall();

  // Begins to send a message once the one before it has left; until then it
  // waits. False when the call takes no more.
  bool Write(absl::Span<const grpc::Slice> message);
  bool WriteMessage(const google::protobuf::Message& message);
  // Tells the peer that nothing follows. False, without an effect, while
  // something is being written.
  bool EndWrites();
  // False: nothing follows.
  bool Read(std::vector<grpc::Slice>* message);
  // False, too, when what came is no such message: then `invalid` holds
  // ParseRawMessage()'s error.
  bool ReadMessage(google::protobuf::Message* message, absl::Status* invalid);
  // The same, unless nothing comes within `patience`: kNothing.
  enum class Received { kMessage, kNothing, kEnd };
  Received TryReadMessage(absl::Duration patience,
                          google::protobuf::Message* message,
                          absl::Status* invalid);
  // What the peer sent ahead of its first message, once that was read; empty
  // where there is no such header.
  std::string PeerHeader(absl::string_view key) const;
  // How the call ended, once Read() returned false.
  grpc::Status Finish();
  // Wakes whoever waits. The call takes no more.
  void Cancel();

  // For how long gRPC has had the last message without getting rid of it.
  absl::Duration WritingFor();

 private:
  struct State;

  Received ReadUntil(gpr_timespec deadline, std::vector<grpc::Slice>* message);

  // Notes the end of the write that is under way; waits for it unless the call
  // is cancelled. False: still under way.
  bool Settle(bool wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_);
  // Begins a batch with a message, or with the end if there is none.
  void BeginWrite(absl::Span<const grpc::Slice> message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_);

  std::unique_ptr<State> state_;
  std::atomic<bool> cancelled_{false};
  // When the write under way began; 0 when there is none.
  std::atomic<int64_t> writing_since_{0};

  Mutex write_mu_;
  bool begun_ ABSL_GUARDED_BY(write_mu_) = false;  // headers are on their way
  bool writes_over_ ABSL_GUARDED_BY(write_mu_) = false;
};

}  // namespace djinn

#endif  // COMMON_NET_BOUNDED_CALL_H_
