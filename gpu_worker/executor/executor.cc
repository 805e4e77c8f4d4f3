#include "gpu_worker/executor/executor.h"

#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/hash/hash.h"
#include "common/log/log.h"

namespace djinn::worker {
namespace {

// A turn continues with the session's next message until it has lasted this
// long. Changing sessions, and waking a client for every message, takes longer
// than many messages do.
constexpr absl::Duration kShortTurn = absl::Microseconds(50);
constexpr int kMaxSteps = 64;

// The most Reads, and Frees among them, executed right behind the run whose
// values they need, so that they do not wait for another turn.
constexpr int kMessagesBehindRun = 16;

// Records which of the runs of a batch have shared products, and how many.
class SharedProductsLog {
 public:
  explicit SharedProductsLog(size_t runs)
      : runs_(runs), counts_(runs), with_(runs * runs) {}

  // Records one product that these runs shared.
  void Add(absl::Span<const size_t> joined) {
    for (const size_t run : joined) {
      ++counts_[run];
      for (const size_t other : joined) with_[run * runs_ + other] = true;
    }
  }

  // Returns how many of the run's products were shared.
  uint64_t count(size_t run) const { return counts_[run]; }
  // Returns the other runs that shared a product with it, in order.
  std::vector<size_t> With(size_t run) const {
    std::vector<size_t> others;
    for (size_t other = 0; other < runs_; ++other) {
      if (other != run && with_[run * runs_ + other]) others.push_back(other);
    }
    return others;
  }

