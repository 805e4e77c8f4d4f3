// Turns on the device: whose it is, alone or together with others, and what
// each is charged.
#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/hash/hash.h"
#include "common/lease/priority_class.h"
#include "common/log/log.h"
#include "gpu_worker/streams/connection.h"
#include "gpu_worker/core/processor_watch.h"
#include "gpu_worker/executor/shared_products_log.h"
#include "gpu_worker/core/worker_core.h"
#include "gpu_worker/plan/lockstep.h"
#include "gpu_worker/plan/shared_products.h"
#include "scheduler/fairness/deadline_rule.h"

namespace djinn::worker {
namespace {

using scheduler::CompanyForecast;

// A session that had so many turns in succession is taken to be alone.
constexpr uint64_t kTurnsToAttend = 8;
// How long the idle executor receives what may come.
constexpr absl::Duration kAttendance = absl::Milliseconds(50);

// A turn goes on with the session's next message until it has lasted so long:
// to change sessions, and to wake each one's client for every message, takes
// longer than many a message does.
constexpr absl::Duration kShortTurn = absl::Microseconds(50);
constexpr int kMaxSteps = 64;

// Reads, and Frees among them, carried out behind the run that they want the
// values of: they should not wait for another turn.
constexpr int kMessagesBehindRun = 16;

// Runs meet where their first shared product is the same.
CompanyForecast::Place PlaceOf(const OngoingRun& run) {
  const OngoingRun::Product& first = run.products().front();
  return absl::HashOf(first.weight, first.kind);
}

}  // namespace

void WorkerCore::AwaitRunnable() {
  if (executor_stopping_ || !queue_.empty()) return;
  EndWork(clock_->Monotonic());
  while (!executor_stopping_ && queue_.empty()) {
    std::shared_ptr<Connection> connection;
    if (turns_ >= kTurnsToAttend) {
      const auto found = queued_.find(last_turn_);
      if (found != queued_.end()) connection = found->second.connection.lock();
    }
    if (connection != nullptr) {
      attended_ = connection;
      queue_mu_.Unlock();
      const bool received = connection->stream()->Attend(
          [this] {
            MutexLock lock(&queue_mu_);
            return executor_stopping_ || !queue_.empty();
          },
          kAttendance);
      queue_mu_.Lock();
      attended_.reset();
      const bool idle = !executor_stopping_ && queue_.empty();
      queue_mu_.Unlock();
      if (received && idle) connection->stream()->Recall();
      connection.reset();  // the last to hold it destroys the stream
      queue_mu_.Lock();
      if (executor_stopping_ || !queue_.empty()) continue;
    }
    runnable_.Wait(&queue_mu_);
  }
  BeginWork(clock_->Monotonic());
}

absl::Duration WorkerCore::ExecutorTime() const {
  MutexLock lock(&queue_mu_);
  return work_.WorkedBy(clock_->Monotonic());
}

WorkerCore::Turn WorkerCore::TurnOf(uint64_t key) {
  Queued& queued = queued_.at(key);
  if (queued.expected_start.has_value()) {
    metrics_.start_prediction_error.Observe(absl::AbsDuration(
        clock_->Monotonic() - *std::exchange(queued.expected_start, {})));
  }
  return {key, queued.session, queued.meter,
          std::exchange(queued.waits_since, absl::InfiniteDuration())};
}

void WorkerCore::RunExecutor() {
  const std::unique_ptr<ProcessorThread> thread = OwnProcessorThread();
  ProcessorWatch watch(thread.get());
  {
    MutexLock lock(&queue_mu_);
    BeginWork(clock_->Monotonic());
  }
  while (std::optional<Turn> turn = TakeTurn()) {
    Serve(*std::move(turn));
    if (watch.NoteTurn(clock_->Monotonic())) Move(thread.get());
  }
}

void WorkerCore::Move(ProcessorThread* thread) {
  const absl::Duration before = clock_->Monotonic();
  {
    MutexLock lock(&queue_mu_);
    EndWork(before);
  }
  thread->Leave();
  MutexLock lock(&queue_mu_);
  const absl::Duration now = clock_->Monotonic();
  BeginWork(now);
  metrics_.processor_moves.Observe(now - before);
}

std::optional<WorkerCore::Turn> WorkerCore::TakeTurn() {
  MutexLock lock(&queue_mu_);
  serving_ = 0;
  do {
    AwaitRunnable();
    AwaitCompany();
    if (executor_stopping_) {
      EndWork(clock_->Monotonic());
      return std::nullopt;
    }
    // A session may have left meanwhile.
  } while (queue_.empty());
  if (std::optional<Turn> refusal = TakeRefusal()) return refusal;
  const absl::Duration now = clock_->Monotonic();
  const uint64_t key = queue_.Take();
  // Who waits already is not looked for otherwise.
  if (!queue_.empty() && PaceOf(queued_.at(key).session->next_phase()) ==
                             scheduler::FairQueue::Pace::kLong) {
    preemption_.Look();
  }
  turns_ = key == last_turn_ ? turns_ + 1 : 0;
  last_turn_ = key;
  serving_ = key;
  served_by_ = now + queued_.at(key).session->expected();
  return Give(TurnOf(key), now);
}

WorkerCore::Turn WorkerCore::Give(Turn turn, absl::Duration now) {
  turn.given = now;
  served_.Begin(turn.session->served(), now);
  return turn;
}

void WorkerCore::EndService(const Turn& turn, absl::Duration now) {
  if (turn.given.has_value()) served_.End(now);
}

std::optional<absl::Duration> WorkerCore::LateBehind(uint64_t key,
                                                     absl::Duration now) const {
  const auto found = queued_.find(key);
  if (found == queued_.end()) return std::nullopt;
  return scheduler::LateBehind(queue_, key, WorkOf(*found->second.session),
                               InService(), now);
}

std::optional<scheduler::InService> WorkerCore::InService() const {
  if (!queued_.contains(serving_)) return std::nullopt;
  return scheduler::InService{serving_, served_by_};
}

void WorkerCore::NoteWaitingRun(uint64_t key, absl::Duration now) {
  if (LateBehind(key, now).has_value()) {
    refusals_.push_back(key);
    return;
  }
  const auto found = queued_.find(key);
  if (found == queued_.end() ||
      found->second.session->expected() == absl::ZeroDuration()) {
    return;
  }
  found->second.expected_start =
      now + scheduler::Ahead(queue_, key, InService(), now);
}

std::optional<WorkerCore::Turn> WorkerCore::TakeRefusal() {
  while (!refusals_.empty()) {
    const uint64_t key = refusals_.front();
    refusals_.pop_front();
    const absl::Duration now = clock_->Monotonic();
    const std::optional<absl::Duration> ahead = LateBehind(key, now);
    // Nobody's turn is any later for it.
    if (!ahead.has_value() || !queue_.TakeBeside(key, /*contested=*/true)) {
      continue;
    }
    Turn turn = TurnOf(key);
    turn.refused_behind = ahead;
    return Give(std::move(turn), now);
  }
  return std::nullopt;
}

void WorkerCore::CountInTime(uint64_t queue_key, const std::string& tenant,
                             RunInTime result) {
  int priority;
  {
    MutexLock lock(&queue_mu_);
    if (!queued_.contains(queue_key)) return;
    priority = queue_.priority(queue_key);
  }
  const char* const name = result == RunInTime::kAttained ? "attained"
                           : result == RunInTime::kMissed ? "missed"
                                                          : "refused";
  metrics_.deadlines.Add(
      {metrics_.tenants.For(tenant),
       PriorityClassName(static_cast<v1::PriorityClass>(priority)), name});
}

void WorkerCore::AwaitCompany() {
  if (options_.max_batch_runs <= 1) return;
  const absl::Duration since = clock_->Monotonic();
  absl::Duration now = since;
  bool waited = false;
  while (!executor_stopping_ && !queue_.empty() && refusals_.empty()) {
    const absl::Duration until = CompanyUntil(since, now);
    if (until <= now) break;
    if (!waited) {
      EndWork(now);
      served_.AwaitCompany(now);
    }
    waited = true;
    awaits_company_since_ = since;
    clock_->Wait(&runnable_, &queue_mu_, until - now);
    now = clock_->Monotonic();
  }
  if (!waited) return;
  awaits_company_since_.reset();
  served_.EndAwaiting(now);
  BeginWork(now);
  metrics_.batch_waits.Observe(now - since);
}

absl::Duration WorkerCore::CompanyUntil(absl::Duration since,
                                        absl::Duration now) {
  const uint64_t next = queue_.Next();
  const std::optional<CompanyForecast::Place> place = forecast_.NextOf(next);
  if (!place.has_value()) return since;
  const std::string& tenant = queued_.at(next).session->tenant();
  // Who is in a hurry waits for nobody.
  const auto may_wait = [&](uint64_t key) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const Session& session = *queued_.at(key).session;
    return session.fast_run_next() && forecast_.NextOf(key) == place &&
           session.deadline() == absl::InfiniteDuration() &&
           MayShare(tenant, session.tenant());
  };
  const scheduler::FairQueue::Company waiting =
      queue_.FindCompany(next, may_wait, options_.max_batch_runs);
  if (waiting.contested || waiting.members.size() == options_.max_batch_runs) {
    return since;
  }
  const int priority = queue_.priority(next);
  return forecast_.WaitUntil(
      *place, since, now, [&](uint64_t key) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        const Queued& queued = queued_.at(key);
        return queued.waits_since == absl::InfiniteDuration() &&
               queue_.priority(key) >= priority && queued.meter->HasCredit() &&
               MayShare(tenant, queued.session->tenant());
      });
}

