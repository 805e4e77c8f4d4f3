// Whose turn it is: shares devices among tenants by weight, and a tenant's part
// among its sessions.
//
// Between tenants: virtual device-seconds. c(T), the device time that tenant T
// was charged over its weight, is what the waiting tenants are ordered by; the
// least goes next. A session is charged what its step is expected to take when
// it is taken, and what it took when it is done. A tenant that begins to wait
// starts at V at least, where V is the greatest c that any tenant was taken at,
// or had when nothing was left to do: idling earns nothing (start-time fair
// queueing, Goyal et al. 1996; the counters of VTC, Sheng et al. 2024).
// Within a tenant: the higher priority, then the earlier deadline, then the
// session that used less time among those of its priority, then who waits
// longer. So sixteen sessions get what one gets, and none starves another one
// of equal urgency.
//
// Preemption. A step that is in service may give way between two of its parts
// (MayPreempt). As Take(), that only ever serves the tenant that is next, so
// the proof below holds, with as many steps in service as give way at a time.
// Of one priority, who goes first has an earlier deadline or is short where the
// other is long, and who is short gives way to nobody who is not: steps of one
// priority in service at a time have earlier and earlier deadlines, and then
// are short, with earlier and earlier deadlines.
//
// Bound. Let one step be in service at a time, L(T) be the longest step of
// tenant T, w(T) its weight, and S(T) the device time that T got between two
// moments at which nothing is in service. If A and B wait at every decision
// between them, then
//     |S(A)/w(A) - S(B)/w(B)| <= L(A)/w(A) + L(B)/w(B).
// Proof. V never falls. (1) Who waits has c >= V: it began so, and V only
// moves up to the least c among those that wait, or while nobody does. (2)
// Every c(T) <= V + L(T)/w(T): a tenant is taken at c(T) <= V, for then V moves
// up to it, and is charged one step at most until it is taken again. Hence c(A)
// - c(B) lies between -L(B)/w(B) and L(A)/w(A) at either moment. While both
// wait, nothing but being served changes their c; so S(A)/w(A) - S(B)/w(B) is
// how much c(A) - c(B) has changed, at most from one end of that interval to
// the other. With D steps in service at a time, a tenant may be charged D steps
// beyond V, or get back D - 1 that were expected: if both wait all the while,
// the bound is 2D - 1 times as large, and L counts expected times, too.
//
// Company. A session in service may be joined by others that wait, out of their
// turn (FindCompany): they share one step, of which each is charged its part.
// V does not move for them. While somebody waits who is not of the company, a
// tenant joins only if c(T) <= V + l(T)/w(T), with l(T) what all its sessions
// were charged for their last turn: then (2) becomes c(T) <= V + 2 L(T)/w(T),
// L being of a tenant's part of a turn, and the bound is twice as large at most
// for whoever joins. A tenant further ahead joins where all do who have had
// less. While nobody else waits all may join, and what puts a tenant further
// ahead than a turn is forgotten: nobody waited for it.
//
// Every operation but FindCompany() and Ahead() takes O(log n) of tenants and
// of one tenant's sessions. Pure logic: reads no clock, not thread-safe.
#ifndef SCHEDULER_FAIRNESS_FAIR_QUEUE_H_
#define SCHEDULER_FAIRNESS_FAIR_QUEUE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "scheduler/fairness/indexed_heap.h"

namespace djinn::scheduler {

class FairQueue {
 public:
  // Of a session, from 0; higher is sooner.
  static constexpr int kPriorities = 4;
  // What a step is charged at least, so that everybody's turn ends.
  static constexpr absl::Duration kLeastCharge = absl::Microseconds(1);

  // How long steps of a kind are: among sessions of one priority a short one
  // need not wait for the end of a long one.
  enum class Pace { kUnknown, kShort, kLong };

  // A session's next step.
  struct Work {
    // When it should be done, by any clock.
    absl::Duration deadline = absl::InfiniteDuration();
    // What it will take, as far as that is known. Of no effect on who gets how
    // much while one step is in service at a time.
    absl::Duration expected;
    // Of no effect on whose turn is next, but by MayPreempt().
    Pace pace = Pace::kUnknown;
  };

  // A new session of the tenant, whose weight is a positive number from now on.
  void Join(uint64_t key, absl::string_view tenant, double weight,
            int priority);
  // Also while it is in service: it is charged when it is done.
  void Leave(uint64_t key);
  // Without effect for a tenant without sessions.
  void SetWeight(absl::string_view tenant, double weight);
  void SetPriority(uint64_t key, int priority);
  // Of what the session does whenever it is in service, from now on. Unknown
  // keys are ignored.
  void SetPace(uint64_t key, Pace pace);

  // The session has work: this, from now on, if it waits already. When it is in
  // service, it will wait again after Done(). Unknown keys are ignored. True
  // when it has begun to wait, or to be short.
  bool MakeRunnable(uint64_t key, const Work& work);

