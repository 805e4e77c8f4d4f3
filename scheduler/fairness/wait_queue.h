// Orders the requests that wait for a worker.
//
// The higher priority class is first. Within a class tenants take turns by what
// they used: device-seconds divided by weight, as the workers' fair queue
// counts them, but halved every ten minutes, because waiting tenants compete
// for the time to come. The caller's precedence of tenants counts before that,
// such as a tenant's share of what its cohort lends. A turn counts as one
// device-second at once, so that a tenant of which nothing was reported yet is
// not served all its requests in a row. Within a tenant, requests that lost a
// worker to another tenant are first, then the earlier due time (EDF), then the
// earlier arrival.
//
// Bound. Let u(T) be what tenant T was charged: kTurn for each turn, plus its
// use, where a charge of age a counts 2^(-a/kHalfLife). Let w(T) be its weight
// and c(T) = u(T)/w(T). Between s and t, let S(T) be what is charged to T, as
// it counts at t, and L(T) the most that T is charged from s, or from one of
// its turns, until its next turn or t. Weights do not change. If at every turn
// of A in between B waits in A's class, and the caller gives both the same
// precedence, then
//     S(A)/w(A) - S(B)/w(B) <= L(A)/w(A) + k max(0, c(B) - c(A) at s),
// where k = 2^(-(t - s)/kHalfLife). So if both wait from r < s until t, each
// has a turn between r and s, and L counts from r on,
//     |S(A)/w(A) - S(B)/w(B)| <= L(A)/w(A) + L(B)/w(B).
// Proof. Let x = c(A) - c(B). All charges decay at one rate, so the left side
// is x(t) - k x(s). (1) If A has no turn, x(t) - k x(s) <= S(A)/w(A), all of
// which is use. Otherwise x <= 0 at A's last turn, because B waits and A is
// served first; decay keeps the sign, and A is charged at most L(A) from then
// on, so x(t) <= L(A)/w(A). (2) -k x(s) is at most the other term. When A has a
// turn between r and s, x(s) <= L(A)/w(A) for the same reason.
//
// No tenant starves in a class. Let B wait from s to t without a turn, let U be
// what B is charged for use meanwhile, and let the caller give A and B the same
// precedence. Then A has at most
//     1 + w(A) (max(0, c(B) - c(A) at s) + g U/w(B)) / kTurn
// turns, whether it waits throughout or comes and goes; g = 1/k, which is 1.01
// for a wait of ten seconds. Proof. In units of s, a charge counts between 1
// and g. At A's last turn c(A) <= c(B): the turns before it, kTurn/w(A) each at
// least, took no more than the lead of B at s plus B's charges since.
//
// Waiting without need earns nothing: neither formula contains A's waiting
// time. Because c(A) is never below 0, a tenant that was away is ahead of B by
// no more than a tenant that never used anything.
//
// The order is computed when it is asked for: Front() costs O(tenants + most
// log tenants). PlacesNow() orders all requests, so that one call answers every
// waiting client. A request that does not fit lets others pass and still counts
// as a turn until the order is computed again; a large request may therefore
// wait for as long as smaller ones arrive. The bounds count turns at the front.
//
// The predicted wait follows from the recent rate at which waiting requests
// were served; both terms of that rate are halved every ten minutes.
//
// Pure logic, not thread-safe. Times are monotonic.
#ifndef SCHEDULER_FAIRNESS_WAIT_QUEUE_H_
#define SCHEDULER_FAIRNESS_WAIT_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

namespace djinn::scheduler {

class WaitQueue {
 public:
  // Names a waiting request. Later requests have greater values; never 0.
  using Ticket = uint64_t;
  struct Waiter {
    std::string tenant;
    // A greater priority class is first.
    int urgency = 0;
    // Time by which its work should be done.
    absl::Duration due = absl::InfiniteDuration();
    // True when it had a worker that was reclaimed.
    bool returns = false;
  };
  // Precedence of a tenant, compared lexicographically; less is first.
  using Precedence =
      std::function<std::vector<double>(const std::string& tenant)>;

  static constexpr absl::Duration kHalfLife = absl::Minutes(10);
  // The charge of one turn, in device-seconds.
  static constexpr double kTurn = 1;

  Ticket Join(Waiter waiter, absl::Duration now);
  // Changes the priority class and the due time; the arrival order stays.
  void Change(Ticket ticket, int urgency, absl::Duration due);
  // Removes the request. Like Serve(), does nothing for an unknown ticket.
  void Leave(Ticket ticket, absl::Duration now);
  // Removes the request because it got a worker.
  void Serve(Ticket ticket, absl::Duration now);

  // Sets a tenant's weight, which is 1 by default.
  void SetWeight(const std::string& tenant, double weight);
  // Charges the tenant for its use, in device-seconds.
  void Charge(const std::string& tenant, double device_seconds,
              absl::Duration now);

  size_t size() const { return waiters_.size(); }
  bool empty() const { return waiters_.empty(); }
  // Returns the first `most` requests, in order.
  std::vector<Ticket> Front(size_t most, absl::Duration now,
                            const Precedence& precedence) const;
  // Number of requests that Try() tries at once; bounds how long it holds up
  // others.
  static constexpr size_t kMaxTries = 256;
  // With more waiting requests than this, a new request does not cause a try.
  static constexpr size_t kMaxTriedAtOnce = 64;
  // Calls `place` once for each request whose turn it is, and returns these
  // requests in that order. Half of kMaxTries are the first requests. For every
  // one of these that found no room, one further request is tried, round-robin
  // over all, since a smaller request may fit. `place` returns whether there
  // was room, and may change the queue.
  std::vector<Ticket> Try(absl::Duration now, const Precedence& precedence,
                          absl::FunctionRef<bool(Ticket)> place);
  // Returns the next `most` requests by arrival, round-robin, each once.
  std::vector<Ticket> InTurn(size_t most);
  // Positions of all waiting requests, counted from 1.
  using Places = absl::flat_hash_map<Ticket, size_t>;
  Places PlacesNow(absl::Duration now, const Precedence& precedence) const;
  // Predicts how long the request at this position will wait. Returns nothing
  // when too few requests were served recently for a prediction.
  std::optional<absl::Duration> WaitAt(size_t place, absl::Duration now) const;

 private:
  struct Tenant {
    double weight = 1;
    // The charge as it counted at `at`.
    double device_seconds = 0;
    absl::Duration at;
  };
  double VirtualTime(const std::string& tenant, absl::Duration now) const;
  // Decays the counters to `now` and adds the time since the last call.
  void Pass(absl::Duration now);
  void Remove(Ticket ticket);

  // Sort key within a tenant: false for a request that returns, due time,
  // arrival.
  using Place = std::tuple<bool, absl::Duration, Ticket>;
  static Place PlaceOf(const Waiter& waiter, Ticket ticket) {
    return {!waiter.returns, waiter.due, ticket};
  }
  using OfTenant = std::set<Place>;
  std::map<int, std::map<std::string, OfTenant>, std::greater<>> line_;
  std::map<Ticket, Waiter> waiters_;
  std::map<std::string, Tenant> tenants_;
  // Decayed number of requests served after a wait, and decayed seconds in
  // which any request waited, both as of `passed_`.
  double served_ = 0;
  double waited_ = 0;
  absl::Duration passed_;
  Ticket last_ = 0;
  Ticket last_in_turn_ = 0;
};

}  // namespace djinn::scheduler

#endif  // SCHEDULER_FAIRNESS_WAIT_QUEUE_H_
