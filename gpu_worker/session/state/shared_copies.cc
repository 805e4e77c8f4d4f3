#include "gpu_worker/session/state/shared_copies.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/error.h"

namespace djinn::worker {
namespace {

// A run that is bound to the storage holds its bytes.
bool IsCharged(const Storage* copy) {
  return copy != nullptr && copy->buffer != nullptr && copy->quota.bytes() > 0;
}

// Drops the copy's bytes. The error is reported when the copy is offered.
void Lose(absl::string_view why, Storage* copy, RootErrors* errors) {
  copy->poison = errors->Make(
      MakeError(absl::StatusCode::kResourceExhausted, kCopyGivenUp,
                absl::StrCat("the session gave up what it kept of a copy "
                             "between devices: ",
                             why)),
      {});
  copy->buffer.reset();
}

}  // namespace

void SharedCopies::Charged(uint64_t copy, const StorageTable& storages) {
  if (charged_.size() >= prune_at_) {
    std::erase_if(charged_,
                  [&](uint64_t id) { return storages.Find(id) == nullptr; });
    prune_at_ = std::max(prune_at_, 2 * charged_.size());
  }
  charged_.push_back(copy);
}

void SharedCopies::Account(const StorageTable& storages, SessionQuota* quota,
                           RootErrors* errors) {
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
      Charged(each.first, storages);
    } else {
      Lose(room.message(), copy, errors);
    }
    return true;
  });
}

bool SharedCopies::GiveUp(uint64_t missing, const StorageTable& storages,
                          const Offers& offers, RootErrors* errors) {
  std::vector<std::pair<uint64_t, Storage*>> chosen;
  uint64_t bytes = 0;
  for (const uint64_t id : charged_) {
    if (bytes >= missing) break;
    Storage* const copy = storages.Find(id);
    if (!IsCharged(copy) || offers.IsPinned(id)) continue;
    chosen.emplace_back(id, copy);
    bytes += copy->quota.bytes();
  }
  if (bytes < missing) return false;
  for (const auto& [id, copy] : chosen) {
    Lose("it needed memory for something else", copy, errors);
    copy->quota.Release();
    std::erase(charged_, id);
  }
  return true;
}

}  // namespace djinn::worker
