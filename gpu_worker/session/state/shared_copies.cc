#include "gpu_worker/session/state/shared_copies.h"

#include "absl/status/status.h"
#include "common/base/error.h"

namespace djinn::worker {

void SharedCopies::Account(const StorageTable& storages, SessionQuota* quota,
                           RootErrors* errors) {
  std::erase_if(charged_, [&](uint64_t id) {
    const Storage* const copy = storages.Find(id);
    return copy == nullptr || copy->quota.bytes() == 0;
  });
  std::erase_if(sharing_, [&](const std::pair<uint64_t, uint64_t>& each) {
    Storage* const copy = storages.Find(each.first);
    if (copy == nullptr || copy->buffer == nullptr || copy->quota.bytes() > 0) {
      return true;
    }
    const Storage* const source = storages.Find(each.second);
    if (source != nullptr && source->buffer == copy->buffer) return false;
    const absl::Status room =
        quota->Resize(&copy->quota, copy->size_bytes, copy->quota.own_class());
    if (room.ok()) {
      charged_.push_back(each.first);
    } else {
      copy->poison = errors->Make(room, {});
      copy->buffer.reset();
    }
    return true;
  });
}

bool SharedCopies::GiveUpOne(const StorageTable& storages, const Offers& offers,
                             RootErrors* errors) {
  for (auto next = charged_.begin(); next != charged_.end(); ++next) {
    Storage* const copy = storages.Find(*next);
    if (copy == nullptr || copy->buffer == nullptr ||
        copy->quota.bytes() == 0 || offers.IsPinned(*next)) {
      continue;
    }
    copy->poison = errors->Make(
        MakeError(absl::StatusCode::kResourceExhausted, "COPY_GIVEN_UP",
                  "the worker gave up what it kept of a copy between devices, "
                  "because the session had no memory left"),
        {});
    copy->buffer.reset();
    copy->quota.Release();
    charged_.erase(next);
    return true;
  }
  return false;
}

}  // namespace djinn::worker
