// Keeps channels to the addresses at which a coordinator may lead, and decides
// which one to dial.
//
// One address is dialled for as long as it serves. When it does not, the next
// one in the list is, or the one that a NOT_LEADER error names, if it is in the
// list; an address that only an error names is never dialled, because the
// caller's token would go there.
//
// Thread-safe.
#ifndef COMMON_NET_COORDINATOR_CHANNELS_H_
#define COMMON_NET_COORDINATOR_CHANNELS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/net/tls/tls.h"
#include "grpcpp/channel.h"

namespace djinn {

class CoordinatorChannels {
 public:
  struct Target {
    std::string address;
    std::shared_ptr<grpc::Channel> channel;
  };

  // Makes channels without connecting them. `addresses` are "host:port" or
  // "unix:PATH", divided by commas. Returns MakeChannel()'s errors.
  static absl::StatusOr<std::unique_ptr<CoordinatorChannels>> Make(
      const std::string& addresses, const ChannelSecurity& security = {});

  // Returns the address to dial now.
  Target current() const;
  // Returns how many addresses there are.
  int size() const { return static_cast<int>(targets_.size()); }

  // Notes that a call to the target failed, or ended, with `status`, and goes
  // on to another address. Returns whether that one may be dialled at once:
  // false after every round of as many failures as there are addresses, when
  // the caller should pause.
  bool NoteFailure(const Target& target, const absl::Status& status);

 private:
  CoordinatorChannels() = default;

  // Fixed after Make().
  std::vector<Target> targets_;

  mutable Mutex mu_;
  size_t current_ ABSL_GUARDED_BY(mu_) = 0;
  // Failures since the last pause.
  size_t failures_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace djinn

#endif  // COMMON_NET_COORDINATOR_CHANNELS_H_
