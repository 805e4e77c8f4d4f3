#include "gpu_worker/executor/turn_queue.h"

#include <algorithm>
#include <utility>

#include "common/base/proto_duration.h"
#include "common/log/log.h"

namespace djinn::worker {
namespace {

using scheduler::BatchForecast;
using scheduler::FairQueue;

using Pace = FairQueue::Pace;

// A run of no known phase is short or long by how long the last ones of its
// graph took. A short one that waits for a long one would be late by ten times
// its own length and more.
constexpr absl::Duration kShortRun = absl::Milliseconds(2);
constexpr absl::Duration kLongRun = absl::Milliseconds(20);

// Returns whether runs of this phase are long or short.
Pace PaceOf(v1::Phase phase, const TurnQueue::Options& options) {
  if (!options.tokens_first) return Pace::kUnknown;
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

// Returns whether the session's next message is a long or a short run.
Pace PaceOf(const NextMessage& next, const TurnQueue::Options& options) {
  const Pace by_phase = PaceOf(next.phase(), options);
  const absl::Duration expected = next.expected();
  if (by_phase != Pace::kUnknown || expected == absl::ZeroDuration() ||
      !options.tokens_first) {
    return by_phase;
  }
  if (expected <= kShortRun) return Pace::kShort;
  return expected >= kLongRun ? Pace::kLong : Pace::kUnknown;
}

FairQueue::Work WorkOf(const Session& session,
                       const TurnQueue::Options& options) {
  const NextMessage& next = session.next();
  return {next.deadline(), next.expected(), PaceOf(next, options)};
}

// Returns whether sessions of the two tenants may share a batch.
bool MayShare(const absl::flat_hash_set<std::string>& batching,
              const std::string& a, const std::string& b) {
  return a == b || (batching.contains(a) && batching.contains(b));
}

}  // namespace

void TurnQueue::Join(uint64_t key, std::shared_ptr<Session> session,
                     std::shared_ptr<LeaseMeter> meter, double weight) {
  MutexLock lock(&mu_);
  queue_.Join(key, session->who().tenant, weight, session->status().priority());
  members_.emplace(key, Member{std::move(session), std::move(meter), {}});
}

void TurnQueue::Leave(uint64_t key) {
  MutexLock lock(&mu_);
  queue_.Leave(key);
  forecast_.Forget(key);
  members_.erase(key);
  // A turn may wait in its batching window for this session.
  runnable_.Signal();
}

void TurnQueue::SetStream(uint64_t key, std::weak_ptr<WorkerStream> stream) {
  MutexLock lock(&mu_);
  const auto found = members_.find(key);
  if (found != members_.end()) found->second.stream = std::move(stream);
}

void TurnQueue::Update(uint64_t key, double weight) {
  MutexLock lock(&mu_);
  const auto found = members_.find(key);
  if (found == members_.end()) return;
  const Session& session = *found->second.session;
  queue_.SetWeight(session.who().tenant, weight);
  queue_.SetPriority(key, session.status().priority());
}

void TurnQueue::UpdatePhase(uint64_t key) {
  MutexLock lock(&mu_);
  const auto found = members_.find(key);
  if (found == members_.end()) return;
  const Session& session = *found->second.session;
  queue_.SetPriority(key, session.status().priority());
  queue_.SetPace(key, PaceOf(session.status().phase, options_));
  // A session that waits may now have a higher priority than the one in
  // service.
  if (!queue_.empty()) preemption_.NoteArrival();
}

void TurnQueue::MakeRunnable(uint64_t key) {
  const absl::Duration now = clock_.Monotonic();
  std::shared_ptr<WorkerStream> led;
  bool own = false;
  {
    MutexLock lock(&mu_);
    const auto found = members_.find(key);
    if (found == members_.end()) return;
    found->second.waits_since = std::min(found->second.waits_since, now);
    const bool waits =
        queue_.MakeRunnable(key, WorkOf(*found->second.session, options_));
    if (waits && queue_.in_service()) preemption_.NoteArrival();
    if (waits) NoteWaiting(key, now);
    led = idle_.stream();
    own = idle_.in_this_thread();
  }
  // Signals without the lock, which the thread that wakes takes first.
  if (led == nullptr) {
    runnable_.Signal();
  } else if (!own) {
    led->Wake();
  }
}

void TurnQueue::SetBatchingTenants(absl::flat_hash_set<std::string> tenants) {
  MutexLock lock(&mu_);
  batching_tenants_ = std::move(tenants);
}

void TurnQueue::Stop() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    runnable_.SignalAll();
  }
  if (options_.gate != nullptr) options_.gate->Cancel();
}