bool WorkerCore::MayShare(const std::string& a, const std::string& b) const {
  return a == b ||
         (batching_tenants_.contains(a) && batching_tenants_.contains(b));
}

bool WorkerCore::MayHaveCompany(const std::string& tenant) {
  MutexLock lock(&queue_mu_);
  return queue_.session_count(tenant) > 1 ||
         (batching_tenants_.size() > 1 && batching_tenants_.contains(tenant));
}

void WorkerCore::Serve(Turn turn) {
  // One that is given up ends without credit, too.
  const bool waits = !turn.meter->HasCredit() && !turn.session->cancelled();
  if (turn.meter->SetWaiting(waits)) NoteWaiting(*turn.session, waits);
  if (waits) {
    turn.session->NoteOutOfCredit(*turn.given);
    EndService(turn, *turn.given);
    {
      // Runnable again when a message comes, and when there is credit.
      MutexLock lock(&queue_mu_);
      queue_.Done(turn.key, absl::ZeroDuration(), std::nullopt);
    }
    // What came before it was known to wait woke nobody.
    if (turn.meter->HasCredit()) {
      turn.session->NoteCredit(*turn.given);
      MakeRunnable(turn.key);
    }
    return KeepHouse();
  }
  Preemption::Step step{.key = turn.key,
                        .tenant = &turn.session->tenant(),
                        .given_way = turn.meter->given_way()};
  step.gave_way = [&turn](const Preemptor& first, const char* reason,
                          absl::Duration away) {
    turn.session->NoteGaveWay({first.tenant, log::ShortId(first.session_id)},
                              reason, away);
  };
  preemption_.Begin(&step);
  if (turn.refused_behind.has_value()) {
    turn.session->StepRefusal(*turn.refused_behind);
    turn.session->StepReadsAndFrees(kMessagesBehindRun);
    const absl::Duration used = preemption_.OwnTime() - step.start;
    preemption_.Settle(step.start + used);
    Charge(turn, turn.session->phase(), used);
    EndTurn(turn, used);
    return preemption_.End(&step);
  }
  const bool together = options_.max_batch_runs > 1 &&
                        turn.session->fast_run_next() &&
                        ServeTogether(turn, &step);
  if (!together) {
    const absl::Duration now = clock_->Monotonic();
    metrics_.queue_wait.Observe(now - turn.waits_since);
    ServeAlone(turn, step, now);
  }
  preemption_.End(&step);
}

