#include "coordinator/console/observer.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"

namespace djinn::console {
namespace {

constexpr size_t kMemoryRows = 400'000;

}  // namespace

Observer::Observer(AdminReader* reader, Clock* clock, Options options)
    : reader_(reader),
      clock_(clock),
      options_(options),
      runs_(options.runs),
      leases_(options.ended_leases),
      memory_(kMemoryRows) {}

Observer::~Observer() { Stop(); }

absl::Status Observer::Look() {
  absl::StatusOr<std::shared_ptr<const Snapshot>> snapshot = Read();
  const absl::Time at = clock_->Now();
  if (snapshot.ok()) {
    const auto moment =
        MemoryMomentOf((*snapshot)->workers, (*snapshot)->leases, at);
    {
      MutexLock lock(&memory_mu_);
      memory_.Add(moment);
    }
    MutexLock lock(&leases_mu_);
    leases_.Update((*snapshot)->leases, (*snapshot)->sessions, at);
    leases_.NoteLostWorkers((*snapshot)->workers, at);
  }
  if (snapshot.ok()) ReadSessions(**snapshot);
  MutexLock lock(&mu_);
  ++now_.round;
  if (now_.status.ok() && !snapshot.ok()) now_.failing_since = at;
  now_.status = snapshot.status();
  if (snapshot.ok()) now_.snapshot = *snapshot;
  return now_.status;
}

absl::StatusOr<std::shared_ptr<const Snapshot>> Observer::Read() {
  auto seen = std::make_shared<Snapshot>();
  DJINN_ASSIGN_OR_RETURN(seen->workers, reader_->Workers());
  DJINN_ASSIGN_OR_RETURN(seen->sessions, reader_->Sessions());
  DJINN_ASSIGN_OR_RETURN(seen->tenants, reader_->Tenants());
  DJINN_ASSIGN_OR_RETURN(seen->queues, reader_->Queues());
  DJINN_ASSIGN_OR_RETURN(seen->leases, reader_->Leases());
  DJINN_ASSIGN_OR_RETURN(seen->graphs, reader_->Graphs());
  for (const v1::QueueInfo& queue : seen->queues.queues()) {
    if (queue.standing().waiting_count() == 0) continue;
    if (seen->waiting.size() == kMaxExplained) break;
    absl::StatusOr<v1::TenantExplanation> why =
        reader_->ExplainTenant(queue.tenant());
    // The tenant may have been removed meanwhile.
    if (why.ok()) seen->waiting.push_back(*std::move(why));
  }
  seen->at = clock_->Now();
  return seen;
}

// Asks for the runs and the lost leases of the next sessions. A later round
// asks again for what is not answered now.
void Observer::ReadSessions(const Snapshot& snapshot) {
  const auto& sessions = snapshot.sessions.sessions();
  const size_t count = std::min<size_t>(options_.sessions_per_round,
                                        static_cast<size_t>(sessions.size()));
  std::vector<std::pair<v1::ListRunsResponse, absl::Time>> answers;
  for (size_t i = 0; i < count; ++i) {
    {
      MutexLock lock(&mu_);
      if (stopping_) return;
    }
    next_session_ %= static_cast<size_t>(sessions.size());
    const std::string& session =
        sessions.at(static_cast<int>(next_session_++)).session_id();
    const absl::StatusOr<v1::SessionExplanation> why =
        reader_->ExplainSession(session);
    if (why.ok()) {
      MutexLock lock(&leases_mu_);
      leases_.Explain(*why, clock_->Now());
    }
    absl::StatusOr<v1::ListRunsResponse> runs = reader_->Runs(session);
    if (runs.ok()) answers.emplace_back(*std::move(runs), clock_->Now());
  }
  MutexLock lock(&runs_mu_);
  for (const auto& [runs, at] : answers) {
    for (const v1::RunInfo& run : runs.runs()) runs_.Add(run, at);
  }
}

void Observer::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Observer::Stop() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

void Observer::Run() {
  for (;;) {
    (void)Look();  // `now_` has the error.
    const absl::Duration until = clock_->Monotonic() + options_.interval;
    MutexLock lock(&mu_);
    while (!stopping_ && clock_->Monotonic() < until) {
      clock_->Wait(&changed_, &mu_, until - clock_->Monotonic());
    }
    if (stopping_) return;
  }
}

Observer::Now Observer::now() const {
  MutexLock lock(&mu_);
  return now_;
}

void Observer::WithRuns(absl::FunctionRef<void(const RunHistory&)> read) const {
  MutexLock lock(&runs_mu_);
  read(runs_);
}

void Observer::WithLeases(
    absl::FunctionRef<void(const LeaseHistory&)> read) const {
  MutexLock lock(&leases_mu_);
  read(leases_);
}

std::shared_ptr<const MemoryMoment> Observer::MemoryAt(absl::Time at) const {
  MutexLock lock(&memory_mu_);
  return memory_.At(at);
}

std::vector<absl::Time> Observer::memory_times() const {
  MutexLock lock(&memory_mu_);
  return memory_.times();
}

}  // namespace djinn::console
