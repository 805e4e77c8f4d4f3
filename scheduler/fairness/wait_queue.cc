#include "scheduler/fairness/wait_queue.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"

namespace djinn::scheduler {

namespace {

// With fewer served requests, a prediction is meaningless.
constexpr double kLeastServed = 0.5;

}  // namespace

WaitQueue::Ticket WaitQueue::Join(Waiter waiter, absl::Duration now) {
  Pass(now);
  const Ticket ticket = ++last_;
  line_[waiter.urgency][waiter.tenant].insert(PlaceOf(waiter, ticket));
  waiters_.emplace(ticket, std::move(waiter));
  return ticket;
}

void WaitQueue::Change(Ticket ticket, int urgency, absl::Duration due) {
  const auto found = waiters_.find(ticket);
  if (found == waiters_.end()) return;
  Waiter waiter = found->second;
  Remove(ticket);
  waiter.urgency = urgency;
  waiter.due = due;
  line_[urgency][waiter.tenant].insert(PlaceOf(waiter, ticket));
  waiters_.emplace(ticket, std::move(waiter));
}

void WaitQueue::Leave(Ticket ticket, absl::Duration now) {
  Pass(now);
  Remove(ticket);
}

void WaitQueue::Serve(Ticket ticket, absl::Duration now) {
  Pass(now);
  if (waiters_.contains(ticket)) ++served_;
  Remove(ticket);
}

void WaitQueue::Pass(absl::Duration now) {
  const double kept = std::exp2(-absl::FDivDuration(now - passed_, kHalfLife));
  served_ *= kept;
  waited_ *= kept;
  if (!empty()) waited_ += absl::ToDoubleSeconds(now - passed_);
  passed_ = now;
}

void WaitQueue::Remove(Ticket ticket) {
  const auto found = waiters_.find(ticket);
  if (found == waiters_.end()) return;
  const Waiter& waiter = found->second;
  const auto tenants = line_.find(waiter.urgency);
  const auto of_tenant = tenants->second.find(waiter.tenant);
  of_tenant->second.erase(PlaceOf(waiter, ticket));
  if (of_tenant->second.empty()) tenants->second.erase(of_tenant);
  if (tenants->second.empty()) line_.erase(tenants);
  waiters_.erase(found);
}

void WaitQueue::SetWeight(const std::string& tenant, double weight) {
  tenants_[tenant].weight = weight;
}

void WaitQueue::Charge(const std::string& tenant, double device_seconds,
                       absl::Duration now) {
  const double before = VirtualTime(tenant, now);
  Tenant& charged = tenants_[tenant];
  charged.device_seconds = before * charged.weight + device_seconds;
  charged.at = now;
}

double WaitQueue::VirtualTime(const std::string& tenant,
                              absl::Duration now) const {
  const auto found = tenants_.find(tenant);
  if (found == tenants_.end()) return 0;
  const double half_lives =
      absl::FDivDuration(now - found->second.at, kHalfLife);
  return found->second.device_seconds * std::exp2(-half_lives) /
         found->second.weight;
}

std::vector<WaitQueue::Ticket> WaitQueue::Front(
    size_t most, absl::Duration now, const Precedence& precedence) const {
  // A tenant's next request.
  struct Next {
    const std::string* tenant;
    std::vector<double> precedence;
    double virtual_time;
    double turn;
    OfTenant::const_iterator waiter, end;

    bool operator>(const Next& other) const {
      return std::tie(precedence, virtual_time, *waiter) >
             std::tie(other.precedence, other.virtual_time, *other.waiter);
    }
  };
  std::vector<Ticket> front;
  // Includes the tickets that had turns in higher classes.
  absl::flat_hash_map<std::string, double> virtual_times;
  for (const auto& [urgency, tenants] : line_) {
    std::vector<Next> all;
    all.reserve(tenants.size());
    for (const auto& [tenant, waiters] : tenants) {
      const auto known = tenants_.find(tenant);
      const auto had = virtual_times.find(tenant);
      all.push_back(
          {&tenant, precedence(tenant),
           had == virtual_times.end() ? VirtualTime(tenant, now) : had->second,
           kTurn / (known == tenants_.end() ? 1 : known->second.weight),
           waiters.begin(), waiters.end()});
    }
    std::priority_queue<Next, std::vector<Next>, std::greater<>> order(
        std::greater<>(), std::move(all));
    while (!order.empty()) {
      if (front.size() == most) return front;
      Next next = order.top();
      order.pop();
      front.push_back(std::get<Ticket>(*next.waiter));
      next.virtual_time += next.turn;
      if (++next.waiter != next.end) {
        order.push(std::move(next));
      } else {
        virtual_times[*next.tenant] = next.virtual_time;
      }
    }
  }
  return front;
}

std::vector<WaitQueue::Ticket> WaitQueue::Try(
    absl::Duration now, const Precedence& precedence,
    absl::FunctionRef<bool(Ticket)> place) {
  std::vector<Ticket> tries = Front(kMaxTries / 2, now, precedence);
  const bool all = tries.size() == size();
  size_t in_vain = 0;
  for (const Ticket ticket : tries) in_vain += place(ticket) ? 0 : 1;
  if (all) return tries;
  const absl::flat_hash_set<Ticket> first(tries.begin(), tries.end());
  // Trying more of these would take turns that are due to those in front.
  for (const Ticket ticket : InTurn(in_vain)) {
    if (first.contains(ticket)) continue;
    tries.push_back(ticket);
    place(ticket);
  }
  return tries;
}

std::vector<WaitQueue::Ticket> WaitQueue::InTurn(size_t most) {
  std::vector<Ticket> turn;
  auto next = waiters_.upper_bound(last_in_turn_);
  while (turn.size() < std::min(waiters_.size(), most)) {
    if (next == waiters_.end()) next = waiters_.begin();
    turn.push_back((next++)->first);
  }
  if (!turn.empty()) last_in_turn_ = turn.back();
  return turn;
}

WaitQueue::Places WaitQueue::PlacesNow(absl::Duration now,
                                       const Precedence& precedence) const {
  Places places;
  places.reserve(size());
  for (const Ticket ticket : Front(size(), now, precedence)) {
    places.emplace(ticket, places.size() + 1);
  }
  return places;
}

std::optional<absl::Duration> WaitQueue::WaitAt(size_t place,
                                                absl::Duration now) const {
  const double since = absl::ToDoubleSeconds(now - passed_);
  const double kept = std::exp2(-absl::FDivDuration(now - passed_, kHalfLife));
  const double served = served_ * kept;
  if (served < kLeastServed) return std::nullopt;
  return static_cast<double>(place) *
         absl::Seconds((waited_ * kept + since) / served);
}

}  // namespace djinn::scheduler
