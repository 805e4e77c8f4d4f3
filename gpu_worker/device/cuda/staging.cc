#include "gpu_worker/device/cuda/staging.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/status_macros.h"
#include "gpu_worker/device/torch/torch_error.h"

namespace djinn::worker {
namespace {

// The number of pieces of one value that are in flight: the next ones are
// fetched while the first is copied out of its block.
constexpr size_t kAhead = 2;

constexpr absl::string_view kFailed = "DEVICE_COPY_FAILED";

}  // namespace

absl::StatusOr<Staging::Block> Staging::Take(bool holds_one) {
  InFlight next;
  {
    MutexLock lock(&mu_);
    while (free_.empty() && in_flight_.empty() && made_ == options_.blocks) {
      if (holds_one) return Block();
      // Threads hold all blocks, each for the length of one copy.
      returned_.Wait(&mu_);
    }
    if (!free_.empty()) {
      Block block = std::move(free_.back());
      free_.pop_back();
      return block;
    }
    if (made_ < options_.blocks) {
      ++made_;
    } else {
      next = TakeInFlight();
    }
  }
  if (next.block != nullptr) {
    const absl::Status done = accelerator_.Await(next.done);
    if (done.ok()) return std::move(next.block);
    PutBackBehind(std::move(next.block), std::move(next.done), next.stream);
    return done;
  }
  Block block;
  const absl::Status made = CatchTorch(kFailed, [&] {
    block = accelerator_.AllocatePinned(options_.block_bytes);
    return absl::OkStatus();
  });
  if (made.ok()) return block;
  MutexLock lock(&mu_);
  --made_;
  returned_.Signal();
  return made;
}

void Staging::PutBack(Block block) {
  MutexLock lock(&mu_);
  free_.push_back(std::move(block));
  returned_.Signal();
}

Staging::InFlight Staging::TakeInFlight() {
  auto chosen = in_flight_.end();
  for (auto it = in_flight_.begin(); it != in_flight_.end(); ++it) {
    bool come = false;
    // Ignores an error, which Await() returns to the caller.
    (void)CatchTorch(kFailed, [&] {
      come = accelerator_.HasCome(it->done);
      return absl::OkStatus();
    });
    if (come) {
      chosen = it;
      break;
    }
    if (chosen == in_flight_.end() && it->stream != StreamId::kCompute) {
      chosen = it;
    }
  }
  if (chosen == in_flight_.end()) chosen = in_flight_.begin();
  InFlight taken = std::move(*chosen);
  in_flight_.erase(chosen);
  return taken;
}

void Staging::PutBackBehind(Block block, EventPtr done, StreamId stream) {
  MutexLock lock(&mu_);
  in_flight_.push_back({std::move(block), std::move(done), stream});
  returned_.Signal();
}

absl::Status Staging::Upload(void* to, absl::string_view bytes,
                             StreamId stream) {
  char* target = static_cast<char*>(to);
  while (!bytes.empty()) {
    const absl::string_view piece = bytes.substr(0, options_.block_bytes);
    bytes.remove_prefix(piece.size());
    DJINN_ASSIGN_OR_RETURN(Block block, Take(/*holds_one=*/false));
    std::memcpy(block.get(), piece.data(), piece.size());
    EventPtr done;
    const absl::Status asked = CatchTorch(kFailed, [&] {
      accelerator_.Copy(target, block.get(), piece.size(), stream);
      done = accelerator_.Record(stream);
      return absl::OkStatus();
    });
    if (!asked.ok()) {
      PutBack(std::move(block));
      return asked;
    }
    PutBackBehind(std::move(block), std::move(done), stream);
    target += piece.size();
  }
  return absl::OkStatus();
}

absl::Status Staging::Download(char* to, const void* from, uint64_t bytes) {
  struct Piece {
    Block block;
    EventPtr done;
    char* to;
    uint64_t bytes;
  };
  std::deque<Piece> pieces;
  absl::Status status;
  const char* source = static_cast<const char*>(from);
  while (bytes > 0 || !pieces.empty()) {
    if (bytes > 0 && pieces.size() < kAhead) {
      absl::StatusOr<Block> block = Take(/*holds_one=*/!pieces.empty());
      status.Update(block.status());
      if (block.ok() && *block != nullptr) {
        Piece piece{*std::move(block), nullptr, to,
                    std::min(bytes, options_.block_bytes)};
        status.Update(CatchTorch(kFailed, [&] {
          accelerator_.Copy(piece.block.get(), source, piece.bytes,
                            StreamId::kCopyOut);
          piece.done = accelerator_.Record(StreamId::kCopyOut);
          return absl::OkStatus();
        }));
        to += piece.bytes;
        source += piece.bytes;
        bytes -= piece.bytes;
        if (piece.done == nullptr) {
          PutBack(std::move(piece.block));
        } else {
          pieces.push_back(std::move(piece));
          if (bytes > 0 && pieces.size() < kAhead) continue;
        }
      }
      if (!status.ok()) bytes = 0;
    }
    if (pieces.empty()) continue;
    Piece piece = std::move(pieces.front());
    pieces.pop_front();
    const absl::Status done = accelerator_.Await(piece.done);
    if (done.ok()) {
      std::memcpy(piece.to, piece.block.get(), piece.bytes);
      PutBack(std::move(piece.block));
    } else {
      PutBackBehind(std::move(piece.block), std::move(piece.done),
                    StreamId::kCopyOut);
      bytes = 0;
    }
    status.Update(done);
  }
  return status;
}

}  // namespace djinn::worker
