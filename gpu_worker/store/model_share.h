// A storage's share of the bytes of a resident model that names it. The share
// lasts as long as the storage.
#ifndef GPU_WORKER_STORE_MODEL_SHARE_H_
#define GPU_WORKER_STORE_MODEL_SHARE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace djinn::worker {

// The bytes of a registered model. Destroyed when the model is dropped or
// registers again.
using ModelBytes = std::atomic<uint64_t>;

class ModelShare {
 public:
  // The caller has already added `bytes` to the model's; the destructor
  // subtracts them.
  ModelShare(std::weak_ptr<ModelBytes> model, uint64_t bytes)
      : model_(std::move(model)), bytes_(bytes) {}
  ~ModelShare() {
    if (const auto model = model_.lock()) model->fetch_sub(bytes_);
  }
  ModelShare(ModelShare&&) = default;
  ModelShare& operator=(ModelShare&& other) {
    std::swap(model_, other.model_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  bool gone() const { return model_.expired(); }

 private:
  std::weak_ptr<ModelBytes> model_;
  uint64_t bytes_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_STORE_MODEL_SHARE_H_
