// Keeps channels connected after their use, so that the next user of the same
// peer need not connect.
//
// A channel that is taken belongs to its user, or to a few, until the last copy
// of the pointer is gone. Then it waits, connected, for the next user with the
// same address, connection number and credentials. Waiting channels are closed
// after a while, when there are too many, and when they lost their connection.
// The pool has no thread and checks this at every use. In a process that does
// not use the pool any more, the server closes the idle connections.
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
    // Number of users that one channel may have at a time.
    int max_users = 1;
    // Number of channels that may wait.
    size_t max_idle_per_address = 5;
    size_t max_idle = 256;
  };
  // The time after which a waiting channel closes: half of kMaxConnectionIdle.
  static constexpr absl::Duration kIdleTimeout = absl::Minutes(5);

  // Counts since the pool was made. Every channel that was created and is not
  // open any more has either been closed or failed.
  struct Counts {
    uint64_t created = 0;
    // Waiting channels that a user took.
    uint64_t reused = 0;
    uint64_t closed = 0;
    // Channels that could not connect, or were distrusted.
    uint64_t failed = 0;
  };

  // `clock` outlives the pool and its pointers.
  ChannelPool(const Options& options, Clock* clock);
  ~ChannelPool();
  ChannelPool(const ChannelPool&) = delete;
  ChannelPool& operator=(const ChannelPool&) = delete;

  // Returns a waiting channel, or calls MakeChannel().
  absl::StatusOr<std::shared_ptr<grpc::Channel>> Take(
      const std::string& address, const ChannelOptions& options);

  // Notes that a user's call on the channel broke. The pool gives out neither
  // this channel nor any older one to the same address again, because a lost
  // peer need not show on other channels at once. The user must still have the
  // channel.
  void Distrust(const grpc::Channel& channel);

  // Returns the counts. Takes no lock.
  Counts counts() const;

 private:
  struct Entry;
  struct State;
  class Use;

  const std::shared_ptr<State> state_;
};

}  // namespace djinn

#endif  // COMMON_NET_CHANNEL_POOL_H_
