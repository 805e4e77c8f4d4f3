// Decides whose turn it is on a device: shares the device among tenants by
// weight, and each tenant's share among its sessions.
//
// Between tenants: c(T) is the device time that tenant T was charged, divided
// by its weight. The waiting tenant with the least c is next. A session is
// charged the expected time of its step when the step is taken, and the
// measured time when the step is done. A tenant that begins to wait starts at V
// at least, where V is the greatest c at which any tenant was taken, or the
// greatest c of all when the queue ran empty. Idling therefore earns nothing
// (start-time fair queueing, Goyal et al. 1996; the counters of VTC, Sheng et
// al. 2024).
//
// Within a tenant: higher priority first, then the earlier deadline, then the
// session that used less time among those of its priority, then the one that
// has waited longer. Sixteen sessions of a tenant together get what one session
// would get, and no session starves another one of equal priority.
//
// Preemption. A step in service may yield between two of its nodes
// (MayPreempt). Like Take(), preemption only ever serves the tenant that is
// next, so the proof below holds, with as many steps in service as have yielded
// at a time. Within one priority, the preempting step has an earlier deadline,
// or is short while the other is long; a short step yields only to short steps.
//
// Bound. Let one step be in service at a time. Let L(T) be the longest step of
// tenant T, w(T) its weight, and S(T) the device time that T got between two
// moments at which nothing is in service. If A and B wait at every decision
// between these moments, then
//     |S(A)/w(A) - S(B)/w(B)| <= L(A)/w(A) + L(B)/w(B).
// Proof. V never falls. (1) A waiting tenant has c >= V: it began so, and V
// only moves up to the least c among the waiting tenants, or moves while none
// waits. (2) Every c(T) <= V + L(T)/w(T): a tenant is taken at c(T) <= V,
// because V moves up to it, and is charged one step at most until it is taken
// again. Hence c(A) - c(B) lies between -L(B)/w(B) and L(A)/w(A) at either
// moment. While both wait, only service changes their c, so
// S(A)/w(A) - S(B)/w(B) equals the change of c(A) - c(B), which is at most the
// width of that interval. With D steps in service at a time, a tenant may be
// charged D steps beyond V, or be refunded D - 1 expected ones: if both wait
// throughout, the bound is 2D - 1 times as large, and L counts expected times
// as well.
//
// Batches. Waiting sessions may join a session in service out of their turn
// (FindBatch): they share one step, and each is charged its part. V does not
// move for them. While a session waits that is not in the batch, a tenant joins
// only if c(T) <= V + l(T)/w(T), where l(T) is what all its sessions were
// charged for their last turn. Then (2) becomes c(T) <= V + 2 L(T)/w(T), L
// being a tenant's part of a turn, and the bound is at most twice as large for
// a joining tenant. A tenant further ahead joins only where every tenant joins
// that has had less. While no other session waits, all may join, and the queue
// forgets what puts a tenant further ahead than one turn.
//
// Cost: O(log n) in tenants and in one tenant's sessions for every operation
// except FindBatch() and Ahead(). Pure logic: reads no clock, not
// thread-safe.
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
  // Number of priorities of a session. Priorities count from 0; higher is
  // sooner.
  static constexpr int kPriorities = 4;
  // The least charge of a step. It makes every turn end.
  static constexpr absl::Duration kLeastCharge = absl::Microseconds(1);

  // The length of a session's steps. Among sessions of one priority, a short
  // step need not wait for the end of a long one.
  enum class Pace { kUnknown, kShort, kLong };

  // A session's next step.
  struct Work {
    // Time by which the step should be done, on any one clock.
    absl::Duration deadline = absl::InfiniteDuration();
    // Expected device time; 0 when unknown. Does not change the tenants' shares
    // while one step is in service at a time.
    absl::Duration expected;
    // Affects MayPreempt() only, never whose turn is next. If it is known, it
    // is the pace of the session's steps from this one on.
    Pace pace = Pace::kUnknown;
  };

  // Adds a session of the tenant and sets the tenant's weight (positive).
  void Join(uint64_t key, absl::string_view tenant, double weight,
            int priority);
  // Removes the session. One in service is charged when it is done.
  void Leave(uint64_t key);
  // Does nothing for a tenant without sessions.
  void SetWeight(absl::string_view tenant, double weight);
  void SetPriority(uint64_t key, int priority);
  // Sets the pace of the session's steps from now on. Ignores unknown keys.
  void SetPace(uint64_t key, Pace pace);

  // Says that the session has `work`. Replaces the work of a session that
  // waits; a session in service waits again after Done(). Ignores unknown keys.
  // Returns true when the session has begun to wait, or when its step became
  // short.
  bool MakeRunnable(uint64_t key, const Work& work);

  bool empty() const { return waiting_.empty(); }
  bool in_service() const { return in_service_ > 0; }
  // Returns the session whose turn is next. Requires !empty().
  uint64_t Next() const { return waiting_.top()->waiting.top()->key; }
  // Takes the next session into service. Requires !empty().
  uint64_t Take();
  // Returns the expected time of all steps before the session's own, if no
  // session arrives any more: the steps of its tenant's sessions that precede
  // it, and one step of each tenant that has had less. Returns 0 when the
  // session does not wait. Looks at kLooks sessions at most.
  absl::Duration Ahead(uint64_t key) const;
  // Charges the session `used`, the time that its unfinished step took so far.
  void Charge(uint64_t key, absl::Duration used);
  // The reason why a step yields, or does not. When it yields, the caller calls
  // TakePreempting() and Done() for the preempting session before the step
  // continues. Preemption never works against the tenants' shares: the
  // preempting session belongs to the tenant that is next.
  enum class Preemption {
    // No session waits that may preempt.
    kNone,
    // A session of higher precedence waits, but its tenant has had more, or its
    // deadline allows it to wait for the end of the step.
    kLater,
    // The next session has a higher priority.
    kHigherPriority,
    // The next session has the same tenant and priority, and a deadline before
    // the step's own that it would miss if it began when the step ends. Only a
    // short step preempts a short one for this reason.
    kDeadline,
    // The preempting session has the same priority and a short step, and the
    // step in service is long. The preempting session is the next one with a
    // short step in its tenant, which may not be the next one of all.
    kShort,
  };
  // Returns whether the verdict makes the step yield.
  static bool Yields(Preemption asked) {
    return asked != Preemption::kNone && asked != Preemption::kLater;
  }
  // Judges the step that the sessions `keys` share, each of which was charged
  // what the step took so far. The step is expected to end at `end` on the
  // clock of deadlines. A preempting session precedes all of `keys`.
  Preemption MayPreempt(absl::Span<const uint64_t> keys,
                        absl::Duration end) const;
  // Takes the preempting session into service. `why` is the verdict that
  // MayPreempt() just returned.
  uint64_t TakePreempting(Preemption why);

  // The sessions that may be taken into service together with another one.
  struct Batch {
    struct Member {
      uint64_t key = 0;
      // True when its tenant is further ahead than one turn. Such sessions come
      // last, and one of them may be taken only when all before it are.
      bool ahead = false;
    };
    std::vector<Member> members;
    // True when a session waits that is not in the batch.
    bool contested = false;
  };
  // Returns up to `most` waiting sessions for which `suits` holds and whose
  // priority is not lower than that of `key`, ordered by how little their
  // tenants have had. Leaves out sessions that are ahead while the batch is
  // contested. Looks at kLooks sessions. `key` is in service, or next; when it
  // is next, the result includes it.
  static constexpr size_t kLooks = 256;
  Batch FindBatch(uint64_t key, absl::FunctionRef<bool(uint64_t)> suits,
                  size_t most) const;
  // Takes one session of a batch into service. Returns false when it no longer
  // waits. `contested` says whether any waiting session was left out once all
  // were chosen.
  bool TakeBeside(uint64_t key, bool contested);

  // Ends the session's step, which took `used`. `more` is the session's next
  // work, if it has any.
  void Done(uint64_t key, absl::Duration used, const std::optional<Work>& more);

  // Returns the priority of a session that has joined.
  int priority(uint64_t key) const { return sessions_.at(key)->priority; }
  // Returns whether two sessions that have joined belong to one tenant.
  bool SameTenant(uint64_t a, uint64_t b) const {
    return sessions_.at(a)->tenant == sessions_.at(b)->tenant;
  }
  // Returns the number of the tenant's sessions; 0 for an unknown tenant.
  size_t session_count(absl::string_view tenant) const;
  // Returns the number of tenants that the queue remembers.
  size_t tenant_count() const { return tenants_.size(); }

 private:
  struct Tenant;
  struct Session {
    uint64_t key = 0;
    Tenant* tenant = nullptr;
    int priority = 0;
    Work work;
    // The work that waits behind the step in service.
    Work next;
    // Nanoseconds of use, including the start value it got after idling.
    double used = 0;
    uint64_t turn = 0;
    size_t place = kNowhere;
    // Index in Tenant::waiting_short.
    size_t short_place = kNowhere;
    // Pace of its steps in service.
    Pace pace = Pace::kUnknown;
    bool in_service = false;
    bool waits_again = false;
    bool left = false;
    // True when it joined a batch while no other session waited.
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
    // Number of sessions in service, what they were charged since there was
    // none, and c(T) at that moment.
    size_t in_service = 0;
    double turn_charge = 0;
    double charged_before = 0;
    // The value of `used`, by priority, of the session taken last. A session
    // that begins to wait starts there.
    std::array<double, kPriorities> start = {};
    IndexedHeap<Session, &Session::place, SessionBefore> waiting;
    // The waiting sessions with short steps.
    IndexedHeap<Session, &Session::short_place, SessionBefore> waiting_short;
  };
  struct TenantBefore {
    bool operator()(const Tenant& a, const Tenant& b) const;
  };
  static constexpr size_t kNowhere = static_cast<size_t>(-1);
  static constexpr size_t kMinForget = 64;

  // Takes a waiting session into service.
  void Serve(Session* session);
  // Charges all that the session's step in service took.
  void ChargeStep(Session* session, absl::Duration used);
  void Wait(Session* session, const Work& work);
  // Replaces the work of a waiting session. Returns whether its step became
  // short.
  static bool WaitWith(Session* session, const Work& work);
  // Removes the session from its tenant's heaps.
  static void Remove(Session* session);
  // Does what Take() does, for this session.
  uint64_t TakeNow(Session* session);
  // Removes the session from the queue of waiting sessions.
  void Withdraw(Session* session);
  void Erase(Session* session);
  // Drops tenants without sessions that have no debt left.
  void Forget();

  absl::flat_hash_map<uint64_t, std::unique_ptr<Session>> sessions_;
  absl::flat_hash_map<std::string, std::unique_ptr<Tenant>> tenants_;
  size_t forget_at_ = kMinForget;
  IndexedHeap<Tenant, &Tenant::place, TenantBefore> waiting_;
  // V of the file comment, in nanoseconds.
  double start_ = 0;
  size_t in_service_ = 0;
  uint64_t next_turn_ = 1;
};

}  // namespace djinn::scheduler

#endif  // SCHEDULER_FAIRNESS_FAIR_QUEUE_H_
