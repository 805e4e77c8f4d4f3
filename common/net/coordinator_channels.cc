#include "common/net/coordinator_channels.h"

#include <utility>

#include "absl/memory/memory.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/net/channel_options.h"
#include "common/net/server_address.h"

namespace djinn {

absl::StatusOr<std::unique_ptr<CoordinatorChannels>> CoordinatorChannels::Make(
    const std::string& addresses, const ChannelSecurity& security) {
  auto channels = absl::WrapUnique(new CoordinatorChannels);
  for (std::string& address : SplitAddresses(addresses)) {
    DJINN_ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel,
                           MakeChannel(address, {security, /*connection=*/0}));
    channels->targets_.push_back({std::move(address), std::move(channel)});
  }
  return channels;
}

CoordinatorChannels::Target CoordinatorChannels::current() const {
  MutexLock lock(&mu_);
  return targets_[current_];
}

bool CoordinatorChannels::NoteFailure(const Target& target,
                                      const absl::Status& status) {
  const std::string leader = ErrorReason(status) == "NOT_LEADER"
                                 ? ErrorMetadataValue(status, "leader")
                                 : "";
  MutexLock lock(&mu_);
  // Another thread may have gone on already.
  if (targets_[current_].address == target.address) {
    current_ = (current_ + 1) % targets_.size();
    for (size_t i = 0; i < targets_.size(); ++i) {
      if (targets_[i].address == leader && leader != target.address) {
        current_ = i;
      }
    }
  }
  failures_ = (failures_ + 1) % targets_.size();
  return failures_ != 0;
}

}  // namespace djinn
