// Accepts connections and passes on those whose first bytes have arrived.
//
// A peer that connects and says nothing, or too little, costs a descriptor for
// a bounded time and no thread: the gate closes it after `first_bytes_timeout`,
// or sooner, when it has `max_connections`. Then it closes the oldest silent
// connection of the address that has most of them, so that one host's silence
// does not push out another's request.
#ifndef COMMON_NET_CONNECTION_GATE_H_
#define COMMON_NET_CONNECTION_GATE_H_

#include <functional>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/net/socket.h"

namespace djinn {

class ConnectionGate {
 public:
  enum class Verdict { kIncomplete, kComplete, kWrong };

  struct Options {
    // Number of connections that the gate holds at once.
    size_t max_connections = 1024;
    // Time between the connection and the arrival of its first bytes.
    absl::Duration first_bytes_timeout = absl::Seconds(2);
    // Time for the whole of an answer that Send() writes.
    absl::Duration send_timeout = absl::Seconds(5);
    // Judges the bytes that have arrived so far, at most kMaxFirstBytes.
    std::function<Verdict(absl::string_view)> judge;
    // Takes a connection whose first bytes are complete. All of its bytes are
    // still to be read. The socket is non-blocking. The gate's thread calls it.
    std::function<void(Socket)> take;
  };
  // Bytes of a connection that is still not complete with so many are wrong.
  static constexpr size_t kMaxFirstBytes = 8 << 10;

  ConnectionGate(std::vector<Socket> listeners, Options options);
  // Closes the listeners and all connections that the gate holds.
  ~ConnectionGate();

  // Writes `answer` to a connection that was taken, and closes it. Thread-safe.
  void Send(Socket connection, std::string answer);

 private:
  struct Connection {
    Socket socket;
    std::string host;
    absl::Time deadline;
    std::string answer;  // Empty for a connection that waits for bytes.
    size_t sent = 0;
  };
  using Connections = std::list<Connection>;

  void Loop();
  void Accept(int listener);
  bool MakeRoom();
  void Admit(Socket socket, std::string host);
  void StartSends();
  void HandleEvent(int fd);
  bool Read(Connections::iterator connection);
  bool Write(Connections::iterator connection);
  void Drop(Connections::iterator connection);
  Socket Remove(Connections::iterator connection);
  void CloseExpired();
  absl::Duration TimeToNextDeadline() const;
  void SetListening(bool listening);

  const std::vector<Socket> listeners_;
  const Options options_;
  const Socket epoll_;
  const Socket wake_;

  // The thread owns the members up to `mu_`. Each list is in the order of its
  // deadlines.
  Connections silent_;
  Connections sending_;
  absl::flat_hash_map<int, Connections::iterator> by_fd_;
  absl::flat_hash_map<std::string, size_t> silent_of_host_;
  // Accepting pauses while the process has no descriptors left.
  absl::Time paused_until_ = absl::InfinitePast();

  Mutex mu_;
  std::vector<Connection> to_send_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace djinn

#endif  // COMMON_NET_CONNECTION_GATE_H_