std::optional<v1::MessageWait> TurnQueue::DescribeWait(
    uint64_t key, v1::MessageWait wait, absl::Duration now) const {
  MutexLock lock(&mu_);
  const auto found = members_.find(key);
  if (found == members_.end() ||
      found->second.waits_since == absl::InfiniteDuration()) {
    return std::nullopt;
  }
  const bool batch =
      batching_since_.has_value() && found->second.session->next().fast_run();
  absl::Duration since = found->second.waits_since;
  if (batch) since = std::max(since, *batching_since_);
  *wait.mutable_waited() =
      ToProtoDuration(std::max(now - since, absl::ZeroDuration()));
  if (batch) {
    wait.set_what(v1::MessageWait::BATCH);
    return wait;
  }
  const absl::Duration ahead = scheduler::Ahead(queue_, key, InService(), now);
  if (ahead > absl::ZeroDuration()) {
    *wait.mutable_ahead() = ToProtoDuration(ahead);
  }
  const auto served =
      members_.find(preempting_.empty() ? serving_ : preempting_.back().key);
  if (served != members_.end()) {
    const Session& session = *served->second.session;
    wait.set_served_tenant(session.who().tenant);
    wait.set_served_session_id(log::ShortId(session.who().session_id));
  }
  return wait;
}

std::optional<v1::RunPreemption> TurnQueue::PreemptorOf(
    uint64_t key, absl::Duration now) const {
  MutexLock lock(&mu_);
  uint64_t outer = serving_;
  for (const Preempting& preemptor : preempting_) {
    if (std::exchange(outer, preemptor.key) != key) continue;
    v1::RunPreemption preemption;
    const auto found = members_.find(preemptor.key);
    if (found != members_.end()) {
      const Session& session = *found->second.session;
      preemption.set_tenant(session.who().tenant);
      preemption.set_session_id(session.who().peer->session_id);
    }
    preemption.set_reason(preemptor.reason);
    preemption.set_count(1);
    *preemption.mutable_time() =
        ToProtoDuration(std::max(now - preemptor.since, absl::ZeroDuration()));
    return preemption;
  }
  return std::nullopt;
}

std::map<std::string, absl::Duration> TurnQueue::OldestWaits(
    TenantLabels* labels) const {
  const absl::Duration now = clock_.Monotonic();
  std::map<std::string, absl::Duration> longest;
  MutexLock lock(&mu_);
  for (const auto& [key, member] : members_) {
    absl::Duration& age = longest[labels->For(member.session->who().tenant)];
    age = std::max(age, now - std::min(member.waits_since, now));
  }
  return longest;
}

std::optional<Turn> TurnQueue::TakeTurn(bool wait) {
  MutexLock lock(&mu_);
  serving_ = 0;
  if (!Ready()) {
    LeaveGate();
  } else if (in_gate_) {
    options_.gate->Yield();
  }
  do {
    if (!wait && !Ready()) {
      LeaveGate();
      return std::nullopt;
    }
    AwaitRunnable();
    AwaitBatch();
    if (stopping_) {
      LeaveGate();
      time_.EndWork(clock_.Monotonic());
      return std::nullopt;
    }
    // The last session may have left meanwhile.
  } while (queue_.empty() || !EnterGate());
  if (std::optional<Turn> refusal = TakeRefusal()) return refusal;
  const absl::Duration now = clock_.Monotonic();
  const uint64_t key = queue_.Take();
  const Session& session = *members_.at(key).session;
  // Sessions that were already waiting will not call Look() again. This turn
  // may be long, so it asks for the preemption check on their behalf.
  if (!queue_.empty() &&
      PaceOf(session.next().phase(), options_) == FairQueue::Pace::kLong) {
    preemption_.NoteArrival();
  }
  idle_.NoteTurn(key);
  serving_ = key;
  served_by_ = now + session.next().expected();
  return Give(TurnOf(key), now);
}

bool TurnQueue::EnterGate() {
  if (options_.gate == nullptr) return true;
  in_gate_ = true;
  if (options_.gate->TryEnter()) return true;
  // The wait belongs to no turn of this process.
  time_.EndWork(clock_.Monotonic());
  mu_.Unlock();
  options_.gate->Enter();
  mu_.Lock();
  time_.BeginWork(clock_.Monotonic());
  if (!queue_.empty() && !stopping_) return true;
  LeaveGate();
  return false;
}

