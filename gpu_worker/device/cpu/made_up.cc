#include "gpu_worker/device/cpu/made_up.h"

#include <cstring>
#include <utility>

#include "c10/util/BFloat16.h"
#include "c10/util/Half.h"
#include "gpu_worker/device/torch/torch_buffer.h"

namespace djinn::worker {
namespace {

// SplitMix64 (Steele, Lea and Flood, 2014).
uint64_t NextBits(uint64_t* seed) {
  uint64_t bits = (*seed += 0x9e3779b97f4a7c15);
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31);
}

template <typename T>
void Fill(void* data, size_t bytes, uint64_t seed, MadeUpRange range) {
  auto* const values = static_cast<T*>(data);
  for (size_t i = 0; i < bytes / sizeof(T); ++i) {
    const double signed_value =
        static_cast<double>(static_cast<int64_t>(NextBits(&seed))) * 0x1p-63;
    values[i] = static_cast<T>(
        range == MadeUpRange::kSigned ? signed_value : (signed_value + 1) / 2);
  }
}

}  // namespace

bool CanMakeUp(srg::DataType type) {
  switch (type) {
    case srg::DataType::kFloat16:
    case srg::DataType::kBfloat16:
    case srg::DataType::kFloat32:
    case srg::DataType::kFloat64:
    case srg::DataType::kComplex64:
    case srg::DataType::kComplex128:
      return true;
    default:
      return false;
  }
}

std::shared_ptr<Buffer> MakeUp(srg::DataType type, size_t bytes, uint64_t seed,
                               MadeUpRange range) {
  c10::Storage storage = UninitialisedStorage(bytes);
  void* const data = storage.mutable_data();
  if (bytes > 0) std::memset(data, 0, bytes);
  switch (type) {
    case srg::DataType::kFloat16:
      Fill<c10::Half>(data, bytes, seed, range);
      break;
    case srg::DataType::kBfloat16:
      Fill<c10::BFloat16>(data, bytes, seed, range);
      break;
    case srg::DataType::kFloat64:
    case srg::DataType::kComplex128:
      Fill<double>(data, bytes, seed, range);
      break;
    default:
      Fill<float>(data, bytes, seed, range);
  }
  return std::make_shared<TorchBuffer>(std::move(storage));
}

}  // namespace djinn::worker
