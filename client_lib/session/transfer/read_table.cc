#include "client_lib/session/transfer/read_table.h"

#include <iterator>
#include <utility>

namespace djinn {

void ReadTable::AddSent(uint64_t sequence, std::shared_ptr<ReadWait> wait) {
  if (wait->transfer_id != 0) bulk_[wait->transfer_id] = wait;
  sent_[sequence] = std::move(wait);
}

ReadWait* ReadTable::Find(uint64_t sequence) const {
  const auto found = sent_.find(sequence);
  return found == sent_.end() ? nullptr : found->second.get();
}

std::shared_ptr<ReadWait> ReadTable::TakeAnswered(uint64_t sequence) {
  auto found = sent_.extract(sequence);
  return found.empty() ? nullptr : std::move(found.mapped());
}

std::shared_ptr<ReadWait> ReadTable::FindBulk(uint64_t transfer_id) const {
  const auto found = bulk_.find(transfer_id);
  return found == bulk_.end() ? nullptr : found->second;
}

void ReadTable::Clear() {
  sent_.clear();
  bulk_.clear();
}

void ReadTable::Finish(ReadWait* wait) {
  wait->done = true;
  wait->changed.SignalAll();
  auto watched = watched_.extract(wait);
  if (watched.empty()) return;
  std::move(watched.mapped().begin(), watched.mapped().end(),
            std::back_inserter(due_));
}

void ReadTable::Watch(ReadWait* wait, std::function<void()> callback) {
  watched_[wait].push_back(std::move(callback));
}

ReadTable::Callbacks ReadTable::Unwatch(ReadWait* wait) {
  auto watched = watched_.extract(wait);
  return watched.empty() ? Callbacks() : std::move(watched.mapped());
}

void ReadTable::FinishWatched() {
  for (auto& [wait, callbacks] : watched_) {
    std::move(callbacks.begin(), callbacks.end(), std::back_inserter(due_));
  }
  watched_.clear();
}

ReadTable::Callbacks ReadTable::TakeDue() { return std::exchange(due_, {}); }

void PrefetchedReads::Add(const StorageVersion& version,
                          const srg::TensorView& view,
                          std::shared_ptr<ReadWait> wait) {
  if (reads_.size() >= kMaxReads) reads_.pop_front();
  reads_.push_back({version, view, std::move(wait)});
}

std::shared_ptr<ReadWait> PrefetchedReads::Take(const StorageVersion& version,
                                                const srg::TensorView& view) {
  for (auto read = reads_.begin(); read != reads_.end(); ++read) {
    if (!(read->version == version && read->view == view)) continue;
    std::shared_ptr<ReadWait> wait = std::move(read->wait);
    reads_.erase(read);
    return wait;
  }
  return nullptr;
}

}  // namespace djinn
