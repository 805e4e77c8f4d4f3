// Lists of a call's slots.
#ifndef GPU_WORKER_DEVICE_TORCH_SLOTS_H_
#define GPU_WORKER_DEVICE_TORCH_SLOTS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

namespace djinn::worker {

using Slots = std::vector<uint32_t>;

// Ascending, each once.
inline void SortUnique(Slots* slots) {
  std::sort(slots->begin(), slots->end());
  slots->erase(std::unique(slots->begin(), slots->end()), slots->end());
}

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_SLOTS_H_
