// How fast values came to a device's worker from other workers lately, as that
// worker measured it.
//
// Not thread-safe: the device's lock guards it.
#ifndef CLIENT_LIB_SESSION_TRANSFER_PEER_LINKS_H_
#define CLIENT_LIB_SESSION_TRANSFER_PEER_LINKS_H_

#include <cstddef>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"

namespace djinn {

class PeerLinks {
 public:
  // How long what was measured counts: then something has to come over the link
  // again to know.
  static constexpr absl::Duration kMemory = absl::Seconds(30);
  // More than a device has members; then all are forgotten and measured anew.
  static constexpr size_t kMaxLinks = 64;

  void Note(const std::string& worker_id, double bytes_per_second,
            absl::Duration now);
  // 0: not known, or not any more.
  double BytesPerSecond(const std::string& worker_id, absl::Duration now) const;

 private:
  struct Link {
    double bytes_per_second = 0;
    absl::Duration told;
  };

  absl::flat_hash_map<std::string, Link> links_;  // by worker
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_TRANSFER_PEER_LINKS_H_
