// In which order those get a worker that wait for one.
//
// The more urgent class goes first. Within a class tenants take turns by what
// they had: device-seconds over their weight, as fair queueing at the workers
// counts them, but forgotten by half every ten minutes, since who waits for a
// worker competes for the time to come. Before that counts what the caller says
// of a tenant, such as its share of what its cohort lends. A turn counts as a
// device-second at once: a tenant of which nothing was reported yet is not
// served all at one go. Within a tenant, those go first that return, having
// lost a worker to another tenant; then who is due first (EDF), of equals who
// came first.
//
// Bound. u(T) is what tenant T was charged, kTurn for each turn and besides for
// use, of which each charge counts 2^(-age/kHalfLife); w(T) is its weight and
// c(T) = u(T)/w(T). Between s and t let S(T) be what is charged to T, as it
// counts at t, and L(T) the most that it is charged from s, or a turn of its
// own, up to its next one, or t. Weights stay as they are. If at every turn
// that A has in between B waits in its class, and the caller says the same of
// both, then
//     S(A)/w(A) - S(B)/w(B) <= L(A)/w(A) + k max(0, c(B) - c(A) at s),
// where k = 2^(-(t - s)/kHalfLife). So if both wait from r < s until t, each
// has a turn between r and s, and L counts from r on,
//     |S(A)/w(A) - S(B)/w(B)| <= L(A)/w(A) + L(B)/w(B).
// Proof. Let x = c(A) - c(B). All is forgotten at one rate, so the left side is
// x(t) - k x(s). (1) If A has no turn, x(t) - k x(s) <= S(A)/w(A), of which
// all is use. Otherwise x <= 0 at its last one, for B waits and A goes first;
// whatever time makes of that stays so, and from then on A is charged L(A) at
// most: x(t) <= L(A)/w(A). (2) -k x(s) is the other term at most. When A has
// a turn between r and s, x(s) <= L(A)/w(A) likewise.
//
// Nobody starves in a class. Let B wait from s to t without a turn, U be what
// it is charged for use meanwhile, and the caller say the same of A. Then A has
// at most
//     1 + w(A) (max(0, c(B) - c(A) at s) + g U/w(B)) / kTurn
// turns, whether it waits all the while or comes and goes; g is 1/k: 1.01 for a
// wait of ten seconds. Proof. In units of s, a charge counts between 1 and g.
// At A's last turn c(A) <= c(B): what those before it took, kTurn/w(A) each at
// least, is no more than what B was ahead at s and charged since.
//
// Nothing is saved up: how long A waited for nothing is in neither. As c(A) is
// never below 0, who was away is ahead of B by no more than who never had
// anything: by what B itself had and is remembered.
//
// The order is worked out when it is asked for: Front() costs O(tenants + most
// log tenants). With PlacesNow() `most` is all, so it is asked once about
// everybody who wants to know. What does not fit lets others pass, and counts
// as a turn in the order until it is worked out again; so one that asks for
// much may wait for as long as there are others that ask for less. Of the
// bounds are turns of those in front.
//
// How long one will wait is guessed from how many got a worker lately, over the
// time that somebody waited for one, both forgotten by half every ten minutes.
//
// Pure logic, not thread-safe. Times are monotonic, and never go back.
#ifndef SCHEDULER_FAIRNESS_WAITING_LINE_H_
#define SCHEDULER_FAIRNESS_WAITING_LINE_H_

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

class WaitingLine {
 public:
  // Greater for who came later. Never 0.
  using Ticket = uint64_t;
  struct Waiter {
    std::string tenant;
    // Greater goes first.
    int urgency = 0;
    // When its work should be done.
    absl::Duration due = absl::InfiniteDuration();
    // It had a worker that was taken back.
    bool returns = false;
  };
  // Of a tenant: less goes first.
  using Precedence =
      std::function<std::vector<double>(const std::string& tenant)>;

  static constexpr absl::Duration kHalfLife = absl::Minutes(10);
  // What a turn counts as, in device-seconds.
  static constexpr double kTurn = 1;

  Ticket Join(Waiter waiter, absl::Duration now);
  // Its place in its tenant stays what it was, but for what has changed.
  void Change(Ticket ticket, int urgency, absl::Duration due);
  // Without effect when it is not there, as Serve().
  void Leave(Ticket ticket, absl::Duration now);
  // It leaves with a worker.
  void Serve(Ticket ticket, absl::Duration now);

  // 1 unless set.
  void SetWeight(const std::string& tenant, double weight);
  // It had so many device-seconds.
  void Charge(const std::string& tenant, double device_seconds,
              absl::Duration now);

  size_t size() const { return waiters_.size(); }
  bool empty() const { return waiters_.empty(); }
  // The first `most`, in order.
  std::vector<Ticket> Front(size_t most, absl::Duration now,
                            const Precedence& precedence) const;
  // How many are tried when something may have become free: more at a time
  // would hold up everybody else.
  static constexpr size_t kMaxTries = 256;
  // A longer line is not tried on the spot because somebody joins it.
  static constexpr size_t kMaxTriedAtOnce = 64;
  // Has `place` try those whose turn it is, each once, and returns them in that
  // order: half of kMaxTries are the first; and as many as it found no room for
  // are anybody's, in turn, for whom there may be some. It says whether there
  // was, and may change the line: tickets may be gone when they are tried.
  std::vector<Ticket> Try(absl::Duration now, const Precedence& precedence,
                          absl::FunctionRef<bool(Ticket)> place);
  // The next `most` by arrival, going round; each once.
  std::vector<Ticket> InTurn(size_t most);
  // Of everybody in the line; 1: the first.
  using Places = absl::flat_hash_map<Ticket, size_t>;
  Places PlacesNow(absl::Duration now, const Precedence& precedence) const;
  // After how long who has this place may have its turn, from now. Nothing when
  // too few had theirs lately to tell.
  std::optional<absl::Duration> WaitAt(size_t place, absl::Duration now) const;

 private:
  struct Tenant {
    double weight = 1;
    // At `at`.
    double device_seconds = 0;
    absl::Duration at;
  };
  double VirtualTime(const std::string& tenant, absl::Duration now) const;
  // Halves what was counted of the past, and counts the time since.
  void Pass(absl::Duration now);
  void Remove(Ticket ticket);

  // False for one that returns, due time, arrival.
  using Place = std::tuple<bool, absl::Duration, Ticket>;
  static Place PlaceOf(const Waiter& waiter, Ticket ticket) {
    return {!waiter.returns, waiter.due, ticket};
  }
  using OfTenant = std::set<Place>;
  std::map<int, std::map<std::string, OfTenant>, std::greater<>> line_;
  std::map<Ticket, Waiter> waiters_;
  std::map<std::string, Tenant> tenants_;
  // Who got a worker after a wait, and seconds in which somebody waited, at
  // `passed_`.
  double served_ = 0;
  double waited_ = 0;
  absl::Duration passed_;
  Ticket last_ = 0;
  Ticket last_in_turn_ = 0;
};

}  // namespace djinn::scheduler

#endif  // SCHEDULER_FAIRNESS_WAITING_LINE_H_