void TurnQueue::LeaveGate() {
  if (!in_gate_) return;
  in_gate_ = false;
  options_.gate->Leave();
}

void TurnQueue::AwaitRunnable() {
  if (Ready()) return;
  LeaveGate();
  time_.EndWork(clock_.Monotonic());
  while (!Ready()) {
    const auto alone = members_.find(idle_.alone());
    std::shared_ptr<WorkerStream> stream;
    if (alone != members_.end()) stream = alone->second.stream.lock();
    if (stream != nullptr) {
      const auto ready = [this]()
                             ABSL_NO_THREAD_SAFETY_ANALYSIS { return Ready(); };
      idle_.Receive(std::move(stream), ready, &mu_);
      if (Ready()) break;
    }
    runnable_.Wait(&mu_);
  }
  time_.BeginWork(clock_.Monotonic());
}

void TurnQueue::AwaitBatch() {
  if (options_.max_batch_runs <= 1) return;
  const absl::Duration since = clock_.Monotonic();
  absl::Duration now = since;
  bool waited = false;
  while (!stopping_ && !queue_.empty() && refusals_.empty()) {
    const absl::Duration until = BatchUntil(since, now);
    if (until <= now) break;
    if (!waited) {
      LeaveGate();
      time_.EndWork(now);
      served_.AwaitBatch(now);
    }
    waited = true;
    batching_since_ = since;
    clock_.Wait(&runnable_, &mu_, until - now);
    now = clock_.Monotonic();
  }
  if (!waited) return;
  batching_since_.reset();
  served_.EndAwaiting(now);
  time_.BeginWork(now);
  metrics_.batch_waits.Observe(now - since);
}

absl::Duration TurnQueue::BatchUntil(absl::Duration since, absl::Duration now) {
  const uint64_t next = queue_.Next();
  const std::optional<Place> place = forecast_.NextOf(next);
  if (!place.has_value()) return since;
  const std::string& tenant = members_.at(next).session->who().tenant;
  // A run with a deadline does not wait for a batch.
  const auto may_wait = [&](uint64_t key) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const Session& session = *members_.at(key).session;
    return session.next().fast_run() && forecast_.NextOf(key) == place &&
           session.next().deadline() == absl::InfiniteDuration() &&
           MayShare(batching_tenants_, tenant, session.who().tenant);
  };
  const FairQueue::Batch waiting =
      queue_.FindBatch(next, may_wait, options_.max_batch_runs);
  if (waiting.contested || waiting.members.size() == options_.max_batch_runs) {
    return since;
  }
  const int priority = queue_.priority(next);
  return forecast_.WaitUntil(
      *place, since, now, [&](uint64_t key) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        const Member& member = members_.at(key);
        return member.waits_since == absl::InfiniteDuration() &&
               queue_.priority(key) >= priority && member.meter->HasCredit() &&
               MayShare(batching_tenants_, tenant,
                        member.session->who().tenant);
      });
}

bool TurnQueue::MayBatch(const std::string& tenant) const {
  MutexLock lock(&mu_);
  return queue_.session_count(tenant) > 1 ||
         (batching_tenants_.size() > 1 && batching_tenants_.contains(tenant));
}

std::optional<absl::Duration> TurnQueue::LateBehind(uint64_t key,
                                                    absl::Duration now) const {
  const auto found = members_.find(key);
  if (found == members_.end()) return std::nullopt;
  return scheduler::LateBehind(
      queue_, key, WorkOf(*found->second.session, options_), InService(), now);
}

std::optional<scheduler::InService> TurnQueue::InService() const {
  if (!members_.contains(serving_)) return std::nullopt;
  return scheduler::InService{serving_, served_by_};
}

void TurnQueue::NoteWaiting(uint64_t key, absl::Duration now) {
  if (LateBehind(key, now).has_value()) {
    refusals_.push_back(key);
    return;
  }
  const auto found = members_.find(key);
  if (found == members_.end() ||
      found->second.session->next().expected() == absl::ZeroDuration()) {
    return;
  }
  found->second.expected_start =
      now + scheduler::Ahead(queue_, key, InService(), now);
}

