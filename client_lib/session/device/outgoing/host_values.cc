#include "client_lib/session/device/outgoing/host_values.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace djinn {

const HostValues::Kept* HostValues::Use(const StorageVersion& version) {
  const auto found =
      std::find_if(kept_.rbegin(), kept_.rend(),
                   [&](const Kept& kept) { return kept.version == version; });
  if (found == kept_.rend()) return nullptr;
  std::rotate(std::prev(found.base()), found.base(), kept_.end());
  return &kept_.back();
}

HostValuePtr HostValues::Find(const StorageVersion& version) {
  const Kept* const kept = Use(version);
  return kept == nullptr ? nullptr : kept->value;
}

HostValuePtr HostValues::FindReadable(const StorageVersion& version) {
  const Kept* const kept = Use(version);
  return kept == nullptr || !kept->readable ? nullptr : kept->value;
}

void HostValues::Keep(const StorageVersion& version, HostValuePtr value,
                      bool readable) {
  if (version.bytes == 0 || version.bytes > kMaxBytes) return;
  if (kept_.size() == kMaxKept) kept_.pop_front();
  kept_.push_back({version, std::move(value), readable});
}

}  // namespace djinn
