#include "client_lib/session/recording/read_predictor.h"

#include <algorithm>

namespace djinn {
namespace {

// Reads at a position before it is acted upon, and the greatest confidence.
constexpr int kEnough = 2;
constexpr int kMaxConfidence = 4;
// A prefetch that is not read costs more than one that is read gains.
constexpr int kPenalty = 4;

uint64_t Mix(uint64_t position, uint64_t hash) {
  position = (position ^ hash) * 0x9e3779b97f4a7c15u;
  return position ^ (position >> 32);
}

// Lanes that run the same loop have separate predictions.
uint64_t Start(uint32_t lane) { return Mix(0, lane + uint64_t{1}); }

}  // namespace

const ReadPredictor::Prediction* ReadPredictor::OnCall(const Segment& segment) {
  uint64_t* const position = PositionOf(segment.lane());
  *position = Mix(*position, segment.calls().back().hash);

  const absl::Span<const Touch> touches = segment.touches_of_last_call();
  for (size_t i = 0; i < touches.size(); ++i) {
    if (!ChangesVersion(touches[i].access)) continue;
    NoteWrite({touches[i].storage->id(), *position, static_cast<uint32_t>(i)});
  }
  return Predict(*position, touches.size());
}

const ReadPredictor::Prediction* ReadPredictor::OnOutput(
    uint32_t lane, uint64_t captured_graph, uint32_t output,
    uint64_t storage_id) {
  uint64_t* const position = PositionOf(lane);
  *position = Mix(Mix(*position, captured_graph), output);
  NoteWrite({storage_id, *position, 0});
  return Predict(*position, 1);
}

void ReadPredictor::NoteWrite(const Write& write) {
  writes_.push_front(write);
  if (writes_.size() > kMaxWrites) writes_.pop_back();
}

const ReadPredictor::Prediction* ReadPredictor::Predict(uint64_t position,
                                                        size_t touches) {
  if (predictions_.empty()) return nullptr;
  const auto found = predictions_.find(position);
  if (found == predictions_.end()) return nullptr;
  Prediction& prediction = found->second;
  if (prediction.pending) {
    prediction.pending = false;
    prediction.confidence -= kPenalty;
  }
  if (prediction.confidence < kEnough || prediction.touch >= touches) {
    return nullptr;
  }
  prediction.pending = true;
  return &prediction;
}

void ReadPredictor::OnRead(uint32_t lane, uint64_t storage_id,
                           const srg::TensorView& view, uint64_t bytes) {
  *PositionOf(lane) = Start(lane);
  if (bytes > kMaxBytes) return;
  for (const Write& write : writes_) {
    if (write.storage_id != storage_id) continue;
    if (predictions_.size() >= kMaxPositions) predictions_.clear();
    Prediction& prediction = predictions_[write.position];
    if (prediction.bytes != bytes || prediction.touch != write.touch ||
        !(prediction.view == view)) {
      prediction = {write.touch, view, bytes};
    }
    prediction.pending = false;
    prediction.confidence = std::min(prediction.confidence + 1, kMaxConfidence);
    return;
  }
}

void ReadPredictor::OnAnswered(uint32_t lane) {
  *PositionOf(lane) = Start(lane);
}

uint64_t* ReadPredictor::PositionOf(uint32_t lane) {
  // Lanes appear and disappear with their threads. A forgotten position is
  // learned from further calls.
  if (positions_.size() >= kMaxLanes && !positions_.contains(lane)) {
    positions_.clear();
  }
  return &positions_.try_emplace(lane, Start(lane)).first->second;
}

}  // namespace djinn
