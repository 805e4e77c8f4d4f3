#include "gpu_worker/gpus/gpu_supervisor.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"

namespace djinn::worker {

GpuSupervisor::GpuSupervisor(std::vector<std::string> uuids,
                             GpuLauncher* launcher, Clock* clock)
    : launcher_(launcher), clock_(clock) {
  MutexLock lock(&mu_);
  for (std::string& uuid : uuids) {
    children_.emplace_back().uuid = std::move(uuid);
    children_.back().due = clock->Monotonic();
  }
}

void GpuSupervisor::Step() {
  size_t count = 0;
  std::vector<int> signals;
  std::vector<pid_t> pids;
  {
    MutexLock lock(&mu_);
    count = children_.size();
    signals.swap(signals_);
    for (const Child& child : children_) {
      if (child.pid != 0) pids.push_back(child.pid);
    }
  }
  for (const int signal : signals) {
    for (const pid_t pid : pids) launcher_->Signal(pid, signal);
  }
  for (size_t i = 0; i < count; ++i) {
    Advance(static_cast<int>(i), clock_->Monotonic());
  }
}

void GpuSupervisor::Advance(int index, absl::Duration now) {
  pid_t pid = 0;
  {
    MutexLock lock(&mu_);
    const Child& child = children_[index];
    if (child.pid == 0 && (stopping_ || now < child.due)) return;
    pid = child.pid;
  }
  if (pid == 0) {
    Launch(index, now);
    return;
  }
  if (const std::optional<std::string> how = launcher_->Reap(pid)) {
    NoteEnd(index, *how, now);
  }
}

void GpuSupervisor::AskHealth() {
  size_t count = 0;
  {
    MutexLock lock(&mu_);
    count = children_.size();
  }
  for (size_t i = 0; i < count; ++i) AskHealthOf(static_cast<int>(i));
}

void GpuSupervisor::AskHealthOf(int index) {
  uint64_t start = 0;
  {
    MutexLock lock(&mu_);
    const Child& child = children_[index];
    if (child.pid == 0 || clock_->Monotonic() < child.health_due) return;
    start = child.starts;
  }
  // The launcher asks the process, which takes a while.
  const std::string address = launcher_->Address(index);
  const std::string failure = launcher_->NotReady(index);
  MutexLock lock(&mu_);
  Child& child = children_[index];
  // The answer is of a process that has ended meanwhile.
  if (child.pid == 0 || child.starts != start) return;
  child.address = address;
  child.failure = failure;
  child.health_due = clock_->Monotonic() + kHealthInterval;
}

void GpuSupervisor::Launch(int index, absl::Duration now) {
  const absl::StatusOr<pid_t> pid = launcher_->Launch(index);
  {
    MutexLock lock(&mu_);
    Child& child = children_[index];
    ++child.starts;
    child.since = now;
    child.health_due = now;
    child.failure = "it starts";
    if (pid.ok()) child.pid = *pid;
  }
  if (!pid.ok()) {
    NoteEnd(index, std::string(pid.status().message()), now);
    return;
  }
  log::Info("worker of a GPU started", {{"gpu", index}, {"pid", *pid}});
}

void GpuSupervisor::NoteEnd(int index, const std::string& how,
                            absl::Duration now) {
  MutexLock lock(&mu_);
  Child& child = children_[index];
  if (now - child.since >= kLong) child.pause = kFirstPause;
  child.pid = 0;
  child.address.clear();
  child.failure = absl::StrCat("it ended: ", how);
  child.due = now + child.pause;
  if (stopping_) return;
  log::Error("worker of a GPU ended", {{"gpu", index},
                                       {"uuid", child.uuid},
                                       {"how", how},
                                       {"starts_again_in", child.pause}});
  child.pause = std::min(2 * child.pause, kLongestPause);
}

void GpuSupervisor::Signal(int signal) {
  MutexLock lock(&mu_);
  if (signal == SIGTERM || signal == SIGINT || signal == SIGKILL) {
    stopping_ = true;
  }
  signals_.push_back(signal);
}

bool GpuSupervisor::Started() const {
  MutexLock lock(&mu_);
  return std::all_of(children_.begin(), children_.end(), [](const Child& one) {
    return !one.address.empty() || one.starts > 1 ||
           (one.starts == 1 && one.pid == 0);
  });
}

bool GpuSupervisor::Ended() const {
  MutexLock lock(&mu_);
  return std::all_of(children_.begin(), children_.end(),
                     [](const Child& one) { return one.pid == 0; });
}

std::vector<std::string> GpuSupervisor::Addresses() const {
  MutexLock lock(&mu_);
  std::vector<std::string> addresses;
  for (const Child& child : children_) {
    if (!child.address.empty()) addresses.push_back(child.address);
  }
  return addresses;
}

std::vector<ReadinessCheck> GpuSupervisor::Checks() const {
  MutexLock lock(&mu_);
  std::vector<ReadinessCheck> checks;
  for (size_t i = 0; i < children_.size(); ++i) {
    const Child& child = children_[i];
    checks.push_back({absl::StrCat("gpu", i), child.failure, child.uuid});
  }
  return checks;
}

void GpuSupervisor::Collect(Exposition* out) const {
  MutexLock lock(&mu_);
  for (size_t i = 0; i < children_.size(); ++i) {
    const Child& child = children_[i];
    out->Gauge("djinn_worker_gpu_process_running",
               "1 while the process of the GPU's worker runs.",
               child.pid == 0 ? 0 : 1, {{"gpu", absl::StrCat(i)}});
    out->Counter("djinn_worker_gpu_process_starts_total",
                 "Starts of the process of the GPU's worker.",
                 static_cast<double>(child.starts), {{"gpu", absl::StrCat(i)}});
  }
}

}  // namespace djinn::worker
