#include "gpu_worker/registry/synchronizer.h"

#include <algorithm>
#include <utility>

#include "common/log/log.h"

namespace djinn::worker {

Synchronizer::Synchronizer(SynchronizerOptions options,
                           RegistryConnector* connector, RandomSource* random,
                           SnapshotFunction snapshot, ApplyFunction apply)
    : options_(options),
      connector_(connector),
      random_(random),
      snapshot_(std::move(snapshot)),
      apply_(std::move(apply)),
      thread_([this] { Run(); }) {}

Synchronizer::~Synchronizer() { Stop(); }

void Synchronizer::NotifyChange() {
  MutexLock lock(&mu_);
  dirty_ = true;
  changed_.SignalAll();
}

void Synchronizer::Stop() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    // Under the lock, so that the stream is not destroyed meanwhile.
    if (stream_ != nullptr) stream_->Cancel();
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

bool Synchronizer::joined() const {
  MutexLock lock(&mu_);
  return reading_ && applied_revision_ > 0;
}

void Synchronizer::Run() {
  absl::Duration backoff = options_.min_backoff;
  std::string last_complaint;
  for (;;) {
    std::unique_ptr<RegistryStream> stream = connector_->Open();
    {
      MutexLock lock(&mu_);
      if (stopping_) return;
      stream_ = stream.get();
      reading_ = true;
      applied_revision_ = 0;
    }
    const bool joined = Serve(stream.get());
    {
      MutexLock lock(&mu_);
      stream_ = nullptr;
      if (stopping_) return;
    }
    const absl::Status status = stream->Finish();
    stream.reset();
    // Once per kind of trouble, not once per attempt.
    if (joined || status.ToString() != last_complaint) {
      log::Warning("coordinator lost", {{"status", status}});
      last_complaint = status.ToString();
    }
    if (joined) backoff = options_.min_backoff;
    const double jitter =
        0.5 + 0.5 * static_cast<double>(random_->NonZero64() % 1024) / 1024;
    Backoff(backoff * jitter);
    backoff = std::min(backoff * 1.6, options_.max_backoff);
  }
}

void Synchronizer::Backoff(absl::Duration delay) {
  const absl::Time until = absl::Now() + delay;
  MutexLock lock(&mu_);
  while (!stopping_ && absl::Now() < until) {
    changed_.WaitWithTimeout(&mu_, until - absl::Now());
  }
}

bool Synchronizer::Serve(RegistryStream* stream) {
  std::thread reader([this, stream] { ReadAll(stream); });
  for (;;) {
    uint64_t revision;
    {
      MutexLock lock(&mu_);
      if (!reading_ || stopping_) break;
      dirty_ = false;
      revision = applied_revision_;
    }
    const absl::Time begin = absl::Now();
    v1::WorkerState state = snapshot_();
    state.set_applied_revision(revision);
    if (!stream->Write(state)) break;
    // A large state that changes all the time must not keep both sides busy.
    const absl::Duration debounce =
        std::max(options_.debounce, 10 * (absl::Now() - begin));
    const absl::Time heartbeat = absl::Now() + options_.heartbeat_interval;
    MutexLock lock(&mu_);
    while (reading_ && !stopping_ && !dirty_ && absl::Now() < heartbeat) {
      changed_.WaitWithTimeout(&mu_, heartbeat - absl::Now());
    }
    // An acknowledgement does not wait: a client learns its lease after it.
    if (dirty_ && applied_revision_ == revision) {
      const absl::Time settled = absl::Now() + debounce;
      while (reading_ && !stopping_ && applied_revision_ == revision &&
             absl::Now() < settled) {
        changed_.WaitWithTimeout(&mu_, settled - absl::Now());
      }
    }
  }
  stream->Cancel();
  reader.join();
  MutexLock lock(&mu_);
  return applied_revision_ > 0;
}

void Synchronizer::ReadAll(RegistryStream* stream) {
  v1::DesiredState desired;
  while (stream->Read(&desired)) {
    apply_(desired);
    MutexLock lock(&mu_);
    if (applied_revision_ == 0) log::Info("coordinator joined");
    applied_revision_ = desired.revision();
    dirty_ = true;
    changed_.SignalAll();
  }
  MutexLock lock(&mu_);
  reading_ = false;
  changed_.SignalAll();
}

}  // namespace djinn::worker