void WorkerCore::ServeAlone(const Turn& turn, const Preemption::Step& step,
                            absl::Duration begins) {
  Session* const session = turn.session.get();
  v1::Phase phase = session->phase();
  absl::Duration charged_until = step.start;
  absl::Duration now = step.start;
  int steps = 0;
  bool ran = false;
  do {
    ran = session->Step(begins);
    begins = clock_->Monotonic();
    const absl::Duration before =
        std::exchange(now, preemption_.OwnTimeAt(begins));
    if (session->phase() == phase) continue;
    // A run of another phase began.
    Charge(turn, phase, before - charged_until);
    charged_until = before;
    phase = session->phase();
  } while (++steps < kMaxSteps && now - step.start < kShortTurn &&
           session->HasWork() &&
           !(options_.max_batch_runs > 1 && session->fast_run_next()));
  if (ran) {
    session->StepReadsAndFrees(kMessagesBehindRun);
    now = preemption_.OwnTime();
  }
  preemption_.Settle(now);
  Charge(turn, phase, now - charged_until);
  EndTurn(turn, now - step.start);
}

scheduler::FairQueue::Pace WorkerCore::PaceOf(v1::Phase phase) const {
  using Pace = scheduler::FairQueue::Pace;
  if (!options_.tokens_first) return Pace::kUnknown;
  switch (phase) {
    case v1::PHASE_LLM_DECODE:
      return Pace::kShort;
    case v1::PHASE_LLM_PREFILL:
    case v1::PHASE_TRAINING:
      return Pace::kLong;
    default:
      return Pace::kUnknown;
  }
}

