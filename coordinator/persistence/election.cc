#include "coordinator/persistence/election.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/error.h"
#include "coordinator/persistence/state_keeper.h"

namespace djinn::coordinator {
namespace {

// A lease is renewed this many times before it would end.
constexpr int kRenewals = 5;
constexpr absl::Duration kMaxInterval = absl::Milliseconds(100);

// Returns the address in the name of a holder, "ID ADDRESS".
std::string AddressIn(const std::string& owner) {
  const std::pair<absl::string_view, absl::string_view> fields =
      absl::StrSplit(owner, absl::MaxSplits(' ', 1));
  return std::string(fields.second);
}

}  // namespace

Election::Election(Store* store, Clock* clock, ElectionOptions options)
    : store_(store),
      clock_(clock),
      options_(std::move(options)),
      owner_(absl::StrCat(options_.id, " ", options_.address)) {}

Election::~Election() { Stop(); }

absl::Duration Election::Interval() const {
  return std::min(kMaxInterval, options_.lease / (2 * kRenewals));
}

void Election::Start(std::function<void()> changed) {
  thread_ = std::thread([this, changed = std::move(changed)] { Run(changed); });
}

void Election::Stop() {
  {
    MutexLock lock(&mu_);
    if (std::exchange(stopping_, true)) return;
    stopped_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
  // Without an answer, the lease ends by itself.
  store_->Release(StateKeeper::kLeader, owner_).IgnoreError();
}

void Election::Resign() {
  {
    MutexLock lock(&mu_);
    term_ = 0;
    leader_.clear();
    stands_at_ = clock_->Monotonic() + 2 * options_.lease;
  }
  store_->Release(StateKeeper::kLeader, owner_).IgnoreError();
}

void Election::Run(const std::function<void()>& changed) {
  for (;;) {
    Step();
    changed();
    MutexLock lock(&mu_);
    if (!stopping_) stopped_.WaitWithTimeout(&mu_, Interval());
    if (stopping_) return;
  }
}

void Election::Step() {
  const absl::Duration start = clock_->Monotonic();
  {
    MutexLock lock(&mu_);
    if (start < stands_at_ || (term_ != 0 && start < renew_at_)) return;
  }
  const absl::StatusOr<Store::Lease> lease = store_->Acquire(
      StateKeeper::kLeader, owner_, clock_->Now(), options_.lease);
  MutexLock lock(&mu_);
  if (lease.ok()) {
    term_ = lease->term;
    valid_until_ = start + options_.lease;
    renew_at_ = start + options_.lease / kRenewals;
    leader_ = options_.address;
    failure_.clear();
  } else if (ErrorReason(lease.status()) == "STORE_LEASE_HELD") {
    term_ = 0;
    leader_ = AddressIn(ErrorMetadataValue(lease.status(), "owner"));
    failure_.clear();
  } else {
    failure_ = std::string(lease.status().message());
  }
}

Election::View Election::view() const {
  MutexLock lock(&mu_);
  const bool leads =
      term_ != 0 && !stopping_ && clock_->Monotonic() < valid_until_;
  View view;
  view.term = leads ? term_ : 0;
  // A process whose lease may have ended does not know who leads now.
  if (leads || term_ == 0) view.leader = leader_;
  view.failure = failure_;
  return view;
}

}  // namespace djinn::coordinator