 private:
  const size_t runs_;
  std::vector<uint64_t> counts_;
  // Indexed by run and other run.
  std::vector<bool> with_;
};

// Returns where runs meet: at the same first shared product.
TurnQueue::Place PlaceOf(const OngoingRun& run) {
  const OngoingRun::Product& first = run.products().front();
  return absl::HashOf(first.weight, first.kind);
}

}  // namespace

Executor::Executor(const TurnQueue::Options& options, Device* device,
                   const Ledger* ledger, Clock* clock, TenantLabels* labels,
                   std::function<void()> changed)
    : options_(options),
      device_(*device),
      ledger_(*ledger),
      clock_(*clock),
      changed_(std::move(changed)),
      preemption_(clock, labels,
                  {.take =
                       [this](const Preemption::Step& step, absl::Duration used,
                              absl::Duration end) {
                         return TakePreempting(step, used, end);
                       },
                   .serve = [this] { return ServePreempting(); }}),
      time_(&preemption_, &metrics_),
      queue_(options, clock, &preemption_, &time_, &served_, &metrics_) {}

void Executor::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Executor::Stop() {
  queue_.Stop();
  if (thread_.joinable()) thread_.join();
}

void Executor::Run() {
  time_.BeginWork(clock_.Monotonic());
  while (std::optional<Turn> turn = queue_.TakeTurn(/*wait=*/true)) {
    Serve(*std::move(turn));
  }
}

bool Executor::ServeReady() {
  bool served = false;
  time_.BeginWork(clock_.Monotonic());
  while (std::optional<Turn> turn = queue_.TakeTurn(/*wait=*/false)) {
    Serve(*std::move(turn));
    served = true;
  }
  time_.EndWork(clock_.Monotonic());
  return served;
}

void Executor::Serve(Turn turn) {
  // A cancelled session ends even without credit.
  const bool waits =
      !turn.meter->HasCredit() && !turn.session->status().cancelled;
  if (turn.meter->SetWaiting(waits)) {
    log::Info(waits ? "session waits for credit" : "session has credit again",
              {{"session", log::ShortId(turn.session->who().session_id)},
               {"tenant", turn.session->who().tenant}});
    changed_();
  }
  if (waits) return ServeUnpaid(turn);
  Preemption::Step step{.key = turn.key,
                        .tenant = &turn.session->who().tenant,
                        .yielded = turn.meter->yielded()};
  step.yielded_for = [&turn](const Preemptor& preemptor, const char* reason,
                             absl::Duration away) {
    turn.session->log().Yield(
        {preemptor.tenant, log::ShortId(preemptor.session_id)}, reason, away);
  };
  preemption_.Begin(&step);
  NoteServed({turn.meter->lease_id()});
  if (turn.refused_behind.has_value()) {
    ServeRefusal(turn, &step);
  } else if (options_.max_batch_runs <= 1 || !turn.session->next().fast_run() ||
             !ServeBatch(turn, &step)) {
    ServeAlone(turn, step);
  }
  NoteServed({});
  preemption_.End(&step);
}

void Executor::NoteServed(const Served& lease_ids) {
  if (options_.gate == nullptr) return;
  options_.gate->NoteServed(lease_ids);
  served_leases_ = lease_ids;
}

void Executor::ServeUnpaid(const Turn& turn) {
  turn.session->steps().NoteOutOfCredit(*turn.given);
  EndService(turn, *turn.given);
  queue_.EndUnused(turn);
  // Credit that arrived before the session was known to wait woke nothing.
  if (turn.meter->HasCredit()) {
    turn.session->log().EnterWithCredit(*turn.given);
    queue_.MakeRunnable(turn.key);
  }
  time_.KeepHouse();
}

void Executor::ServeRefusal(const Turn& turn, Preemption::Step* step) {
  turn.session->steps().StepRefusal(*turn.refused_behind);
  turn.session->steps().StepReadsAndFrees(kMessagesBehindRun);
  const absl::Duration used = preemption_.OwnTime() - step->start;
  preemption_.Settle(step->start + used);
  Charge(turn, turn.session->status().phase, used);
  EndTurn(turn, used);
}

void Executor::ServeAlone(const Turn& turn, const Preemption::Step& step) {
  absl::Duration begins = clock_.Monotonic();
  metrics_.queue_wait.Observe(begins - turn.waits_since);
  Session* const session = turn.session.get();
  v1::Phase phase = session->status().phase;
  absl::Duration charged_until = step.start;
  absl::Duration now = step.start;
  int steps = 0;
  bool ran = false;
  do {
    ran = session->steps().Step(begins);
    begins = clock_.Monotonic();
    const absl::Duration before =
        std::exchange(now, preemption_.OwnTimeAt(begins));
    if (session->status().phase == phase) continue;
    // A run of another phase began.
    Charge(turn, phase, before - charged_until);
    charged_until = before;
    phase = session->status().phase;
  } while (++steps < kMaxSteps && now - step.start < kShortTurn &&
           session->steps().HasWork() &&
           !(options_.max_batch_runs > 1 && session->next().fast_run()));
  if (ran) {
    session->steps().StepReadsAndFrees(kMessagesBehindRun);
    now = preemption_.OwnTime();
  }
  preemption_.Settle(now);
  Charge(turn, phase, now - charged_until);
  EndTurn(turn, now - step.start);
}

scheduler::FairQueue::Preemption Executor::TakePreempting(
    const Preemption::Step& step, absl::Duration used, absl::Duration end) {
  // A turn that preempts would lack memory, because the preempted step keeps
  // what it holds.
  if (ledger_.usage().pressure() == MemoryPressure::kCritical) {
    return scheduler::FairQueue::Preemption::kLater;
  }
  std::vector<Preemption::Part> parts = {{step.key, used}};
  if (step.parts != nullptr) parts = step.parts();
  return queue_.TakePreempting(parts, end, &preempting_);
}

Preemptor Executor::ServePreempting() {
  Turn turn = std::exchange(preempting_, {});
  Preemptor preemptor{turn.session->who().tenant,
                      turn.session->who().session_id};
  const Served preempted = served_leases_;
  Serve(std::move(turn));
  NoteServed(preempted);
  queue_.EndPreempting();
  return preemptor;
}

void Executor::Charge(const Turn& turn, v1::Phase phase, absl::Duration used) {
  if (time_.Charge(turn.meter, phase, used)) changed_();
}

void Executor::EndTurn(const Turn& turn, absl::Duration used) {
  metrics_.steps.Observe(used);
  const absl::Duration now = clock_.Monotonic();
  EndService(turn, now);
  queue_.EndTurn(turn, used, turn.session->steps().EndTurn(now));
}

void Executor::EndService(const Turn& turn, absl::Duration now) {
  if (turn.given.has_value()) served_.End(now);
}

bool Executor::ServeBatch(const Turn& leader, Preemption::Step* step) {
  bool contested = false;
  const std::vector<TurnQueue::Candidate> candidates =
      queue_.FindBatch(leader, &contested);
  // A session that is alone takes the same path, so that the forecast learns
  // which products its runs come to.
  if (candidates.empty() && !queue_.MayBatch(leader.session->who().tenant)) {
    return false;
  }
  Batch batch = BeginBatch(leader, candidates, contested, *step);
  if (batch.turns.empty()) return false;
  const absl::Duration now = clock_.Monotonic();
  Served served;
  for (const Turn& turn : batch.turns) {
    served.push_back(turn.meter->lease_id());
  }
  NoteServed(served);
  std::vector<TurnQueue::Place> places;
  for (const LockstepMember& member : batch.members) {
    places.push_back(PlaceOf(*member.run));
  }
  queue_.JoinBatch(absl::MakeSpan(batch.turns), places, batch.contested, now);
  for (const Turn& turn : batch.turns) {
    turn.session->steps().NoteBegun(now);
    if (turn.waits_since == absl::InfiniteDuration()) continue;
    metrics_.queue_wait.Observe(now - turn.waits_since);
  }
  step->yielded_for = [&batch](const Preemptor& preemptor, const char* reason,
                               absl::Duration away) {
    for (const Turn& turn : batch.turns) {
      turn.session->log().Yield(
          {preemptor.tenant, log::ShortId(preemptor.session_id)}, reason, away);
    }
  };
  step->parts = [&batch] {
    std::vector<Preemption::Part> parts;
    for (size_t i = 0; i < batch.turns.size(); ++i) {
      parts.push_back({batch.turns[i].key, batch.members[i].used});
    }
    return parts;
  };
  ExecuteBatch(&batch, places.front());
  step->parts = nullptr;
  step->yielded_for = nullptr;
  // Work done for all runs together is charged to the leader.
  absl::Duration rest = preemption_.OwnTime() - step->start;
  preemption_.Settle(step->start + rest);
  for (const LockstepMember& member : batch.members) rest -= member.used;
  batch.members.front().used += rest;
  for (size_t i = 0; i < batch.turns.size(); ++i) {
    const Turn& turn = batch.turns[i];
    Charge(turn, turn.session->status().phase, batch.members[i].used);
    EndTurn(turn, batch.members[i].used);
  }
  return true;
}

Executor::Batch Executor::BeginBatch(
    const Turn& leader, const std::vector<TurnQueue::Candidate>& candidates,
    bool contested, const Preemption::Step& step) {
  Batch batch;
  batch.contested = contested;
  absl::Duration charged_until = step.start;
  const auto begin =
      [&](const Turn& turn,
          absl::FunctionRef<bool(absl::Span<const OngoingRun::Product>)>
              suits) {
        const bool own_turn = turn.key == leader.key;
        OngoingRun* const run = turn.session->steps().BeginRun(suits, own_turn);
        if (run == nullptr) return false;
        batch.turns.push_back(turn);
        batch.members.push_back({run});
        const absl::Duration now = preemption_.OwnTime();
        batch.members.back().used += now - std::exchange(charged_until, now);
        return true;
      };
  if (!begin(leader, [](auto products) { return !products.empty(); })) {
    return batch;
  }
  const SharedProducts shared(batch.members.front().run->products());
  for (const TurnQueue::Candidate& candidate : candidates) {
    const bool may_join =
        !(candidate.ahead && batch.contested) &&
        candidate.turn.meter->HasCredit() &&
        // All runs of a batch hold their memory at the same time.
        ledger_.usage().pressure() != MemoryPressure::kCritical;
    const bool joins = may_join && begin(candidate.turn, [&](auto products) {
                         return shared.Suit(products);
                       });
    if (!joins) batch.contested = true;
  }
  // The time spent on candidates that did not fit is charged to the leader.
  batch.members.front().used += preemption_.OwnTime() - charged_until;
  return batch;
}

void Executor::ExecuteBatch(Batch* batch, TurnQueue::Place place) {
  const std::vector<Turn>& turns = batch->turns;
  SharedProductsLog shared(turns.size());
  const absl::Duration products = ExecuteInLockstep(
      absl::MakeSpan(batch->members), device_.operators(),
      {.now = [this] { return preemption_.OwnTime(); },
       .done =
           [&](size_t member) {
             Session& session = *turns[member].session;
             if (shared.count(member) > 0) {
               std::vector<std::shared_ptr<const RunPeer>> with;
               for (const size_t other : shared.With(member)) {
                 with.push_back(turns[other].session->who().peer);
               }
               session.log().Share(shared.count(member), with);
             }
             session.steps().EndRun(batch->members[member].used);
             session.steps().StepReadsAndFrees(kMessagesBehindRun);
           },
       .joined =
           [&](absl::Span<const size_t> joined, int64_t rows) {
             shared.Add(joined);
             std::set<absl::string_view> tenants;
             for (const size_t member : joined) {
               tenants.insert(turns[member].session->who().tenant);
             }
             metrics_.batch_runs.Observe(joined.size());
             metrics_.batch_rows.Observe(static_cast<uint64_t>(rows));
             metrics_.batch_tenants.Observe(tenants.size());
           }});
  queue_.NoteBatch(place, products);
}

void Executor::Collect(Exposition* out) const {
  preemption_.Collect(out);
  metrics_.Collect(out);
  out->Counter("djinn_worker_executor_seconds_total",
               "Time that the executor thread was not waiting.",
               absl::ToDoubleSeconds(worked()));
}

}  // namespace djinn::worker