scheduler::FairQueue::Preemption WorkerCore::TakePreempting(
    const Preemption::Step& step, absl::Duration used, absl::Duration end) {
  using scheduler::FairQueue;
  // What goes first would lack the memory that the step goes on holding.
  if (ledger_.usage().pressure() == MemoryPressure::kCritical) {
    return FairQueue::Preemption::kLater;
  }
  std::vector<Preemption::Part> parts = {{step.key, used}};
  if (step.parts != nullptr) parts = step.parts();
  std::vector<uint64_t> keys;
  MutexLock lock(&queue_mu_);
  for (const Preemption::Part& part : parts) {
    queue_.Charge(part.key, part.used);
    keys.push_back(part.key);
  }
  const FairQueue::Preemption asked = queue_.MayPreempt(keys, end);
  if (FairQueue::GivesWay(asked)) {
    const absl::Duration now = clock_->Monotonic();
    preempting_ = Give(TurnOf(queue_.TakePreempting(asked)), now);
    going_first_.push_back({preempting_.key, now, Preemption::NameOf(asked)});
    turns_ = 0;
  }
  return asked;
}

Preemptor WorkerCore::ServePreempting() {
  Turn turn = std::exchange(preempting_, {});
  Preemptor preemptor{turn.session->tenant(), turn.session->session_id()};
  Serve(std::move(turn));
  MutexLock lock(&queue_mu_);
  going_first_.pop_back();
  return preemptor;
}

void WorkerCore::Charge(const Turn& turn, v1::Phase phase,
                        absl::Duration used) {
  charged_ = {turn.meter, phase};
  ChargeLast(used);
  if (std::exchange(low_credit_, false)) NotifyChange();
}

void WorkerCore::ChargeLast(absl::Duration used) {
  const auto nanoseconds =
      static_cast<uint64_t>(absl::ToInt64Nanoseconds(used));
  if (charged_.meter == nullptr) {
    metrics_.housekeeping.fetch_add(nanoseconds, std::memory_order_relaxed);
    return;
  }
  metrics_.busy.Add(charged_.phase, nanoseconds);
  low_credit_ |= charged_.meter->Add(charged_.phase, used);
}

void WorkerCore::KeepHouse() {
  charged_ = {};
  ChargeLast(preemption_.Settle(preemption_.OwnTime()));
}

void WorkerCore::BeginWork(absl::Duration now) {
  work_.Begin(now);
  preemption_.Settle(preemption_.OwnTimeAt(now));
}

void WorkerCore::EndWork(absl::Duration now) {
  work_.End(now);
  // Not told here, under the lock: who waits needs no credit yet.
  ChargeLast(preemption_.Settle(preemption_.OwnTimeAt(now)));
  charged_ = {};
}

void WorkerCore::EndTurn(const Turn& turn, absl::Duration used) {
  metrics_.steps.Observe(used);
  const absl::Duration now = clock_->Monotonic();
  EndService(turn, now);
  const bool more = turn.session->EndTurn(now);
  MutexLock lock(&queue_mu_);
  std::optional<scheduler::FairQueue::Work> next;
  if (more) next.emplace(WorkOf(*turn.session));
  const auto found = queued_.find(turn.key);
  if (more && found != queued_.end()) {
    found->second.waits_since = std::min(found->second.waits_since, now);
  }
  queue_.Done(turn.key, used, next);
  if (serving_ == turn.key) serving_ = 0;
  if (more && found != queued_.end()) NoteWaitingRun(turn.key, now);
  forecast_.Ended(turn.key, now);
}

std::vector<WorkerCore::Candidate> WorkerCore::FindCompany(const Turn& leader,
                                                           bool* contested) {
  std::vector<Candidate> company;
  MutexLock lock(&queue_mu_);
  if (queue_.empty()) return company;
  const std::string& tenant = leader.session->tenant();
  const scheduler::FairQueue::Company found = queue_.FindCompany(
      leader.key,
      [&](uint64_t key) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        const Session& session = *queued_.at(key).session;
        return session.fast_run_next() && MayShare(tenant, session.tenant());
      },
      options_.max_batch_runs - 1);
  *contested = found.contested;
  for (const auto& member : found.members) {
    const Queued& queued = queued_.at(member.key);
    company.push_back(
        {{member.key, queued.session, queued.meter}, member.ahead});
  }
  return company;
}

