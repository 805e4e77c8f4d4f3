#include "common/net/monitoring/readiness.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/time/clock.h"

namespace djinn {

Readiness::Readiness(Checks checks, Listener listener, absl::Duration interval)
    : checks_(std::move(checks)),
      listener_(std::move(listener)),
      interval_(interval),
      thread_([this] { Run(); }) {
  MutexLock lock(&mu_);
  while (done_ < 1) changed_.Wait(&mu_);
}

Readiness::~Readiness() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

std::vector<ReadinessCheck> Readiness::Evaluate() const {
  std::vector<ReadinessCheck> checks = checks_();
  MutexLock lock(&mu_);
  checks.insert(checks.begin(), {"serving", leaving_});
  return checks;
}

void Readiness::Leave(std::string why) {
  MutexLock lock(&mu_);
  leaving_ = std::move(why);
  const uint64_t wanted = ++wanted_;
  changed_.SignalAll();
  while (done_ < wanted) changed_.Wait(&mu_);
}

void Readiness::Collect(Exposition* out) const {
  for (const ReadinessCheck& check : Evaluate()) {
    out->Gauge("djinn_ready", "Whether a condition of readiness holds: 1 or 0.",
               check.failure.empty() ? 1 : 0, {{"check", check.name}});
  }
}

void Readiness::Run() {
  std::optional<bool> known;
  for (;;) {
    uint64_t number;
    {
      MutexLock lock(&mu_);
      if (stopping_) return;
      number = wanted_;
    }
    const std::vector<ReadinessCheck> checks = Evaluate();
    const bool ready = std::all_of(
        checks.begin(), checks.end(),
        [](const ReadinessCheck& check) { return check.failure.empty(); });
    if (known != ready) listener_(ready);
    known = ready;
    MutexLock lock(&mu_);
    done_ = number;
    changed_.SignalAll();
    const absl::Time until = absl::Now() + interval_;
    while (!stopping_ && wanted_ == number && absl::Now() < until) {
      changed_.WaitWithTimeout(&mu_, until - absl::Now());
    }
  }
}

}  // namespace djinn
