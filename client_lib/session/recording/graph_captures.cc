#include "client_lib/session/recording/graph_captures.h"

#include <utility>

#include "common/base/error.h"

namespace djinn {

absl::Status GraphCaptures::Start(uint32_t lane) {
  MutexLock lock(&mu_);
  if (!by_lane_.try_emplace(lane, std::make_unique<Recorder>()).second) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "ALREADY_RECORDING",
                     "the thread's calls are being recorded already");
  }
  count_.store(by_lane_.size(), std::memory_order_relaxed);
  return absl::OkStatus();
}

std::unique_ptr<Recorder> GraphCaptures::Take(uint32_t lane) {
  MutexLock lock(&mu_);
  auto found = by_lane_.extract(lane);
  count_.store(by_lane_.size(), std::memory_order_relaxed);
  return found.empty() ? nullptr : std::move(found.mapped());
}

void GraphCaptures::Add(uint32_t lane, const Call& call,
                        absl::FunctionRef<bool(RemoteStorage*)> is_born) {
  MutexLock lock(&mu_);
  const auto found = by_lane_.find(lane);
  if (found != by_lane_.end()) found->second->Add(call, is_born);
}

void GraphCaptures::Retract(uint32_t lane) {
  MutexLock lock(&mu_);
  const auto found = by_lane_.find(lane);
  if (found != by_lane_.end()) found->second->Retract();
}

void GraphCaptures::RefuseOne(uint32_t lane, absl::string_view reason,
                              absl::string_view what) {
  MutexLock lock(&mu_);
  const auto found = by_lane_.find(lane);
  if (found != by_lane_.end()) found->second->Refuse(reason, what);
}

void GraphCaptures::RefuseAll(absl::string_view reason,
                              absl::string_view what) {
  MutexLock lock(&mu_);
  for (const auto& [lane, recorder] : by_lane_) recorder->Refuse(reason, what);
}

absl::Status GraphCaptures::Refusal(uint32_t lane) const {
  MutexLock lock(&mu_);
  const auto found = by_lane_.find(lane);
  return found == by_lane_.end() ? absl::OkStatus() : found->second->refusal();
}

}  // namespace djinn