std::optional<Turn> TurnQueue::TakeRefusal() {
  while (!refusals_.empty()) {
    const uint64_t key = refusals_.front();
    refusals_.pop_front();
    const absl::Duration now = clock_.Monotonic();
    const std::optional<absl::Duration> ahead = LateBehind(key, now);
    // A refusal delays no other turn.
    if (!ahead.has_value() || !queue_.TakeBeside(key, /*contested=*/true)) {
      continue;
    }
    Turn turn = TurnOf(key);
    turn.refused_behind = ahead;
    return Give(std::move(turn), now);
  }
  return std::nullopt;
}

Turn TurnQueue::TurnOf(uint64_t key) {
  Member& member = members_.at(key);
  if (member.expected_start.has_value()) {
    metrics_.start_prediction_error.Observe(absl::AbsDuration(
        clock_.Monotonic() - *std::exchange(member.expected_start, {})));
  }
  return {key, member.session, member.meter,
          std::exchange(member.waits_since, absl::InfiniteDuration())};
}

Turn TurnQueue::Give(Turn turn, absl::Duration now) {
  turn.given = now;
  served_.Begin(turn.session->who().account->served(), now);
  return turn;
}

FairQueue::Preemption TurnQueue::TakePreempting(
    absl::Span<const Preemption::Part> parts, absl::Duration end, Turn* turn) {
  std::vector<uint64_t> keys;
  MutexLock lock(&mu_);
  for (const Preemption::Part& part : parts) {
    queue_.Charge(part.key, part.used);
    keys.push_back(part.key);
  }
  const FairQueue::Preemption asked = queue_.MayPreempt(keys, end);
  if (FairQueue::Yields(asked)) {
    const absl::Duration now = clock_.Monotonic();
    *turn = Give(TurnOf(queue_.TakePreempting(asked)), now);
    preempting_.push_back({turn->key, now, Preemption::NameOf(asked)});
    idle_.NotePreemption();
  }
  return asked;
}

void TurnQueue::EndPreempting() {
  MutexLock lock(&mu_);
  preempting_.pop_back();
}

void TurnQueue::EndTurn(const Turn& turn, absl::Duration used, bool more) {
  const absl::Duration now = clock_.Monotonic();
  MutexLock lock(&mu_);
  std::optional<FairQueue::Work> next;
  if (more) next.emplace(WorkOf(*turn.session, options_));
  const auto found = members_.find(turn.key);
  if (more && found != members_.end()) {
    found->second.waits_since = std::min(found->second.waits_since, now);
  }
  queue_.Done(turn.key, used, next);
  if (serving_ == turn.key) serving_ = 0;
  if (more && found != members_.end()) NoteWaiting(turn.key, now);
  forecast_.Ended(turn.key, now);
}

void TurnQueue::EndUnused(const Turn& turn) {
  // A message or new credit makes the session runnable again.
  MutexLock lock(&mu_);
  queue_.Done(turn.key, absl::ZeroDuration(), std::nullopt);
}

std::vector<TurnQueue::Candidate> TurnQueue::FindBatch(const Turn& leader,
                                                       bool* contested) const {
  std::vector<Candidate> batch;
  MutexLock lock(&mu_);
  if (queue_.empty()) return batch;
  const std::string& tenant = leader.session->who().tenant;
  const FairQueue::Batch found = queue_.FindBatch(
      leader.key,
      [&](uint64_t key) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        const Session& session = *members_.at(key).session;
        return session.next().fast_run() &&
               MayShare(batching_tenants_, tenant, session.who().tenant);
      },
      options_.max_batch_runs - 1);
  *contested = found.contested;
  for (const auto& [key, ahead] : found.members) {
    const Member& member = members_.at(key);
    batch.push_back({{key, member.session, member.meter}, ahead});
  }
  return batch;
}

void TurnQueue::JoinBatch(absl::Span<Turn> turns,
                          absl::Span<const Place> places, bool contested,
                          absl::Duration now) {
  MutexLock lock(&mu_);
  for (size_t i = 0; i < turns.size(); ++i) {
    // The session may have left the queue meanwhile.
    if (i > 0 && queue_.TakeBeside(turns[i].key, contested)) {
      turns[i].waits_since = TurnOf(turns[i].key).waits_since;
    }
    if (!members_.contains(turns[i].key)) continue;
    forecast_.Came(turns[i].key, places[i],
                   std::min(turns[i].waits_since, now));
  }
}

void TurnQueue::NoteBatch(Place place, absl::Duration took) {
  MutexLock lock(&mu_);
  forecast_.NoteWorth(place, took);
}

}  // namespace djinn::worker
