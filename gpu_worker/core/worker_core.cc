#include "gpu_worker/core/worker_core.h"

#include <algorithm>

#include "common/error.h"
#include "gpu_worker/streams/connection.h"
#include "gpu_worker/leases/lease_turn.h"

namespace djinn::worker {
namespace {

// For so long at least the device keeps memory that nobody needs.
constexpr absl::Duration kTidyingInterval = absl::Seconds(10);

}  // namespace

absl::Status WorkerCore::Draining() {
  return MakeError(absl::StatusCode::kUnavailable, "DRAINING",
                   "the worker stops");
}

WorkerCore::WorkerCore(WorkerCoreOptions options, Device* device, Clock* clock,
                       RandomSource* random)
    : options_(std::move(options)),
      device_(device),
      clock_(clock),
      random_(random),
      incarnation_(random->NonZero64()),
      ledger_(device->memory_bytes()),
      memory_(device, &ledger_),
      spare_memory_(&ledger_),
      graphs_(options_.graph_cache),
      contents_(options_.max_contents, clock),
      proofs_(device, random, options_.max_challenges),
      offers_({.offer_timeout = options_.offer_timeout,
               .claim_timeout = options_.transfer_idle_timeout},
              clock),
      pulls_(options_.worker_id, incarnation_, &offers_),
      links_(clock),
      uploads_(clock),
      leases_(options_.worker_id, incarnation_, &metrics_.traffic),
      preemption_(clock, &metrics_.tenants,
                  {.take =
                       [this](const Preemption::Step& step, absl::Duration used,
                              absl::Duration end) {
                         return TakePreempting(step, used, end);
                       },
                   .serve = [this] { return ServePreempting(); }}) {
  device_->SetSpareMemory(&spare_memory_);
  memory_.SetReclaimer([this](uint64_t bytes) {
    const uint64_t spare = device_->ReleaseSpareMemory(bytes);
    if (spare < bytes) contents_.EvictIdle(bytes - spare);
    NotifyChange();
  });
  environment_.worker_id = options_.worker_id;
  environment_.clock = clock_;
  environment_.random = random_;
  environment_.memory = &memory_;
  environment_.contents = &contents_;
  environment_.proofs = &proofs_;
  environment_.graphs = &graphs_;
  environment_.offers = &offers_;
  environment_.pulls = &pulls_;
  environment_.links = &links_;
  environment_.uploads = &uploads_;
  environment_.counters = &counters_;
  environment_.edge = &preemption_;
  environment_.served = &served_;
  environment_.transfer_idle_timeout = options_.transfer_idle_timeout;
  environment_.contents_changed = [this] { NotifyChange(); };
  environment_.refused = [this](const std::string& tenant,
                                const absl::Status& why) {
    metrics_.rejections.Add({metrics_.tenants.For(tenant), ErrorReason(why)});
  };
  proofs_.Start();
  if (options_.store != nullptr) {
    options_.store->Bind(device_, &contents_);
    options_.store->Start();
    environment_.store = options_.store.get();
  }
  executor_ = std::thread([this] { RunExecutor(); });
  housekeeper_ = std::thread([this] { RunHousekeeping(); });
}

WorkerCore::~WorkerCore() {
  Shutdown();
  if (options_.store != nullptr) options_.store->Stop();
  device_->SetSpareMemory(nullptr);
}

void WorkerCore::SetChangeListener(std::function<void()> listener) {
  MutexLock lock(&listener_mu_);
  change_listener_ = std::move(listener);
}

void WorkerCore::NotifyChange() {
  std::function<void()> listener;
  {
    MutexLock lock(&listener_mu_);
    listener = change_listener_;
  }
  if (listener) listener();
}

void WorkerCore::MakeRunnable(uint64_t queue_key) {
  const absl::Duration now = clock_->Monotonic();
  std::shared_ptr<Connection> attended;
  {
    MutexLock lock(&queue_mu_);
    const auto found = queued_.find(queue_key);
    if (found == queued_.end()) return;
    found->second.waits_since = std::min(found->second.waits_since, now);
    const bool waits =
        queue_.MakeRunnable(queue_key, WorkOf(*found->second.session));
    if (waits && queue_.in_service()) preemption_.Look();
    if (waits) NoteWaitingRun(queue_key, now);
    attended = attended_;
  }
  // Without the lock, which whoever wakes takes first.
  if (attended == nullptr) {
    runnable_.Signal();
  } else if (std::this_thread::get_id() != executor_.get_id()) {
    attended->stream()->Nudge();
  }
}

void WorkerCore::NotePhase(uint64_t queue_key, v1::Phase phase) {
  MutexLock lock(&queue_mu_);
  const auto found = queued_.find(queue_key);
  if (found == queued_.end()) return;
  queue_.SetPriority(queue_key, PriorityOf(found->second.declared, phase));
  queue_.SetPace(queue_key, PaceOf(phase));
  // Who waits may have become more urgent than it.
  if (!queue_.empty()) preemption_.Look();
}

void WorkerCore::RunHousekeeping() {
  for (;;) {
    while (CloseAndReap()) {
    }
    ExpireAndCheck();
    CheckDevice();
    TidyDevice();
    MutexLock lock(&mu_);
    if (stopping_ && connections_.empty()) return;
    if (to_close_.empty()) {
      housekeeping_.WaitWithTimeout(&mu_, options_.housekeeping_interval);
    }
  }
}

void WorkerCore::TidyDevice() {
  const absl::Duration now = clock_->Monotonic();
  if (now < next_tidying_) return;
  next_tidying_ = now + kTidyingInterval;
  device_->ReleaseUnusedMemory();
}

void WorkerCore::CheckDevice() {
  if (told_broken_) return;
  const absl::Status health = device_->Health();
  if (health.ok()) return;
  told_broken_ = true;
  if (options_.device_broken) options_.device_broken(health);
}

bool WorkerCore::CloseAndReap() {
  std::vector<std::pair<std::shared_ptr<Connection>, absl::Status>> closing;
  std::vector<std::shared_ptr<Connection>> dead;
  {
    MutexLock lock(&mu_);
    for (auto& [key, status] : to_close_) {
      const auto found = connections_.find(key);
      if (found != connections_.end()) {
        closing.emplace_back(found->second, std::move(status));
      }
    }
    to_close_.clear();
    std::vector<uint64_t> later;
    for (const uint64_t key : to_reap_) {
      const auto found = connections_.find(key);
      if (found->second->starting) {
        later.push_back(key);
        continue;
      }
      dead.push_back(std::move(found->second));
      connections_.erase(found);
    }
    to_reap_ = std::move(later);
  }
  if (closing.empty() && dead.empty()) return false;
  for (auto& [connection, status] : closing) {
    connection->stream()->Close(std::move(status));
  }
  closing.clear();
  for (std::shared_ptr<Connection>& connection : dead) {
    connection->Detach();
    // A stream is destroyed here, or by the executor that attended it: never in
    // its own callback.
    connection.reset();
  }
  return true;
}

void WorkerCore::Shutdown() {
  std::vector<std::shared_ptr<Session>> ended;
  {
    MutexLock lock(&mu_);
    if (stopping_) return;
    draining_ = true;
    while (!sessions_.empty()) {
      const std::string lease_id = sessions_.begin()->first;
      ended.push_back(TakeSessionLocked(lease_id, Draining()));
    }
    for (const auto& [key, connection] : connections_) {
      RequestCloseLocked(key, Draining());
    }
    stopping_ = true;
    housekeeping_.Signal();
  }
  for (const std::shared_ptr<Session>& session : ended) session->Drop();
  offers_.Shutdown(Draining());
  pulls_.Shutdown();
  housekeeper_.join();
  {
    MutexLock lock(&queue_mu_);
    executor_stopping_ = true;
    runnable_.SignalAll();
  }
  // It attends no stream: all are closed.
  executor_.join();
}

}  // namespace djinn::worker
