#include "coordinator/persistence/state_keeper.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
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
// Entries of the store itself and of the keeper, which are not state.
constexpr char kHeld[] = "held/";
constexpr char kFence[] = "fence";
// The known results of writes: "ok", and the reasons of errors in lower case.
constexpr const char* kResults[] = {"ok",
                                    "leadership_lost",
                                    "store_bad_key",
                                    "store_conflict",
                                    "store_corrupt",
                                    "store_full",
                                    "store_io",
                                    "store_lease_held",
                                    "store_locked",
                                    "store_unreachable",
                                    "store_unusable"};

}  // namespace

StateKeeper::StateKeeper(Store* store, Clock* clock, std::string owner,
                         absl::Duration ttl)
    : store_(store), clock_(clock), owner_(std::move(owner)), ttl_(ttl) {
  // Prometheus sees no increase in a counter that begins above 0.
  for (const char* result : kResults) writes_.Add({result}, 0);
}

absl::StatusOr<std::unique_ptr<StateKeeper>> StateKeeper::Open(
    Store* store, Clock* clock, const std::string& owner, absl::Duration term) {
  auto keeper = absl::WrapUnique(new StateKeeper(store, clock, owner, term));
  DJINN_ASSIGN_OR_RETURN(const Store::Lease lease,
                         store->Acquire(kLeader, owner, clock->Now(), term));
  keeper->term_ = lease.term;
  DJINN_RETURN_IF_ERROR(keeper->RaiseFence());
  return keeper;
}

std::string StateKeeper::Fence() const {
  return absl::StrCat(term_, " ", owner_);
}

absl::Status StateKeeper::Lose(absl::string_view why) {
  MutexLock lock(&mu_);
  lost_ = true;
  return MakeError(absl::StatusCode::kAborted, "LEADERSHIP_LOST", why);
}

bool StateKeeper::lost() const {
  MutexLock lock(&mu_);
  return lost_;
}

absl::Status StateKeeper::RaiseFence() {
  MutexLock lock(&writing_mu_);
  renew_at_ = clock_->Now() + ttl_ / 3;
  DJINN_ASSIGN_OR_RETURN(const std::vector<Store::Entry> entries,
                         store_->Get(kFence));
  for (const Store::Entry& entry : entries) {
    if (entry.key != kFence) continue;
    const std::pair<absl::string_view, absl::string_view> fields =
        absl::StrSplit(entry.value, absl::MaxSplits(' ', 1));
    uint64_t term = 0;
    if (!absl::SimpleAtoi(fields.first, &term)) {
      return MakeError(absl::StatusCode::kDataLoss, "STORE_CORRUPT",
                       "\"fence\" cannot be read");
    }
    if (term > term_) {
      return Lose(absl::StrCat("the store was written in term ", term,
                               ", and this process has term ", term_));
    }
    fence_ = entry.version;
  }
  const Store::Write write = {kFence, Fence(), fence_};
  DJINN_ASSIGN_OR_RETURN(fence_, store_->PutIf({&write, 1}));
  return absl::OkStatus();
}

StateKeeper::~StateKeeper() { Stop(); }

absl::StatusOr<StateKeeper::State> StateKeeper::Read() {
  MutexLock lock(&writing_mu_);
  DJINN_RETURN_IF_ERROR(ReadStore());
  return written_;
}

absl::Status StateKeeper::ReadStore() {
  DJINN_ASSIGN_OR_RETURN(std::vector<Store::Entry> entries, store_->Get(""));
  written_.clear();
  std::string fence;
  for (Store::Entry& entry : entries) {
    if (absl::StartsWith(entry.key, kHeld)) continue;
    if (entry.key == kFence) {
      fence = std::move(entry.value);
      fence_ = entry.version;
      continue;
    }
    written_[std::move(entry.key)] = std::move(entry.value);
  }
  if (fence != Fence()) {
    return Lose(absl::StrCat("the store is written by another process: ",
                             fence.empty() ? "its fence is gone" : fence));
  }
  return absl::OkStatus();
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
  const absl::StatusOr<Store::Lease> lease =
      store_->Acquire(kLeader, owner_, now, ttl_);
  if (ErrorReason(lease.status()) == "STORE_LEASE_HELD") {
    Lose(lease.status().message()).IgnoreError();
  }
  DJINN_RETURN_IF_ERROR(lease.status());
  if (lease->term != term_) {
    return Lose(absl::StrCat("term ", term_, " has ended"));
  }
  renew_at_ = now + ttl_ / 3;
  return absl::OkStatus();
}

absl::Status StateKeeper::Write() {
  MutexLock lock(&writing_mu_);
  if (lost()) return Lose("another process has become the writer");
  if (clock_->Now() >= renew_at_) DJINN_RETURN_IF_ERROR(Renew());
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
    writes.push_back({kFence, Fence(), fence_});
    const absl::Duration start = clock_->Monotonic();
    const absl::StatusOr<uint64_t> revision = store_->PutIf(writes);
    if (ErrorReason(revision.status()) == "STORE_CONFLICT" ||
        ErrorReason(revision.status()) == "STORE_UNREACHABLE") {
      // An earlier write may have arrived without an answer, or another process
      // has raised its fence. The next write starts from what is there.
      DJINN_RETURN_IF_ERROR(ReadStore());
    }
    DJINN_RETURN_IF_ERROR(revision.status());
    fence_ = *revision;
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
      log::Error("cannot save the state",
                 {{"reason", ErrorReason(status)}, {"status", status}});
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
