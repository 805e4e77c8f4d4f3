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
    : limits_(std::move(limits)), id_(std::move(id)) {}

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

void FakeWorker::BeSilent() {
  MutexLock lock(&mu_);
  silent_ = true;
}

void FakeWorker::AskForProofs() {
  MutexLock lock(&mu_);
  ask_for_proofs_ = true;
}

void FakeWorker::GiveRoom(uint64_t bytes) {
  MutexLock lock(&mu_);
  content_room_ = bytes;
}

void FakeWorker::AnswerTransfers(Transfers answer) {
  MutexLock lock(&mu_);
  transfers_ = answer;
}

void FakeWorker::FailNextRun(uint64_t error_id) {
  MutexLock lock(&mu_);
  fail_next_run_ = error_id;
}

void FakeWorker::FailNextPull(uint64_t error_id) {
  MutexLock lock(&mu_);
  fail_next_pull_ = error_id;
}

void FakeWorker::AnswerMetadata(v1::RunMetadata metadata) {
  MutexLock lock(&mu_);
  metadata_ = std::move(metadata);
}

void FakeWorker::SayFacts(v1::DeviceSpeed speed, std::string numerics) {
  MutexLock lock(&mu_);
  speed_ = speed;
  numerics_ = std::move(numerics);
}

void FakeWorker::LimitModels(uint64_t model_bytes) {
  MutexLock lock(&mu_);
  model_bytes_ = model_bytes;
}

std::map<uint64_t, v1::RegisterModel> FakeWorker::models() const {
  MutexLock lock(&mu_);
  return models_;
}

void FakeWorker::AnswerProfiles(v1::ReplyTiming timing,
                                v1::ProfileReport report) {
  MutexLock lock(&mu_);
  timing_ = std::move(timing);
  report_ = std::move(report);
}

void FakeWorker::SayWrongId() {
  MutexLock lock(&mu_);
  wrong_id_ = true;
}

void FakeWorker::SayWrongFingerprints() {
  MutexLock lock(&mu_);
  wrong_fingerprints_ = true;
}

void FakeWorker::HoldBulk(bool hold) {
  MutexLock lock(&mu_);
  hold_bulk_ = hold;
  changed_.SignalAll();
}

void FakeWorker::DelayBulk(absl::Duration delay) {
  MutexLock lock(&mu_);
  bulk_delay_ = delay;
}

void FakeWorker::Say(v1::ControlResponse response) {
  MutexLock lock(&mu_);
  Respond(std::move(response));
}

void FakeWorker::Break(absl::Status status) {
  MutexLock lock(&mu_);
  EndLink(std::move(status));
}

void FakeWorker::CutAt(Cut where, int n) {
  MutexLock lock(&mu_);
  cut_ = where;
  cut_at_ = n;
}

int FakeWorker::incoming() const {
  MutexLock lock(&mu_);
  return incoming_;
}

int FakeWorker::outgoing() const {
  MutexLock lock(&mu_);
  return outgoing_;
}

void FakeWorker::BreakStreams(int count) {
  MutexLock lock(&mu_);
  break_streams_ = count;
}

void FakeWorker::EnterFrom(FakeWorker* other) {
  MutexLock lock(&mu_);
  other_ = other;
}

void FakeWorker::RefuseToLet(int times) {
  MutexLock lock(&mu_);
  refuse_to_let_ = times;
}

void FakeWorker::AnswerEntries(Entries answer) {
  MutexLock lock(&mu_);
  entries_ = answer;
}

void FakeWorker::WaitLeft() {
  MutexLock lock(&mu_);
  for (Patience patience; !left_;) patience.Wait(&changed_, &mu_);
}

void FakeWorker::WaitEntering() {
  MutexLock lock(&mu_);
  for (Patience patience; !entering_;) patience.Wait(&changed_, &mu_);
}

void FakeWorker::Restart(bool other_incarnation) {
  MutexLock lock(&mu_);
  if (other_incarnation) ++incarnation_;
  lost_ = true;
  Reset();
  EndLink(absl::UnavailableError("restarted"));
}

void FakeWorker::EvictPlans() {
  MutexLock lock(&mu_);
  for (const auto& [id, defined] : defined_) evicted_.insert(id);
}

void FakeWorker::IgnoreCancel() {
  MutexLock lock(&mu_);
  ignore_cancel_ = true;
}

int FakeWorker::resumes() const {
  MutexLock lock(&mu_);
  return resumes_;
}

int FakeWorker::cancels() const {
  MutexLock lock(&mu_);
  return cancels_;
}

std::vector<v1::Ordered> FakeWorker::received() const {
  MutexLock lock(&mu_);
  return received_;
}

void FakeWorker::WaitReceived(size_t count) {
  MutexLock lock(&mu_);
  for (Patience patience; received_.size() < count;)
    patience.Wait(&changed_, &mu_);
}

void FakeWorker::WaitWaiting(size_t count) {
  MutexLock lock(&mu_);
  for (Patience patience; waiting_.size() < count;)
    patience.Wait(&changed_, &mu_);
}

void FakeWorker::WaitForRead() {
  MutexLock lock(&mu_);
  for (Patience patience; waiting_.empty() || !waiting_.back().has_read();)
    patience.Wait(&changed_, &mu_);
}

void FakeWorker::WaitCancelled() {
  MutexLock lock(&mu_);
  for (Patience patience; cancels_ == 0;) patience.Wait(&changed_, &mu_);
}

std::vector<v1::Run> FakeWorker::runs() const {
  MutexLock lock(&mu_);
  return carried_runs_;
}

std::vector<std::string> FakeWorker::run_fingerprints() const {
  MutexLock lock(&mu_);
  return run_fingerprints_;
}

std::vector<size_t> FakeWorker::run_node_counts() const {
  MutexLock lock(&mu_);
  return run_node_counts_;
}

std::string FakeWorker::contents(uint64_t storage) const {
  MutexLock lock(&mu_);
  const auto found = storages_.find(storage);
  return found == storages_.end() ? "" : found->second.bytes;
}

std::set<uint64_t> FakeWorker::live_storages() const {
  MutexLock lock(&mu_);
  std::set<uint64_t> ids;
  for (const auto& [id, storage] : storages_) ids.insert(id);
  return ids;
}

std::vector<std::string> FakeWorker::violations() const {
  MutexLock lock(&mu_);
  return violations_;
}

bool FakeWorker::hello_seen() const {
  MutexLock lock(&mu_);
  return hello_seen_;
}

absl::Status FakeWorker::WaitClosed() {
  MutexLock lock(&mu_);
  for (Patience patience; !closed_;) patience.Wait(&changed_, &mu_);
  return close_status_;
}

}  // namespace djinn
