#include "gpu_worker/device/cuda/testing/eager_recorder.h"

#include <cstring>
#include <string>
#include <utility>

#include "c10/util/Exception.h"
#include "common/base/status_macros.h"

namespace djinn::worker {

class EagerGraph final : public RecordedGraph {
 public:
  EagerGraph(EagerRecorder* recorder, GraphBody body,
             std::vector<c10::Storage> made)
      : recorder_(*recorder), body_(std::move(body)), made_(std::move(made)) {
    ++recorder_.alive_;
  }
  ~EagerGraph() override { --recorder_.alive_; }

  void Replay() override {
    ++recorder_.replayed_;
    std::vector<c10::Storage> again;
    const absl::Status status = body_(&again);
    TORCH_CHECK(status.ok(), std::string(status.message()));
    for (size_t i = 0; i < made_.size(); ++i) {
      TORCH_CHECK(again[i].nbytes() == made_[i].nbytes());
      if (made_[i].nbytes() == 0) continue;
      std::memcpy(made_[i].mutable_data(), again[i].data(), made_[i].nbytes());
    }
  }

  uint64_t bytes() const override {
    uint64_t bytes = 0;
    for (const c10::Storage& storage : made_) bytes += storage.nbytes();
    return bytes;
  }

 private:
  EagerRecorder& recorder_;
  const GraphBody body_;
  const std::vector<c10::Storage> made_;
};

absl::StatusOr<Recording> EagerRecorder::Record(
    GraphBody body, absl::Span<const c10::Storage> written) {
  DJINN_RETURN_IF_ERROR(refused_);
  // Restores what the body writes, because a recording executes nothing.
  std::vector<std::string> before;
  for (const c10::Storage& storage : written) {
    before.emplace_back(static_cast<const char*>(storage.data()),
                        storage.nbytes());
  }
  std::vector<c10::Storage> made;
  const absl::Status status = body(&made);
  for (size_t i = 0; i < written.size(); ++i) {
    if (before[i].empty()) continue;
    std::memcpy(written[i].mutable_data(), before[i].data(), before[i].size());
  }
  DJINN_RETURN_IF_ERROR(status);
  DJINN_RETURN_IF_ERROR(fails_);
  ++recorded_;
  // Fills the results with garbage, which they hold before the first replay.
  for (const c10::Storage& storage : made) {
    if (storage.nbytes() > 0) {
      std::memset(storage.mutable_data(), 0xa5, storage.nbytes());
    }
  }
  auto graph = std::make_unique<EagerGraph>(this, std::move(body), made);
  return Recording{std::move(graph), std::move(made)};
}

}  // namespace djinn::worker
