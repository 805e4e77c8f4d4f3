#include "gpu_worker/store/storage_table.h"

#include <algorithm>
#include <utility>

namespace djinn::worker {

void Storage::Count(ModelShare share) {
  if (models == nullptr) models = std::make_unique<std::vector<ModelShare>>();
  // Otherwise a model that registers repeatedly would leave a share each time.
  std::erase_if(*models, [](const ModelShare& each) { return each.gone(); });
  models->push_back(std::move(share));
}

bool UsedIds::Contains(uint64_t id) const {
  if (ranges_.empty() || id > ranges_.rbegin()->second) return false;
  auto after = ranges_.upper_bound(id);
  if (after == ranges_.begin()) return false;
  return std::prev(after)->second >= id;
}

void UsedIds::Insert(uint64_t id) {
  // The id is almost always the next one.
  if (!ranges_.empty() && ranges_.rbegin()->second + 1 == id) {
    ranges_.rbegin()->second = id;
    return;
  }
  if (Contains(id)) return;
  auto after = ranges_.upper_bound(id);
  uint64_t last = id;
  if (after != ranges_.end() && after->first == id + 1) {
    last = after->second;
    after = ranges_.erase(after);
  }
  if (after != ranges_.begin() && std::prev(after)->second + 1 == id) {
    std::prev(after)->second = last;
  } else {
    ranges_.emplace_hint(after, id, last);
  }
  if (ranges_.size() > max_ranges_) {
    const auto first = ranges_.begin();
    const auto second = std::next(first);
    first->second = second->second;
    ranges_.erase(second);
  }
}

Storage* StorageTable::Find(uint64_t id) const {
  const auto found = storages_.find(id);
  return found == storages_.end() ? nullptr : found->second.get();
}

Storage* StorageTable::Create(uint64_t id) {
  used_.Insert(id);
  std::unique_ptr<Storage>& storage = storages_[id];
  storage = std::make_unique<Storage>();
  return storage.get();
}

std::vector<uint64_t> StorageTable::ids() const {
  std::vector<uint64_t> ids;
  ids.reserve(storages_.size());
  for (const auto& [id, storage] : storages_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace djinn::worker
