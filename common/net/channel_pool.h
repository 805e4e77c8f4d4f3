// Channels that outlive their users, so that whoever comes next to the same
// peer need not connect.
//
// A channel that is taken belongs to its user, or to a few, until the last copy
// of the pointer is gone. Then it waits, connected, for the next one who wants
// the same address, connection number and credentials. Waiting channels close
// when nobody came for a while, when there are too many, and when they lost
// their connection. The pool has no thread: it looks whenever it is used, and
// what waits in a process that needs it no more the server closes.
//
// Thread-safe. Pointers may outlive the pool. The last copy of one must not be
// dropped in a gRPC callback, as with MakeChannel().
#ifndef COMMON_NET_CHANNEL_POOL_H_
#define COMMON_NET_CHANNEL_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/net/channel_options.h"
#include "grpcpp/channel.h"

namespace djinn {

class ChannelPool {
 public:
  struct Options {
    // Of one channel at a time.
    int max_users = 1;
    // Channels that wait.
    size_t max_idle_per_address = 5;
    size_t max_idle = 256;
    absl::Duration idle_timeout = kMaxConnectionIdle / 2;
  };

  // Since the pool was made. Every channel that was created and is not open
  // any more has either been closed or failed.
  struct Counts {
    uint64_t created = 0;
    // Taken by a user who found it there.
    uint64_t reused = 0;
    uint64_t closed = 0;
    // It could not connect, or was distrusted.
    uint64_t failed = 0;
  };

  // `clock` outlives the pool and its pointers.
  ChannelPool(const Options& options, Clock* clock);
  ~ChannelPool();
  ChannelPool(const ChannelPool&) = delete;
  ChannelPool& operator=(const ChannelPool&) = delete;

  // MakeChannel(), unless one is there.
  absl::StatusOr<std::shared_ptr<grpc::Channel>> Take(
      const std::string& address, const ChannelOptions& options);

  // A user's call on the channel, which it still has, broke: neither that nor
  // any channel to the same address that is older is given to anybody any more.
  // That the peer has gone need not show at once on others.
  void Distrust(const grpc::Channel& channel);

  // Takes no lock.
  Counts counts() const;

 private:
  struct Entry;
  struct State;
  class Use;

  const std::shared_ptr<State> state_;
};

}  // namespace djinn

#endif  // COMMON_NET_CHANNEL_POOL_H_
