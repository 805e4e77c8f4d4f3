// Bounds the connections whose peers have not shown a token.
//
// gRPC holds a connection that became HTTP/2 for as long as it has calls, and
// needs no token for health checks and reflection, whose streams never end. So
// a server enters each connection here before gRPC owns it, and services tell
// of the peers whose tokens they accepted. Of more connections than that, the
// oldest of the host that has most of them is closed. A warning says how many
// were closed, once a minute at most.
#ifndef COMMON_NET_UNPROVEN_CONNECTIONS_H_
#define COMMON_NET_UNPROVEN_CONNECTIONS_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/net/socket.h"

namespace djinn {

// Thread-safe.
class UnprovenConnections {
 public:
  // Holds up to `max_connections`, which is at least 1.
  explicit UnprovenConnections(size_t max_connections = DefaultMax());
  ~UnprovenConnections();

  // Returns an eighth of the descriptors that the process may have, because
  // each connection takes two here, and 8,192 at most.
  static size_t DefaultMax();

  // Enters a connection over TCP, which another owns, and closes an older one
  // if there are too many. Returns false if there is no descriptor left for it;
  // the owner must then close it.
  bool Enter(const Socket& connection);
  // Forgets the connection of `peer`, which has shown a token. `peer` is what
  // grpc::ServerContext::peer() returns. Other peers' names do nothing.
  void NoteProven(absl::string_view peer);

  // Returns how many connections there are, closed ones excepted.
  size_t size();

 private:
  struct Connection {
    // A copy of the owner's descriptor.
    Socket socket;
    std::string peer;
    std::string host;
  };
  using Connections = std::list<Connection>;

  bool TryEnter(const Socket& connection);
  // Forgets connections that were closed.
  void Reap() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Closes one connection. Returns false when there is none.
  bool MakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Close(Connections::iterator connection)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Remove(Connections::iterator connection)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const size_t max_connections_;
  const Socket epoll_;
  Mutex mu_;
  // Oldest first.
  Connections connections_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, Connections::iterator> by_peer_
      ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, size_t> of_host_ ABSL_GUARDED_BY(mu_);
  // Number of connections that were closed since the last warning.
  uint64_t closed_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Time warn_from_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

}  // namespace djinn

#endif  // COMMON_NET_UNPROVEN_CONNECTIONS_H_
