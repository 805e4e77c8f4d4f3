// Runs that are carried out beside those of other sessions.
#include <utility>

#include "common/clock.h"
#include "gpu_worker/cache/graph_cache.h"
#include "gpu_worker/session/session.h"

namespace djinn::worker {
namespace {

// Storages that one message may free in a turn that others share.
constexpr size_t kFreedBeside = 64;

}  // namespace

void Session::StepReadsAndFrees(int most) {
  for (int i = 0; i < most; ++i) {
    {
      MutexLock lock(&mu_);
      if (!inbox_.read_next() && !inbox_.free_next()) return;
      if (inbox_.freed_next() > kFreedBeside) return;
    }
    if (!HasWork()) return;
    StepAt(std::nullopt);
  }
}

void Session::PutBack(Inbox::Item item) {
  MutexLock lock(&mu_);
  if (dropped_ || cancelling_) {
    --queued_runs_;
    runs_.Finish({.state = v1::RunRecord::CANCELLED},
                 environment_.clock->Monotonic());
    return;
  }
  runs_.PutBack();
  inbox_.PutBack(std::move(item));
  message_bytes_ = 0;
  NoteNext();
}

bool Session::Suits(
    absl::FunctionRef<bool(absl::Span<const OngoingRun::Product>)> suits,
    bool own_turn, Begun* begun) {
  const v1::Run& run = begun->item.message.run();
  const uint64_t sequence = begun->item.message.sequence();
  if (looked_at_.sequence == sequence && !suits(looked_at_.products)) {
    return false;
  }
  const StructureTable::Structure* const structure =
      structures_.Find(run.structure_id());
  // What is refused, missing or wrong is for Step() to deal with.
  if (structure == nullptr || structure->refused != nullptr) return false;
  if (own_turn) {
    absl::StatusOr<std::shared_ptr<const Plan>> plan =
        structures_.PlanOf(*structure, run);
    if (!plan.ok()) return false;
    begun->plan = *std::move(plan);
  } else {
    begun->plan =
        environment_.graphs->Use(structure->fingerprint, tenant_, run.size());
  }
  message_deadline_ = begun->item.deadline;
  if (begun->plan == nullptr || !begun->plan->refusal().ok() ||
      !CheckDeadline(run.structure_id()).ok()) {
    return false;
  }
  if (begun->plan->program().products().empty()) {
    looked_at_ = {sequence, {}};
    return false;
  }
  if (!BindRun(run, begun->plan.get(), structure->remembered, storages_, &run_)
           .ok() ||
      !CheckRun(*begun->plan, run_, storages_).ok()) {
    return false;
  }
  looked_at_ = {sequence, ProductsOf(*begun->plan, run_)};
  return suits(looked_at_.products) && HasRoom(*begun->plan);
}

bool Session::MayBeginRunLocked() const {
  return HasWorkLocked() && inbox_.fast_run_next() && !upload_.has_value() &&
         !fetch_.has_value() && !need_.has_value();
}

OngoingRun* Session::BeginRun(
    absl::FunctionRef<bool(absl::Span<const OngoingRun::Product>)> suits,
    bool own_turn) {
  if (outbox_.Full()) return nullptr;
  bool frees;
  {
    MutexLock lock(&mu_);
    if (!MayBeginRunLocked()) return nullptr;
    frees = inbox_.free_next();
    // In another session's turn, which pays for it.
    if (!own_turn && inbox_.freed_next() > kFreedBeside) return nullptr;
  }
  if (frees) StepAt(std::nullopt);
  auto begun = std::make_unique<Begun>();
  {
    MutexLock lock(&mu_);
    if (!MayBeginRunLocked() || inbox_.free_next()) return nullptr;
    running_ = true;
    begun->item = inbox_.Take();
    NoteNext();
  }
  message_bytes_ = begun->item.bytes;
  // Profiles and offers need a look around every message.
  const bool alone = leaving_ || profile_ != nullptr || offers_.pins();
  if (alone || !Suits(suits, own_turn, begun.get())) {
    PutBack(std::move(begun->item));
    EndStep();
    return nullptr;
  }
  const v1::Ordered& message = begun->item.message;
  message_counts_ = true;
  errors_.set_lane(message.lane());
  StructureTable::Structure* const structure =
      structures_.Find(message.run().structure_id());
  const absl::StatusOr<const Lifetimes*> lifetimes =
      structures_.Remember(*begun->plan, run_, structure);
  if (!lifetimes.ok()) {
    --queued_runs_;
    EndStep();
    Fail(lifetimes.status());
    return nullptr;
  }
  if (!message.run().has_repeat()) {
    begun->plan->SetContentBytes(BoundContentBytes());
  }
  const v1::Phase phase = begun->plan->KindTo(tenant_).phase;
  NotePhaseOf(message.run().structure_id(), phase, structure);
  NotePhase(phase);
  begun->context = ContextOf(message.sequence());
  begun->run = MakeOngoingRun(*begun->plan, run_, **lifetimes, begun->context);
  begun->run->Begin();
  begun_ = std::move(begun);
  return begun_->run.get();
}

void Session::EndRun(absl::Duration used) {
  const v1::Ordered& message = begun_->item.message;
  v1::ControlResponse response;
  begun_->run->Finish(response.mutable_metadata());
  const absl::Duration now = environment_.clock->Monotonic();
  NoteRunOver(response.metadata(), begun_->item.arrived, now);
  environment_.counters->recomputed_nodes += message.run().recomputed_nodes();
  const RootError failure = errors_.oldest_new();
  NoteRunEnds({.device_time = used, .failure = failure.get()}, now);
  begun_->plan->AddDeviceTime(used);
  message_deadline_ = begun_->item.deadline;
  NoteRunTime(message.run().structure_id(), used);
  // As in HandleRun().
  if (message.run().reply_metadata() && !stopped_) {
    response.mutable_metadata()->set_sequence(message.sequence());
    Reply(std::move(response));
  }
  --queued_runs_;
  ++runs_done_;
  bool cancelled;
  {
    MutexLock lock(&mu_);
    cancelled = cancelling_;
  }
  // It may have been stopped in its middle.
  if (!cancelled) Complete(message.sequence());
  begun_.reset();
  EndStep();
}

}  // namespace djinn::worker