  bool empty() const { return waiting_.empty(); }
  bool in_service() const { return in_service_ > 0; }
  // The session whose turn is next. Not empty.
  uint64_t Next() const { return waiting_.top()->waiting.top()->key; }
  // Takes it into service. Not empty.
  uint64_t Take();
  // What goes before the session's step if nobody comes any more: what is
  // expected of the steps of its tenant's sessions that are more urgent, and of
  // one step of each tenant that has had less. Nothing when it does not wait.
  // Looks at kLooks of them.
  absl::Duration Ahead(uint64_t key) const;
  // The session's step goes on, and has taken `used` so far: from now on that
  // counts.
  void Charge(uint64_t key, absl::Duration used);
  // Whether a step gives way: TakePreempting(), and Done() of that one, before
  // it goes on. Never against the shares of tenants, and only where it helps:
  // who goes first is of the tenant that is next.
  enum class Preemption {
    // Nobody waits who is more urgent.
    kNone,
    // Somebody does, whose tenant has had more, or whom the end of the step is
    // soon enough for.
    kLater,
    // The next one has a higher priority.
    kHigherPriority,
    // It is the same tenant's, of the same priority, and has a deadline, before
    // the step's own, that it misses if it begins when the step ends. Nobody
    // goes first of a short step by that who is not short, too: it ends soon.
    kDeadline,
    // It has the same priority and is short, where the step is long; perhaps
    // not who is next in its tenant, but the next of those that are short.
    kShort,
  };
  // Whether it says that somebody goes first.
  static bool GivesWay(Preemption asked) {
    return asked != Preemption::kNone && asked != Preemption::kLater;
  }
  // Of the step of one session, or of several that share one, each of which is
  // charged what it took so far; it is expected to end at `end` by the clock of
  // deadlines. Who goes first is more urgent than all of them.
  Preemption MayPreempt(absl::Span<const uint64_t> keys,
                        absl::Duration end) const;
  // Takes who goes first into service, as just said by MayPreempt().
  uint64_t TakePreempting(Preemption why);

  // Who may be taken into service beside a session.
  struct Company {
    struct Member {
      uint64_t key = 0;
      // Its tenant is further ahead than a turn. Such ones come last, and may
      // be taken as long as all before them are.
      bool ahead = false;
    };
    std::vector<Member> members;
    // Somebody waits who is not of it.
    bool contested = false;
  };
  // Sessions that wait for which `suits` holds, `most` at most, and none of a
  // lower priority: those whose tenants have had least first; while it is
  // contested, nobody who is ahead. Looks at kLooks sessions. `key` is in
  // service, or next and then one of them.
  static constexpr size_t kLooks = 256;
  Company FindCompany(uint64_t key, absl::FunctionRef<bool(uint64_t)> suits,
                      size_t most) const;
  // Takes one of them; false when it does not wait any more. `contested` is
  // said when all have been chosen: also where a member was left out.
  bool TakeBeside(uint64_t key, bool contested);

  // The session's step took `used`; it has more work, or none.
  void Done(uint64_t key, absl::Duration used, const std::optional<Work>& more);

  // Of a session that has joined.
  int priority(uint64_t key) const { return sessions_.at(key)->priority; }
  // Of two that have joined.
  bool SameTenant(uint64_t a, uint64_t b) const {
    return sessions_.at(a)->tenant == sessions_.at(b)->tenant;
  }
  // Of the tenant; 0 for one that is not known.
  size_t session_count(absl::string_view tenant) const;
  // Tenants that are remembered.
  size_t tenant_count() const { return tenants_.size(); }

 private:
  struct Tenant;
  struct Session {
    uint64_t key = 0;
    Tenant* tenant = nullptr;
    int priority = 0;
    Work work;
    // Of what waits behind the step in service.
    Work next;
    // What it used, in nanoseconds, and the start it got for idling.
    double used = 0;
    uint64_t turn = 0;
    size_t place = kNowhere;
    // Among those of its tenant that wait with short steps.
    size_t short_place = kNowhere;
    // Whenever it is in service.
    Pace pace = Pace::kUnknown;
    bool in_service = false;
    bool waits_again = false;
    bool left = false;
    // Taken as company, while nobody else waited.
    bool uncontested = false;
    double charged = 0;
  };
  struct SessionBefore {
    bool operator()(const Session& a, const Session& b) const;
  };
  struct Tenant {
    double weight = 1;
    // c(T), in nanoseconds.
    double charged = 0;
    uint64_t turn = 0;
    size_t place = kNowhere;
    size_t sessions = 0;
    // Those in service; what they were charged since there were none before,
    // and c(T) then.
    size_t in_service = 0;
    double turn_charge = 0;
    double charged_before = 0;
    // By priority: `used` of the session taken last, at which one starts that
    // begins to wait.
    std::array<double, kPriorities> start = {};
    IndexedHeap<Session, &Session::place, SessionBefore> waiting;
    // Those of them with short steps.
    IndexedHeap<Session, &Session::short_place, SessionBefore> waiting_short;
  };
  struct TenantBefore {
    bool operator()(const Tenant& a, const Tenant& b) const;
  };
  static constexpr size_t kNowhere = static_cast<size_t>(-1);
  static constexpr size_t kMinForget = 64;

  // Takes a session that waits into service.
  void Serve(Session* session);
  // Of its step, in service, all that it took.
  void ChargeStep(Session* session, absl::Duration used);
  void Wait(Session* session, const Work& work);
  // It waits already. Whether it has become short.
  static bool WaitWith(Session* session, const Work& work);
  // Takes it out of its tenant's line.
  static void Remove(Session* session);
  // As Take(), of this session.
  uint64_t TakeNow(Session* session);
  // Takes it out of the line.
  void Withdraw(Session* session);
  void Erase(Session* session);
  // Drops tenants without sessions that have no debt left.
  void Forget();

  absl::flat_hash_map<uint64_t, std::unique_ptr<Session>> sessions_;
  absl::flat_hash_map<std::string, std::unique_ptr<Tenant>> tenants_;
  size_t forget_at_ = kMinForget;
  IndexedHeap<Tenant, &Tenant::place, TenantBefore> waiting_;
  // V.
  double start_ = 0;
  size_t in_service_ = 0;
  uint64_t next_turn_ = 1;
};

}  // namespace djinn::scheduler

#endif  // SCHEDULER_FAIRNESS_FAIR_QUEUE_H_
