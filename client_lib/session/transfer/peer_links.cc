#include "client_lib/session/transfer/peer_links.h"

namespace djinn {

void PeerLinks::Note(const std::string& worker_id, double bytes_per_second,
                     absl::Duration now) {
  if (links_.size() >= kMaxLinks && !links_.contains(worker_id)) {
    links_.clear();
  }
  links_[worker_id] = {bytes_per_second, now};
}

double PeerLinks::BytesPerSecond(const std::string& worker_id,
                                 absl::Duration now) const {
  const auto found = links_.find(worker_id);
  if (found == links_.end() || now - found->second.told > kMemory) return 0;
  return found->second.bytes_per_second;
}

}  // namespace djinn
