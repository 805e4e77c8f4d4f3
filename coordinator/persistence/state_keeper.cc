#include "coordinator/persistence/state_keeper.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"

namespace djinn::coordinator {
namespace {

constexpr absl::Duration kInterval = absl::Milliseconds(100);
// The pause after a save is this many times as long as the save, so that a
// large state does not keep the cluster busy.
constexpr int kMostOfTheTime = 20;
constexpr absl::Duration kRetry = absl::Seconds(1);
constexpr char kLeader[] = "leader";
constexpr absl::Duration kTerm = absl::Seconds(15);
// Entries of the store itself, which are not state.
constexpr char kHeld[] = "held/";

}  // namespace

StateKeeper::StateKeeper(Store* store, Clock* clock, std::string owner)
    : store_(store), clock_(clock), owner_(std::move(owner)) {}

absl::StatusOr<std::unique_ptr<StateKeeper>> StateKeeper::Open(
    Store* store, Clock* clock, const std::string& owner) {
  auto keeper = absl::WrapUnique(new StateKeeper(store, clock, owner));
  DJINN_ASSIGN_OR_RETURN(const Store::Lease lease,
                         store->Acquire(kLeader, owner, clock->Now(), kTerm));
  keeper->term_ = lease.term;
  MutexLock lock(&keeper->writing_mu_);
  keeper->renew_at_ = clock->Now() + kTerm / 3;
  return keeper;
}

StateKeeper::~StateKeeper() { Stop(); }

absl::StatusOr<StateKeeper::State> StateKeeper::Read() {
  DJINN_ASSIGN_OR_RETURN(std::vector<Store::Entry> entries, store_->Get(""));
  MutexLock lock(&writing_mu_);
  written_.clear();
  for (Store::Entry& entry : entries) {
    if (absl::StartsWith(entry.key, kHeld)) continue;
    written_[std::move(entry.key)] = std::move(entry.value);
  }
  return written_;
}

void StateKeeper::Start(std::function<State()> state,
                        std::function<void()> kept) {
  state_ = std::move(state);
  kept_ = std::move(kept);
  thread_ = std::thread([this] { Run(); });
}

void StateKeeper::Stop() {
  {
    MutexLock lock(&mu_);
    if (std::exchange(stopping_, true)) return;
    stopped_.SignalAll();
  }
  if (!thread_.joinable()) return;
  thread_.join();
  Note(Write());
}

void StateKeeper::Run() {
  absl::Duration pause = kInterval;
  for (;;) {
    {
      MutexLock lock(&mu_);
      if (!stopping_) stopped_.WaitWithTimeout(&mu_, pause);
      if (stopping_) return;
    }
    const absl::Duration start = clock_->Monotonic();
    const absl::Status status = Write();
    Note(status);
    pause = status.ok() ? std::max(kInterval, kMostOfTheTime *
                                                  (clock_->Monotonic() - start))
                        : kRetry;
  }
}

absl::Status StateKeeper::Renew() {
  const absl::Time now = clock_->Now();
  return store_->Acquire(kLeader, owner_, now, kTerm).status();
}

absl::Status StateKeeper::Write() {
  MutexLock lock(&writing_mu_);
  const absl::Time now = clock_->Now();
  if (now >= renew_at_) {
    DJINN_RETURN_IF_ERROR(Renew());
    renew_at_ = now + kTerm / 3;
  }
  State state = state_();
  std::vector<Store::Write> writes;
  for (const auto& [key, value] : state) {
    const auto found = written_.find(key);
    if (found == written_.end() || found->second != value) {
      writes.push_back({key, value, {}});
    }
  }
  for (const auto& [key, value] : written_) {
    if (!state.contains(key)) writes.push_back({key, std::nullopt, {}});
  }
  if (!writes.empty()) {
    const absl::Duration start = clock_->Monotonic();
    DJINN_RETURN_IF_ERROR(store_->PutIf(writes).status());
    durations_.Observe(clock_->Monotonic() - start);
    writes_.Add({"ok"});
    written_ = std::move(state);
  }
  if (kept_ != nullptr) kept_();
  return absl::OkStatus();
}

void StateKeeper::Note(const absl::Status& status) {
  std::string failure;
  if (!status.ok()) {
    failure = std::string(status.message());
    writes_.Add({absl::AsciiStrToLower(ErrorReason(status))});
  }
  MutexLock lock(&mu_);
  // Logs each kind of failure once.
  if (failure != failure_) {
    if (status.ok()) {
      log::Info("the state is saved again");
    } else {
      log::Error("cannot save the state", {{"status", status}});
    }
  }
  failure_ = std::move(failure);
}

std::string StateKeeper::failure() const {
  MutexLock lock(&mu_);
  return failure_;
}

void StateKeeper::Collect(Exposition* out) const {
  out->Gauge("djinn_coordinator_leader", "1 while this process is the leader.",
             1);
  out->Gauge("djinn_coordinator_term",
             "Leader term; grows with every process that acquires the store.",
             static_cast<double>(term_));
  out->Counter("djinn_coordinator_leader_transitions_total",
               "Changes of the leader.", static_cast<double>(term_));
  writes_.Collect(out);
  out->Histogram("djinn_store_write_duration_seconds",
                 "Time of successful writes to the store.", durations_);
}

}  // namespace djinn::coordinator
