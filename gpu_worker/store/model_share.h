// What a storage adds to the bytes of a model that names it, for as long as the
// storage is there.
#ifndef GPU_WORKER_STORE_MODEL_SHARE_H_
#define GPU_WORKER_STORE_MODEL_SHARE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace djinn::worker {

// Of a model that is registered: gone with it, or when it registers anew.
using ModelBytes = std::atomic<uint64_t>;

class ModelShare {
 public:
  // The bytes are counted there already.
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
