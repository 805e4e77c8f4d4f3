#include "gpu_worker/executor/preemption.h"

#include <optional>
#include <utility>

namespace djinn::worker {

using Reason = scheduler::FairQueue::Preemption;

const char* Preemption::NameOf(Reason reason) {
  switch (reason) {
    case Reason::kDeadline:
      return "deadline";
    case Reason::kShort:
      return "phase";
    default:
      return "higher_priority";
  }
}

void Preemption::Begin(Step* step) {
  depth_.fetch_add(1, std::memory_order_relaxed);
  marks_.fetch_add(1, std::memory_order_relaxed);
  step->start = settled_;
  step->outer = step_;
  step_ = step;
  next_look_ = absl::ZeroDuration();
}

void Preemption::End(Step* step) {
  depth_.fetch_sub(1, std::memory_order_relaxed);
  marks_.fetch_add(1, std::memory_order_relaxed);
  step_ = step->outer;
  // A session that waits now may preempt the outer turn.
  if (step_ != nullptr) NoteArrival();
}

void Preemption::Yield(absl::Duration expected) {
  Step* const step = step_;
  if (step == nullptr) return;
  marks_.fetch_add(1, std::memory_order_relaxed);
  const absl::Duration began = clock_->Monotonic();
  // A session that could not preempt before may now, because the run has had
  // more time.
  if (!fresh_.exchange(false) && began < next_look_) return;
  const absl::Duration away_before = away_;
  std::optional<Preemptor> first;
  Reason reason = Reason::kNone;
  for (absl::Duration now = began;;) {
    const Rule::Verdict verdict = step->rule.Ask(now - began);
    if (verdict == Rule::Verdict::kGoesOn) break;
    wanted_ = false;
    if (verdict == Rule::Verdict::kNoMore) break;
    const Reason asked =
        calls_.take(*step, OwnTime() - step->start,
                    step->start + (now - OwnTime()) + expected);
    if (asked == Reason::kNone) break;
    if (asked == Reason::kLater) {
      wanted_ = true;
      next_look_ = now + Rule::kLookEvery;
      break;
    }
    settled_ = began - away_before;
    Preemptor preemptor = calls_.serve();
    if (!first.has_value()) {
      first = std::move(preemptor);
      reason = asked;
    }
    // Inner turns yielded as well; all of their time lies between `began` and
    // now.
    away_ = away_before + (settled_ + away_ - began);
    now = clock_->Monotonic();
  }
  if (!first.has_value()) return;
  NoteArrival();
  step->rule.NoteYield();
  const absl::Duration away = away_ - away_before;
  const char* const why = NameOf(reason);
  durations_.Observe(away);
  count_.Add({labels_->For(first->tenant), labels_->For(*step->tenant), why});
  if (step->yielded_for) step->yielded_for(*first, why, away);
  step->yielded->Add(*std::move(first), why, away, clock_->Monotonic());
}

void Preemption::Collect(Exposition* out) const {
  count_.Collect(out);
  out->Histogram("djinn_preemption_duration_seconds",
                 "Time that a preempted turn was suspended.", durations_);
}

}  // namespace djinn::worker
