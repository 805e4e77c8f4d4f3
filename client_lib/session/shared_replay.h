// One carrying out of a recording whose rows a virtual device's members share;
// of spanning_device.h alone.
#ifndef CLIENT_LIB_SESSION_SHARED_REPLAY_H_
#define CLIENT_LIB_SESSION_SHARED_REPLAY_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "client_lib/session/recording.h"
#include "client_lib/session/row_shares.h"
#include "client_lib/session/spanning_device.h"

namespace djinn {

struct SpanningDevice::SharedReplay {
  uint32_t lane;
  const std::shared_ptr<const Recording>& recording;
  const std::shared_ptr<const RowShares>& shares;
  absl::Span<RemoteStorage* const> given;
  // Storages of members that nothing names afterwards.
  std::vector<std::pair<int, StoragePtr>> passing;

  RemoteStorage* Pass(int member, StoragePtr storage) {
    return passing.emplace_back(member, std::move(storage)).second.get();
  }
  uint64_t OutputBytes() const {
    uint64_t sum = 0;
    for (const uint64_t bytes : recording->output_bytes) sum += bytes;
    return sum;
  }
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_SHARED_REPLAY_H_