bool WorkerCore::ServeTogether(const Turn& leader, Preemption::Step* step) {
  bool contested = false;
  const std::vector<Candidate> company = FindCompany(leader, &contested);
  // Who is alone goes the same way, so that others may be known to come to the
  // same products.
  if (company.empty() && !MayHaveCompany(leader.session->tenant())) {
    return false;
  }
  std::vector<Turn> turns;
  std::vector<LockstepMember> members;
  absl::Duration charged_until = step->start;
  const auto charge = [&](size_t member) {
    const absl::Duration now = preemption_.OwnTime();
    members[member].used += now - charged_until;
    charged_until = now;
  };
  const auto begin =
      [&](const Turn& turn,
          absl::FunctionRef<bool(absl::Span<const OngoingRun::Product>)>
              suits) {
        const bool own_turn = turn.key == leader.key;
        OngoingRun* const run = turn.session->BeginRun(suits, own_turn);
        if (run == nullptr) return false;
        turns.push_back(turn);
        members.push_back({run});
        charge(members.size() - 1);
        return true;
      };
  if (!begin(leader, [](auto products) { return !products.empty(); })) {
    return false;
  }
  const SharedProducts shared(members.front().run->products());
  for (const Candidate& candidate : company) {
    const bool may_join =
        !(candidate.ahead && contested) && candidate.turn.meter->HasCredit() &&
        // What runs side by side is in memory at the same time.
        ledger_.usage().pressure() != MemoryPressure::kCritical;
    const bool joins = may_join && begin(candidate.turn, [&](auto products) {
                         return shared.Suit(products);
                       });
    if (!joins) contested = true;
  }
  const absl::Duration now = clock_->Monotonic();
  {
    MutexLock lock(&queue_mu_);
    for (size_t i = 0; i < turns.size(); ++i) {
      // Its session may be gone; then so is its key.
      if (i > 0 && queue_.TakeBeside(turns[i].key, contested)) {
        turns[i].waits_since = TurnOf(turns[i].key).waits_since;
      }
      if (!queued_.contains(turns[i].key)) continue;
      forecast_.Came(turns[i].key, PlaceOf(*members[i].run),
                     std::min(turns[i].waits_since, now));
    }
  }
  for (const Turn& turn : turns) {
    turn.session->NoteBegun(now);
    if (turn.waits_since == absl::InfiniteDuration()) continue;
    metrics_.queue_wait.Observe(now - turn.waits_since);
  }
  charge(0);  // and what did not suit
  step->gave_way = [&turns](const Preemptor& first, const char* reason,
                            absl::Duration away) {
    for (const Turn& turn : turns) {
      turn.session->NoteGaveWay({first.tenant, log::ShortId(first.session_id)},
                                reason, away);
    }
  };
  step->parts = [&] {
    std::vector<Preemption::Part> parts;
    for (size_t i = 0; i < turns.size(); ++i) {
      parts.push_back({turns[i].key, members[i].used});
    }
    return parts;
  };
  CarryOut(turns, absl::MakeSpan(members), PlaceOf(*members.front().run));
  step->parts = nullptr;
  step->gave_way = nullptr;
  // What was done for all of them is the leader's.
  absl::Duration rest = preemption_.OwnTime() - step->start;
  preemption_.Settle(step->start + rest);
  for (const LockstepMember& member : members) rest -= member.used;
  members.front().used += rest;
  for (size_t i = 0; i < turns.size(); ++i) {
    Charge(turns[i], turns[i].session->phase(), members[i].used);
    EndTurn(turns[i], members[i].used);
  }
  return true;
}

void WorkerCore::CarryOut(absl::Span<const Turn> turns,
                          absl::Span<LockstepMember> members,
                          CompanyForecast::Place place) {
  SharedProductsLog shared(turns.size());
  const absl::Duration products = CarryOutInLockstep(
      members, device_->operators(),
      {.now = [this] { return preemption_.OwnTime(); },
       .done =
           [&](size_t member) {
             Session& session = *turns[member].session;
             if (shared.count(member) > 0) {
               std::vector<std::shared_ptr<const RunPeer>> with;
               for (const size_t other : shared.With(member)) {
                 with.push_back(turns[other].session->peer());
               }
               session.NoteCompany(shared.count(member), with);
             }
             session.EndRun(members[member].used);
             session.StepReadsAndFrees(kMessagesBehindRun);
           },
       .joined =
           [&](absl::Span<const size_t> joined, int64_t rows) {
             shared.Add(joined);
             std::set<absl::string_view> tenants;
             for (const size_t member : joined) {
               tenants.insert(turns[member].session->tenant());
             }
             metrics_.batch_runs.Observe(joined.size());
             metrics_.batch_rows.Observe(static_cast<uint64_t>(rows));
             metrics_.batch_tenants.Observe(tenants.size());
           }});
  MutexLock lock(&queue_mu_);
  forecast_.NoteWorth(place, products);
}

}  // namespace djinn::worker
