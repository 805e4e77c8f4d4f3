#include "gpu_worker/session/outbox.h"

#include <algorithm>
#include <utility>

namespace djinn::worker {
namespace {

// What a message costs besides its bytes.
constexpr uint64_t kItemBytes = 64;

}  // namespace

Outbox::Outbox(WorkerStream* stream, uint64_t limit_bytes,
               std::function<void()> on_room)
    : stream_(stream),
      limit_bytes_(limit_bytes),
      on_room_(std::move(on_room)),
      thread_([this] { Send(); }) {}

void Outbox::Push(v1::ControlResponse message) {
  const uint64_t bytes = message.ByteSizeLong() + kItemBytes;
  MutexLock lock(&mu_);
  if (stopped_) return;
  items_.push_back({std::move(message), bytes});
  bytes_ += bytes;
  changed_.Signal();
}

void Outbox::PushBulk(uint64_t transfer_id, SharedBytes value) {
  MutexLock lock(&mu_);
  if (stopped_) return;
  for (size_t offset = 0; offset < value.bytes.size();
       offset += kBulkChunkBytes) {
    const absl::string_view piece = value.bytes.substr(offset, kBulkChunkBytes);
    const uint64_t bytes = piece.size() + kItemBytes;
    items_.push_back(
        {Chunk{transfer_id, offset, SharedBytes{piece, value.owner}}, bytes});
    bytes_ += bytes;
  }
  changed_.Signal();
}

bool Outbox::Full() const {
  MutexLock lock(&mu_);
  return bytes_ >= limit_bytes_;
}

void Outbox::Stop() {
  {
    MutexLock lock(&mu_);
    stopped_ = true;
    items_.clear();
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

void Outbox::Send() {
  for (;;) {
    Item item;
    {
      MutexLock lock(&mu_);
      while (!stopped_ && items_.empty()) changed_.Wait(&mu_);
      if (stopped_) return;
      item = std::move(items_.front());
      items_.pop_front();
    }
    absl::Status sent;
    if (auto* chunk = std::get_if<Chunk>(&item.content)) {
      sent = stream_->SendBulk(chunk->transfer_id, chunk->offset,
                               std::move(chunk->payload));
    } else {
      sent =
          stream_->Send(std::move(std::get<v1::ControlResponse>(item.content)));
    }
    bool has_room = false;
    {
      MutexLock lock(&mu_);
      const bool was_full = bytes_ >= limit_bytes_;
      bytes_ -= item.bytes;
      has_room = was_full && bytes_ < limit_bytes_;
      // The stream reports its end to its receiver; here is nothing to do.
      if (!sent.ok()) stopped_ = true;
      if (stopped_) items_.clear();
    }
    if (has_room) on_room_();
  }
}

}  // namespace djinn::worker
