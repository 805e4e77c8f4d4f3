// Implements what tests control on a fake worker and query from it.
#include "client_lib/session/testing/fake_worker.h"

#include <utility>

#include "common/base/patience.h"

namespace djinn {

v1::SessionLimits FakeWorker::DefaultLimits() {
  v1::SessionLimits limits;
  limits.set_memory_bytes(1 << 30);
  limits.set_max_outstanding(64);
  limits.set_max_outstanding_bytes(16 << 20);
  limits.set_inline_bytes(8192);
  limits.set_max_graphs(64);
  return limits;
}

FakeWorker::FakeWorker(v1::SessionLimits limits, std::string id)
    : limits_(std::move(limits)),
      id_(std::move(id)),
      executor_(limits_, &script_, &seen_,
                [this](v1::ControlResponse response, uint64_t transfer_id,
                       std::shared_ptr<const std::string> value) {
                  Respond(std::move(response), transfer_id, std::move(value));
                }) {}

FakeWorker::~FakeWorker() {
  std::vector<std::unique_ptr<Link>> links;
  MutexLock lock(&mu_);
  links.swap(links_);
}

void FakeWorker::Pause() {
  MutexLock lock(&mu_);
  paused_ = true;
}

void FakeWorker::Resume() {
  MutexLock lock(&mu_);
  paused_ = false;
  Work();
}

void FakeWorker::CutAt(FakeScript::Cut where, int n) {
  MutexLock lock(&mu_);
  script_.cut = where;
  script_.cut_at = n;
}

void FakeWorker::Say(v1::ControlResponse response) {
  MutexLock lock(&mu_);
  Respond(std::move(response));
}

void FakeWorker::Break(absl::Status status) {
  MutexLock lock(&mu_);
  EndLink(std::move(status));
}

void FakeWorker::Restart(bool other_incarnation, absl::Status why) {
  MutexLock lock(&mu_);
  if (other_incarnation) ++incarnation_;
  lost_ = true;
  Reset();
  EndLink(std::move(why));
}

void FakeWorker::EvictPlans() {
  MutexLock lock(&mu_);
  executor_.EvictPlans();
}

bool FakeWorker::HandOver(const v1::Pull& state, FakeExecutor* to) const {
  // The caller holds the other worker's lock. No thread takes the two locks in
  // the opposite order.
  MutexLock lock(&mu_);
  return executor_.HandOver(state, to) && state.worker_id() == id_;
}

FakeSeen FakeWorker::seen() const {
  MutexLock lock(&mu_);
  return seen_;
}

std::map<uint64_t, v1::RegisterModel> FakeWorker::models() const {
  MutexLock lock(&mu_);
  return executor_.models();
}

std::string FakeWorker::contents(uint64_t storage) const {
  MutexLock lock(&mu_);
  const auto found = executor_.storages().find(storage);
  return found == executor_.storages().end() ? "" : found->second.bytes;
}

std::set<uint64_t> FakeWorker::live_storages() const {
  MutexLock lock(&mu_);
  std::set<uint64_t> ids;
  for (const auto& [id, storage] : executor_.storages()) ids.insert(id);
  return ids;
}

void FakeWorker::WaitReceived(size_t count) {
  MutexLock lock(&mu_);
  for (Patience patience; seen_.received.size() < count;)
    patience.Wait(&changed_, &mu_);
}

void FakeWorker::WaitWaiting(size_t count) {
  MutexLock lock(&mu_);
  for (Patience patience; flow_.waiting.size() < count;)
    patience.Wait(&changed_, &mu_);
}

void FakeWorker::WaitForRead() {
  MutexLock lock(&mu_);
  for (Patience patience; !HoldsReadLocked();) patience.Wait(&changed_, &mu_);
}

bool FakeWorker::HoldsRead() {
  MutexLock lock(&mu_);
  return HoldsReadLocked();
}

bool FakeWorker::HoldsReadLocked() const {
  return !flow_.waiting.empty() && flow_.waiting.back().has_read();
}

bool FakeWorker::HoldsRun() {
  MutexLock lock(&mu_);
  return !flow_.waiting.empty() && flow_.waiting.front().has_run();
}

void FakeWorker::WaitEntering() {
  MutexLock lock(&mu_);
  for (Patience patience; !executor_.entering();)
    patience.Wait(&changed_, &mu_);
}

absl::Status FakeWorker::WaitClosed() {
  MutexLock lock(&mu_);
  for (Patience patience; !closed_;) patience.Wait(&changed_, &mu_);
  return close_status_;
}

}  // namespace djinn
