#include "gpu_worker/session/state/shared_copies.h"

#include "absl/status/status.h"

namespace djinn::worker {

void SharedCopies::Account(const StorageTable& storages, SessionQuota* quota,
                           RootErrors* errors) {
  std::erase_if(copies_, [&](const std::pair<uint64_t, uint64_t>& each) {
    Storage* const copy = storages.Find(each.first);
    if (copy == nullptr || copy->buffer == nullptr || copy->quota.bytes() > 0) {
      return true;
    }
    const Storage* const source = storages.Find(each.second);
    if (source != nullptr && source->buffer == copy->buffer) return false;
    const absl::Status room =
        quota->Resize(&copy->quota, copy->size_bytes, copy->quota.own_class());
    if (!room.ok()) {
      copy->poison = errors->Make(room, {});
      copy->buffer.reset();
    }
    return true;
  });
}

}  // namespace djinn::worker
