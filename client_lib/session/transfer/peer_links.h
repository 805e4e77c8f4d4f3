// Remembers how fast the device's worker recently received values from other
// workers, by that worker's own measurements.
//
// Not thread-safe: the connection's lock guards it.
#ifndef CLIENT_LIB_SESSION_TRANSFER_PEER_LINKS_H_
#define CLIENT_LIB_SESSION_TRANSFER_PEER_LINKS_H_

#include <cstddef>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"

namespace djinn {

class PeerLinks {
 public:
  // Time after which a measurement is outdated, unless another value arrived
  // over the link meanwhile.
  static constexpr absl::Duration kMemory = absl::Seconds(30);
  // Exceeds the number of a device's replicas. If there are more links, all are
  // forgotten.
  static constexpr size_t kMaxLinks = 64;

  void Note(const std::string& worker_id, double bytes_per_second,
            absl::Duration now);
  // Returns the speed, or 0 if it is unknown or outdated.
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
