#include "gpu_worker/registry/synchronizer.h"

#include <algorithm>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "common/log/log.h"
#include "gpu_worker/registry/report_changes.h"

namespace djinn::worker {
namespace {

// How long a change waits for others before it is reported.
constexpr absl::Duration kDebounce = absl::Milliseconds(20);
// The backoff limit once a coordinator was elected: another one may lead within
// seconds of a failure, and should find its workers.
constexpr absl::Duration kMaxElectedBackoff = absl::Milliseconds(300);

}  // namespace

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
  changed_at_ = std::min(changed_at_, absl::Now());
  changed_.SignalAll();
}

void Synchronizer::Stop() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    // Cancels under the lock, so that the stream is not destroyed meanwhile.
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
      ended_by_coordinator_ = false;
      applied_revision_ = 0;
      changed_at_ = absl::InfiniteFuture();
    }
    const bool joined = Serve(stream.get());
    {
      MutexLock lock(&mu_);
      stream_ = nullptr;
      if (stopping_) return;
    }
    const absl::Status status = stream->Finish();
    const bool at_once = stream->NextAtOnce();
    stream.reset();
    // Logs once per kind of error, not once per attempt.
    if (!status.ok() && (joined || status.ToString() != last_complaint)) {
      log::Warning("coordinator lost", {{"status", status}});
      last_complaint = status.ToString();
    }
    if (joined) backoff = options_.min_backoff;
    if (at_once) continue;
    const double jitter =
        0.5 + 0.5 * static_cast<double>(random_->NonZero64() % 1024) / 1024;
    Backoff(backoff * jitter);
    backoff = std::min(backoff * 1.6, term_.known() > 0 ? kMaxElectedBackoff
                                                        : options_.max_backoff);
  }
}

void Synchronizer::Backoff(absl::Duration delay) {
  const absl::Time until = absl::Now() + delay;
  MutexLock lock(&mu_);
  while (!stopping_ && absl::Now() < until) {
    changed_.WaitWithTimeout(&mu_, until - absl::Now());
  }
}

Synchronizer::Next Synchronizer::WaitForNext(absl::Time due,
                                             absl::Time earliest,
                                             uint64_t acknowledged) {
  MutexLock lock(&mu_);
  for (;;) {
    if (!reading_ || stopping_) return Next::kEnd;
    const absl::Time now = absl::Now();
    const absl::Time report =
        std::max(earliest, std::min(due, changed_at_ + kDebounce));
    if (now >= report) {
      changed_at_ = absl::InfiniteFuture();
      return Next::kReport;
    }
    // The coordinator tells a client of its lease only after this
    // acknowledgement.
    if (applied_revision_ != acknowledged) return Next::kAcknowledge;
    changed_.WaitWithTimeout(&mu_, report - now);
  }
}

bool Synchronizer::Serve(RegistryStream* stream) {
  std::thread reader;
  try {
    reader = std::thread([this, stream] { ReadAll(stream); });
  } catch (const std::system_error& error) {
    log::Error("no thread to hear the coordinator with; dialing again",
               {{"error", error.what()}});
    stream->Cancel();
    Backoff(options_.min_backoff);
    MutexLock lock(&mu_);
    reading_ = false;
    return false;
  }
  ReportChanges changes;
  v1::WorkerState identity;
  uint64_t acknowledged = 0;
  absl::Time due = absl::InfinitePast();
  absl::Time earliest = absl::InfinitePast();
  for (;;) {
    const Next next = WaitForNext(due, earliest, acknowledged);
    if (next == Next::kEnd) break;
    {
      MutexLock lock(&mu_);
      acknowledged = applied_revision_;
    }
    if (next == Next::kAcknowledge) {
      identity.set_applied_revision(acknowledged);
      if (options_.describe_acknowledgement) {
        options_.describe_acknowledgement(&identity);
      }
      if (!stream->Write(identity)) break;
      continue;
    }
    const absl::Time begin = absl::Now();
    v1::WorkerState report = snapshot_();
    changes.Reduce(&report);
    report.set_applied_revision(acknowledged);
    report.set_known_term(term_.known());
    identity.set_worker_id(report.worker_id());
    identity.set_incarnation(report.incarnation());
    identity.set_acknowledgement(true);
    if (!stream->Write(report)) break;
    const absl::Time end = absl::Now();
    due = end + options_.heartbeat_interval;
    // Keeps reports to a tenth of the time, however large they are.
    earliest = std::min(due, end + 10 * (end - begin));
  }
  {
    // After the coordinator has ended the stream, Finish() returns its reason.
    MutexLock lock(&mu_);
    if (ended_by_coordinator_) stream = nullptr;
  }
  if (stream != nullptr) stream->Cancel();
  reader.join();
  MutexLock lock(&mu_);
  return applied_revision_ > 0;
}

void Synchronizer::ReadAll(RegistryStream* stream) {
  v1::DesiredState desired;
  uint64_t last = 0;
  bool ended = false;
  for (;;) {
    ended = !stream->Read(&desired);
    if (ended) break;
    if (last > 0 && desired.revision() != last + 1) {
      log::Error("a message of the coordinator is missing; dialing again",
                 {{"revision", desired.revision()}, {"last", last}});
      break;
    }
    if (const absl::Status stale = term_.Note(desired.term()); !stale.ok()) {
      log::Warning("command of a superseded coordinator ignored",
                   {{"error", stale}});
      break;
    }
    last = desired.revision();
    apply_(desired);
    MutexLock lock(&mu_);
    if (applied_revision_ == 0) log::Info("coordinator joined");
    applied_revision_ = last;
    changed_.SignalAll();
  }
  MutexLock lock(&mu_);
  ended_by_coordinator_ = ended;
  reading_ = false;
  changed_.SignalAll();
}

}  // namespace djinn::worker
