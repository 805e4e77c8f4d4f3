#include "scheduler/simulator/simulated_worker.h"

namespace djinn::scheduler {

void SimulatedMemory::Pin(StateKey key, uint64_t size,
                          std::vector<StateKey>* dropped) {
  const auto [it, added] = pieces_.try_emplace(key);
  Piece& piece = it->second;
  if (!added) {
    if (piece.users++ == 0) {
      idle_.erase(piece.place);
      pinned_ += piece.bytes;
    }
    return;
  }
  piece.bytes = size;
  piece.users = 1;
  pinned_ += size;
  used_ += size;
  while (used_ > bytes_ && !idle_.empty()) {
    const StateKey oldest = idle_.front();
    idle_.pop_front();
    used_ -= pieces_.at(oldest).bytes;
    pieces_.erase(oldest);
    dropped->push_back(oldest);
  }
}

void SimulatedMemory::Unpin(StateKey key) {
  Piece& piece = pieces_.at(key);
  if (--piece.users > 0) return;
  pinned_ -= piece.bytes;
  piece.place = idle_.insert(idle_.end(), key);
}

}  // namespace djinn::scheduler
