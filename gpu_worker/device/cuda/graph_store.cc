#include "gpu_worker/device/cuda/graph_store.h"

#include <algorithm>

namespace djinn::worker {

std::shared_ptr<HeldGraph> GraphStore::Add(std::shared_ptr<HeldGraph> graph,
                                           const std::string& tenant,
                                           uint64_t bytes) {
  if (bytes > options_.max_bytes) return nullptr;
  std::vector<Entry> gone;
  {
    MutexLock lock(&mu_);
    while (!entries_.empty() && (entries_.size() >= options_.max_graphs ||
                                 bytes > options_.max_bytes - bytes_)) {
      gone.push_back(TakeOldest());
    }
  }
  gone.clear();
  // Reserve() may release spare memory, and so evict graphs.
  if (SpareMemory* const spare = spare_.load()) {
    graph->paid = spare->Reserve(tenant, bytes);
    if (graph->paid == nullptr) return nullptr;
  }
  MutexLock lock(&mu_);
  entries_.push_front({graph, bytes});
  bytes_ += bytes;
  return graph;
}

GraphStore::Entry GraphStore::TakeOldest() {
  Entry entry = std::move(entries_.back());
  entries_.pop_back();
  bytes_ -= entry.bytes;
  ++counts_["graphs_dropped"];
  return entry;
}

void GraphStore::Touch(const HeldGraph* graph) {
  MutexLock lock(&mu_);
  const auto found = std::find_if(
      entries_.begin(), entries_.end(),
      [&](const Entry& entry) { return entry.graph.get() == graph; });
  if (found != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, found);
  }
}

void GraphStore::Drop(const HeldGraph* graph) {
  Entry gone;
  MutexLock lock(&mu_);
  const auto found = std::find_if(
      entries_.begin(), entries_.end(),
      [&](const Entry& entry) { return entry.graph.get() == graph; });
  if (found == entries_.end()) return;
  gone = std::move(*found);
  entries_.erase(found);
  bytes_ -= gone.bytes;
  ++counts_["graphs_dropped"];
}

uint64_t GraphStore::Release(uint64_t bytes) {
  uint64_t released = 0;
  std::vector<Entry> gone;
  MutexLock lock(&mu_);
  while (released < bytes && !entries_.empty()) {
    gone.push_back(TakeOldest());
    released += gone.back().bytes;
  }
  return released;
}

void GraphStore::Count(absl::string_view event) {
  MutexLock lock(&mu_);
  ++counts_[std::string(event)];
}

std::vector<std::pair<std::string, uint64_t>> GraphStore::counts() const {
  MutexLock lock(&mu_);
  return {counts_.begin(), counts_.end()};
}

size_t GraphStore::size() const {
  MutexLock lock(&mu_);
  return entries_.size();
}

}  // namespace djinn::worker
