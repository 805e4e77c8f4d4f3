#include "client_lib/session/device/outgoing/segment_queue.h"

#include <utility>

namespace djinn {
namespace {

using Source = CapturedPart::Slot::Source;

}  // namespace

void SegmentQueue::Queue(const SealedSegments& sealed,
                         std::shared_ptr<MetadataWait> metadata) {
  if (sealed.empty()) return;
  for (Segment* const cleared : queue_->TakeCleared()) {
    segments_.Recycle(cleared);
  }
  for (Segment* segment : sealed) {
    Work work{segment->lane(), StoragePtr(), segment->footprint_bytes(),
              RunWork{segment, nullptr}};
    if (segment == sealed.back()) {
      std::get<RunWork>(work.action).metadata = std::move(metadata);
    }
    queue_->Push(std::move(work), /*needs_lease=*/true);
  }
}

bool SegmentQueue::SealUsers(RemoteStorage* storage, bool writers_only) {
  SealedSegments sealed;
  segments_.SealUsers(storage, writers_only, &sealed);
  Queue(sealed);
  return !sealed.empty();
}

void SegmentQueue::Create(uint32_t lane, RemoteStorage* storage,
                          bool needs_lease) {
  if (storage->created_) return;
  const uint64_t size = storage->size_bytes();
  queue_->Push({lane, StoragePtr(storage), 0,
                CreateWork{segments_.StampWrite(storage), size}},
               needs_lease);
}

void SegmentQueue::Read(uint32_t lane, RemoteStorage* storage,
                        const srg::TensorView& view,
                        const std::shared_ptr<ReadWait>& wait) {
  Create(lane, storage, /*needs_lease=*/true);
  storage->unsent_uses_.fetch_add(1, std::memory_order_relaxed);
  queue_->Push(
      {lane, StoragePtr(storage), 0, ReadWork{storage->version_, view, wait}},
      /*needs_lease=*/true);
}

bool SegmentQueue::SealLane(uint32_t lane) {
  SealedSegments sealed;
  segments_.SealLane(lane, &sealed);
  Queue(sealed);
  return !sealed.empty();
}

void SegmentQueue::SealAll() {
  SealedSegments sealed;
  segments_.SealAll(&sealed);
  Queue(sealed);
}

ReplayWork SegmentQueue::StampReplay(
    const std::shared_ptr<const CapturedGraph>& captured_graph, size_t part,
    RunMode mode, absl::Span<RemoteStorage* const> given,
    absl::FunctionRef<RemoteStorage*(uint32_t)> kept, uint64_t first_made,
    absl::Span<const StoragePtr> outputs, std::vector<uint64_t>* made) {
  ReplayWork work{captured_graph, part, mode, nullptr, 0, {}, {}, nullptr};
  const std::vector<CapturedPart::Slot>& slots =
      captured_graph->parts[part].slots;
  work.bindings.reserve(slots.size());
  for (const CapturedPart::Slot& slot : slots) {
    RunBinding& binding = work.bindings.emplace_back();
    binding.writes = slot.writes;
    binding.reads = slot.reads;
    binding.created = slot.created;
    binding.dies = slot.dies;
    if (slot.source == Source::kMade) {
      binding.id = first_made + slot.index;
      uint64_t& version = (*made)[slot.index];
      binding.base_version = version;
      version += slot.writes;
      if (slot.output != CapturedPart::kNoOutput) {
        RemoteStorage* const storage = outputs[slot.output].get();
        binding.storage = storage;
        storage->id_ = binding.id;
        storage->created_ = true;
        storage->version_ = version;
      }
    } else {
      RemoteStorage* const storage =
          slot.source == Source::kGiven ? given[slot.index] : kept(slot.index);
      SealUsers(storage, /*writers_only=*/slot.writes == 0);
      Create(0, storage, /*needs_lease=*/false);
      binding.storage = storage;
      binding.id = storage->id();
      binding.base_version = storage->version_;
      storage->version_ += slot.writes;
    }
    if (binding.storage == nullptr) continue;
    binding.size_bytes = binding.storage->size_bytes();
    binding.uses = 1;
    binding.storage->unsent_uses_.fetch_add(1, std::memory_order_relaxed);
    work.held.emplace_back(binding.storage);
  }
  return work;
}

}  // namespace djinn
