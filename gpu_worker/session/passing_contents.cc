#include "gpu_worker/session/passing_contents.h"

#include "absl/algorithm/container.h"

namespace djinn::worker {

void PassingContents::NoteUploaded(const ContentHash& hash,
                                   const Buffer* buffer) {
  const auto [at, added] = uploads_.try_emplace(buffer);
  at->second = {hash, clock_->Monotonic()};
  if (!added) order_.erase(absl::c_find(order_, buffer));
  order_.push_back(buffer);
  if (order_.size() <= kMaxRemembered) return;
  uploads_.erase(order_.front());
  order_.pop_front();
}

void PassingContents::NoteFreed(const Buffer* buffer, uint64_t size_bytes) {
  const auto found = uploads_.find(buffer);
  if (found == uploads_.end()) return;
  const Upload upload = found->second;
  uploads_.erase(found);
  order_.erase(absl::c_find(order_, buffer));
  if (clock_->Monotonic() - upload.came > kSoon) return;
  freed_.push_back({upload.hash, size_bytes});
  if (freed_.size() > kMaxRemembered) freed_.pop_front();
}

std::optional<ContentHash> PassingContents::MakeWay(uint64_t size_bytes) {
  const auto alike = [size_bytes](const Freed& freed) {
    return freed.size_bytes == size_bytes;
  };
  const auto kept = static_cast<uint64_t>(absl::c_count_if(freed_, alike));
  if (kept == 0 || (kept + 1) * size_bytes <= kKeptBytes) return std::nullopt;
  const auto oldest = absl::c_find_if(freed_, alike);
  const ContentHash hash = oldest->hash;
  freed_.erase(oldest);
  return hash;
}

}  // namespace djinn::worker
