// Implements the thread that starts executors, exchanges messages with them,
// and destroys those that have ended.
#include <poll.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "gpu_worker/supervisor/executor_record.h"
#include "gpu_worker/supervisor/limits.h"
#include "gpu_worker/supervisor/report_check.h"
#include "gpu_worker/supervisor/supervisor.h"

namespace djinn::worker {
namespace {

constexpr absl::Duration kReapPause = absl::Milliseconds(5);
constexpr int kMaxReapPauses = 1000;
// Most dropped spans that one message may add to the count.
constexpr uint64_t kMaxDropped = 1'000'000;
constexpr absl::Duration kMeasureInterval = absl::Milliseconds(100);
constexpr absl::Duration kLeaseInterval = absl::Seconds(1);
// Longest time between two rounds that counts as time of the executors. A
// longer pause means that the machine or this process was suspended, so that
// the supervisor did not hear its executors.
constexpr absl::Duration kLongestRound = absl::Seconds(1);
// How long the address of an executor that died accepts connections. By then,
// its clients have learned from the coordinator why it died.
constexpr absl::Duration kListenAfterDeath = absl::Seconds(1);

// Returns an error where the GPU's memory does not suffice for all executors
// that there may be.
absl::Status CheckDivision(const SupervisorOptions& options,
                           const v1::GpuMemory& measured) {
  const uint64_t each = options.setup.process_memory();
  if (each == 0 || measured.free_bytes() == 0) return absl::OkStatus();
  log::Info("memory that each tenant's process takes on the GPU",
            {{"context", measured.context_bytes()},
             {"values_and_temporaries", each},
             {"executors", options.max_executors},
             {"free", measured.free_bytes()}});
  if ((each + measured.context_bytes()) <=
      measured.free_bytes() / options.max_executors) {
    return absl::OkStatus();
  }
  return MakeError(
      absl::StatusCode::kResourceExhausted, "MEMORY_DIVIDED_TOO_FAR",
      absl::StrCat(
          "the GPU has ", measured.free_bytes(), " bytes free, and each of ",
          options.max_executors, " executors may take ", each,
          " for values and temporaries, and takes ", measured.context_bytes(),
          " besides: lower device.memory or isolation.executors"));
}

// Returns which leases' messages may have ended the executor, once its process
// has ended.
std::set<std::string> CulpritsOf(const ExecutorRecord& executor,
                                 const ProcessEnd& end,
                                 const Arbiter& arbiter) {
  // Something outside may have killed it, such as an operator or a lack of
  // memory.
  if (executor.ending || (end.killed && !executor.overdue)) return {};
  if (!executor.kept_lease.empty()) return {executor.kept_lease};
  std::vector<std::string> leases;
  for (const auto& [id, lease] : executor.leases) leases.push_back(id);
  return arbiter.ServedBy(executor.number, leases);
}

}  // namespace

absl::Status Supervisor::Handle(v1::FromExecutor message, Executor* executor) {
  executor->silent = absl::ZeroDuration();
  DJINN_RETURN_IF_ERROR(CountMessage(executor));
  if (message.has_ready()) {
    if (std::exchange(executor->ready, true)) {
      return absl::InvalidArgumentError("it is ready a second time");
    }
    if (!ready_) {
      DJINN_RETURN_IF_ERROR(
          CheckDivision(options_, message.ready().gpu_memory()));
      facts_ = message.ready();
    }
    ready_ = true;
    spare_.deaths = 0;
    return absl::OkStatus();
  }
  if (message.has_health()) {
    if (message.health().refused_system_calls() < executor->refused_calls) {
      return absl::InvalidArgumentError("a count that decreases");
    }
    executor->refused_calls = message.health().refused_system_calls();
    executor->available_bytes = message.health().available_bytes();
    if (message.health().mark() != executor->mark) {
      executor->mark = message.health().mark();
      executor->same_mark = absl::ZeroDuration();
    }
    return absl::OkStatus();
  }
  if (message.has_metrics()) {
    if (executor->ready) {
      executor->metrics = std::move(*message.mutable_metrics());
    } else if (families_->empty()) {
      families_ =
          std::make_shared<ExecutorFamilies>(FamiliesOf(message.metrics()));
    }
    return absl::OkStatus();
  }
  if (message.has_spans()) {
    v1::ExecutorSpans& spans = *message.mutable_spans();
    DJINN_RETURN_IF_ERROR(CheckSpans(
        {.tenant = executor->tenant, .worker_id = options_.worker_id}, &spans));
    if (options_.spans == nullptr) {
      return absl::InvalidArgumentError("spans, which it was not to make");
    }
    uint64_t dropped = std::min(spans.dropped(), kMaxDropped);
    for (Span& span : *spans.mutable_spans()) {
      // An executor cannot be trusted to sample.
      if (!options_.spans->Takes(ContextOf(span)) || !TakeSpan(executor)) {
        ++dropped;
        continue;
      }
      options_.spans->Add(std::move(span));
    }
    options_.spans->CountDropped(dropped);
    return absl::OkStatus();
  }
  if (!message.has_report()) return absl::InternalError("an empty message");
  v1::WorkerState& report = *message.mutable_report();
  const absl::Duration now = clock_->Monotonic();
  DJINN_RETURN_IF_ERROR(CheckReport(
      {.memory_bytes = options_.memory_bytes / options_.max_executors,
       .age = now - executor->start,
       .now = now,
       .leases = &executor->leases,
       .questions = &executor->questions,
       .workers = &orders_.workers()},
      &report));
  const uint64_t applied = report.applied_revision();
  const bool acknowledgement = report.acknowledgement();
  if (applied > executor->revision) {
    if (!executor->restarted) {
      return absl::InvalidArgumentError("it applied orders that it never got");
    }
    // The report belongs to the stream before. The executor sends another
    // complete one on the new stream.
    if (report.complete()) return absl::OkStatus();
  } else if (report.complete()) {
    executor->restarted = false;
  }
  const ReportNews news =
      executor->report.Apply(std::move(report), executor->leases);
  v1::DesiredState orders;
  // The tenant presented leases that have ended on this worker.
  for (const std::string& id : news.strangers) orders.add_drop_lease_ids(id);
  // The coordinator names the phase of a graph once, whichever executors have
  // the graph.
  for (const std::string& fingerprint : news.graphs) {
    orders_.AddPhases(fingerprint, executor->tenant, &orders);
  }
  if (orders.drop_lease_ids_size() > 0 || orders.graph_phases_size() > 0) {
    orders.MergeFrom(orders_.AllFor(executor->tenant));
    executor->SendOrders(std::move(orders));
  }
  if (!acknowledgement && !executor->restarted) {
    std::erase_if(executor->leases, [&](const auto& lease) {
      return lease.second.listed <= applied &&
             !executor->report.Names(lease.first);
    });
  }
  return absl::OkStatus();
}

SharedFamilies Supervisor::Families() const {
  MutexLock lock(&mu_);
  return families_;
}

absl::Status Supervisor::Receive(const Peer& peer) {
  FrameReader& reader = peer.executor->reader;
  const absl::Status filled = reader.Fill(peer.executor->socket.get());
  if (absl::IsUnavailable(filled)) return absl::OkStatus();
  DJINN_RETURN_IF_ERROR(filled);
  reader.set_max_bytes(kMaxReportBytes + peer.leases * kMoreBytesPerLease);
  for (;;) {
    const absl::StatusOr<absl::string_view> bytes = reader.TakeBytes();
    if (absl::IsNotFound(bytes.status())) return absl::OkStatus();
    DJINN_RETURN_IF_ERROR(bytes.status());
    v1::FromExecutor message;
    DJINN_RETURN_IF_ERROR(
        CheckNesting(*bytes, *message.GetDescriptor(),
                     kMaxNestedFields + peer.leases * kMoreFieldsPerLease));
    if (!message.ParseFromArray(bytes->data(),
                                static_cast<int>(bytes->size()))) {
      return absl::InvalidArgumentError("the bytes are no message");
    }
    if (message.has_metrics()) {
      DJINN_RETURN_IF_ERROR(
          JoinedMetrics::Check(*Families(), message.metrics()));
    } else if (!message.has_spans()) {
      DJINN_RETURN_IF_ERROR(CheckFields(&message, peer.tenant));
    }
    const auto size = static_cast<double>(bytes->size());
    MutexLock lock(&mu_);
    peer.executor->bytes += size;
    DJINN_RETURN_IF_ERROR(Handle(std::move(message), peer.executor.get()));
  }
}

void Supervisor::Exchange(absl::Duration patience) {
  std::vector<Peer> polled;
  std::vector<pollfd> fds = {{wake_.get(), POLLIN, 0}};
  {
    MutexLock lock(&mu_);
    for (const auto& [number, executor] : executors_) {
      if (executor->pid == 0) continue;
      polled.push_back({executor, executor->tenant, executor->leases.size()});
      const bool reads = MayRead(*executor);
      const bool writes = !executor->unsent.empty();
      fds.push_back(
          {executor->socket.get(),
           static_cast<short>((reads ? POLLIN : 0) | (writes ? POLLOUT : 0)),
           0});
      fds.push_back({executor->log.polled(), POLLIN, 0});
    }
  }
  poll(fds.data(), fds.size(),
       static_cast<int>(absl::ToInt64Milliseconds(patience)));
  if (fds[0].revents != 0) ClearEvent(wake_.get());
  const absl::Duration now = clock_->Monotonic();
  const absl::Duration passed =
      std::min(now - std::exchange(last_exchange_, now), kLongestRound);
  bool changed = false;
  std::vector<absl::Status> received(polled.size());
  {
    MutexLock lock(&mu_);
    for (const auto& [number, executor] : executors_) {
      Age(passed, executor.get());
    }
    while (!closing_.empty() && closing_.front().first <= now) {
      closing_.pop_front();
    }
  }
  for (size_t i = 0; i < polled.size(); ++i) {
    if (fds[2 * i + 1].revents & (POLLIN | POLLHUP | POLLERR)) {
      received[i] = Receive(polled[i]);
      changed = true;
    }
  }
  std::vector<std::pair<std::shared_ptr<Executor>, absl::Status>> dead;
  {
    MutexLock lock(&mu_);
    for (size_t i = 0; i < polled.size(); ++i) {
      Executor* const executor = polled[i].executor.get();
      absl::Status status = received[i];
      if (status.ok()) {
        const absl::Status written =
            WriteSome(executor->socket.get(), &executor->unsent);
        if (!absl::IsUnavailable(written)) status = written;
      }
      if (status.ok()) {
        status = Overdue(*executor, options_, now);
        executor->overdue = !status.ok() && !executor->ending;
      }
      if (!status.ok()) dead.emplace_back(polled[i].executor, status);
    }
    for (const auto& [number, executor] : executors_) {
      if (executor->pid == 0 && executor->ending) {
        dead.emplace_back(executor, absl::CancelledError("no longer needed"));
      }
    }
  }
  for (size_t i = 0; i < polled.size(); ++i) {
    ExecutorLog& log = polled[i].executor->log;
    if (fds[2 * i + 2].revents == 0 && !log.waits()) continue;
    LogForExecutor(polled[i].tenant, polled[i].executor->number, log.Take());
  }
  for (const auto& [executor, why] : dead) Destroy(executor, why);
  if (changed && dead.empty()) changed_();
}

void Supervisor::Measure() {
  const absl::Duration now = clock_->Monotonic();
  if (now - last_measured_ < kMeasureInterval) return;
  last_measured_ = now;
  std::vector<std::pair<std::shared_ptr<Executor>, std::optional<uint64_t>>>
      readings;
  {
    MutexLock lock(&mu_);
    const bool leases_due = now >= next_lease_check_;
    if (leases_due) next_lease_check_ = now + kLeaseInterval;
    for (const auto& [number, executor] : executors_) {
      if (leases_due) CheckLeases(executor.get());
      if (executor->pid != 0) readings.emplace_back(executor, std::nullopt);
    }
  }
  for (auto& [executor, threads] : readings) {
    threads = launcher_->ThreadsOf(executor->pid);
  }
  MutexLock lock(&mu_);
  for (const auto& [executor, threads] : readings) {
    if (!executor->fault.ok()) continue;
    executor->fault = CheckThreads(*executor, options_, threads.value_or(0));
  }
}

void Supervisor::Destroy(const std::shared_ptr<Executor>& executor,
                         const absl::Status& why) {
  ProcessEnd end{"it was not started"};
  if (executor->pid != 0) {
    // Its end of the socket closed, or it must end: either way it serves
    // nothing any more.
    launcher_->Kill(executor->pid);
    std::optional<ProcessEnd> reaped;
    for (int i = 0; i < kMaxReapPauses && !reaped.has_value(); ++i) {
      reaped = launcher_->Reap(executor->pid);
      if (!reaped.has_value()) absl::SleepFor(kReapPause);
    }
    end = reaped.value_or(ProcessEnd{"it does not end"});
  }
  std::set<std::string> culprits;
  std::string tenant;
  {
    MutexLock lock(&mu_);
    culprits = CulpritsOf(*executor, end, *arbiter_);
    tenant = executor->tenant;
  }
  LogForExecutor(tenant, executor->number, executor->log.TakeLast());
  arbiter_->Remove(executor->number);
  executor->fetching.reset();
  executor->contents.reset();
  const std::string reason = ErrorReason(why);
  {
    MutexLock lock(&mu_);
    if (executors_.erase(executor->number) == 0) return;
    if (!executor->ending && executor->listeners.listener.valid()) {
      closing_.emplace_back(clock_->Monotonic() + kListenAfterDeath,
                            std::move(executor->listeners.listener));
    }
    AddExecution(executor->report.executed(), &executed_);
    refused_calls_ += executor->refused_calls;
    past_metrics_.AddPast(*families_, executor->metrics,
                          tenant_labels_.For(executor->tenant));
    for (const auto& [id, ended] : executor->report.ended()) {
      NoteEnd(id, ended);
    }
    for (const auto& [id, lease] : executor->leases) {
      if (executor->report.ended().contains(id)) continue;
      v1::EndedLease ended;
      *ended.mutable_lease() = lease.lease;
      *ended.mutable_use() = executor->report.UseOf(id);
      // Where none is a culprit, the reason concerns all.
      const bool concerned = culprits.empty() || culprits.contains(id);
      ended.set_reason(!reason.empty() && concerned ? reason
                       : culprits.contains(id)      ? "EXECUTOR_LOST_IN_TURN"
                                                    : "EXECUTOR_LOST");
      NoteEnd(id, std::move(ended));
    }
    if (!executor->ending) {
      Tenant& history =
          executor->tenant.empty() ? spare_ : tenants_[executor->tenant];
      const absl::Duration now = clock_->Monotonic();
      if (now - history.last_death > kForgiveAfter) history.deaths = 0;
      ++history.deaths;
      ++history.all_deaths;
      ++ends_[reason.empty() ? "EXECUTOR_LOST" : reason];
      history.last_death = now;
      last_failure_ = MakeError(absl::StatusCode::kUnavailable, "EXECUTOR_LOST",
                                absl::StrCat(end.text, ": ", why.message()));
      log::Error("executor ended",
                 {{"tenant", executor->tenant},
                  {"number", executor->number},
                  {"how", end.text},
                  {"in_turn", culprits.size()},
                  {"why", why},
                  {"leases", executor->leases.size()},
                  {"deaths", history.deaths},
                  {"pause", BackoffOf(options_, history.deaths)}});
    }
  }
  changed_();
}

void Supervisor::LaunchDue() {
  std::vector<std::shared_ptr<Executor>> due;
  {
    MutexLock lock(&mu_);
    for (const auto& [number, executor] : executors_) {
      if (executor->pid == 0 && executor->start <= clock_->Monotonic()) {
        due.push_back(executor);
      }
    }
  }
  for (const std::shared_ptr<Executor>& executor : due) {
    const absl::StatusOr<Arbiter::Seat> seat = arbiter_->Add(executor->number);
    absl::StatusOr<LaunchedExecutor> launched =
        seat.ok() ? launcher_->Launch(executor->listeners, *seat)
                  : seat.status();
    if (!launched.ok()) {
      Destroy(executor, launched.status());
      continue;
    }
    if (options_.serve_fetching != nullptr) {
      executor->fetching = options_.serve_fetching(
          executor->number, std::move(launched->fetching));
    }
    if (options_.serve_contents != nullptr) {
      executor->contents = options_.serve_contents(
          executor->number, std::move(launched->contents));
    }
    MutexLock lock(&mu_);
    log::Info("executor started", {{"number", executor->number},
                                   {"pid", launched->pid},
                                   {"address", executor->listeners.address}});
    executor->pid = launched->pid;
    executor->socket = std::move(launched->socket);
    executor->log = ExecutorLog(std::move(launched->log));
    executor->start = clock_->Monotonic();
    v1::ToExecutor message;
    v1::ExecutorSetup* const setup = message.mutable_setup();
    *setup = options_.setup;
    if (tls_.has_value()) *setup->mutable_tls() = *tls_;
    setup->set_worker_id(options_.worker_id);
    setup->set_incarnation(options_.incarnation);
    setup->set_memory_bytes(options_.memory_bytes / options_.max_executors);
    setup->set_listener_fd(kListenerFd);
    if (executor->listeners.shared_memory_listener.valid()) {
      setup->set_shared_memory_listener_fd(kSharedMemoryListenerFd);
    }
    setup->set_turn_word_fd(kTurnWordFd);
    setup->set_turn_event_fd(kTurnEventFd);
    setup->set_fetching_fd(kFetchingFd);
    if (options_.serve_contents != nullptr) {
      setup->set_contents_fd(kContentsFd);
    }
    // The first executor has measured the speed.
    if (facts_.speed().flops_per_second() > 0) {
      setup->set_calibrate(false);
      *setup->mutable_speed() = facts_.speed();
    }
    // The setup comes before orders that wait already.
    executor->unsent = EncodeFrame(message) + executor->unsent;
    if (serving_) {
      v1::ToExecutor health;
      health.set_serving(true);
      executor->Send(health);
    }
    // This socket closes with the executor. The other one stays open for a
    // while.
    executor->listeners.shared_memory_listener = Descriptor();
  }
}

void Supervisor::KeepSpare() {
  absl::Duration start;
  {
    MutexLock lock(&mu_);
    // As long as every tenant that the worker may have has an executor, a
    // further one would have nobody to serve.
    const auto alive = static_cast<size_t>(
        std::count_if(executors_.begin(), executors_.end(),
                      [](const auto& e) { return !e.second->ending; }));
    if (alive >= options_.max_executors || FindLocked("") != nullptr) return;
    start = StartOf("");
  }
  absl::StatusOr<std::shared_ptr<Executor>> made = Make(start);
  MutexLock lock(&mu_);
  if (!made.ok()) {
    last_failure_ = made.status();
    return;
  }
  executors_[(*made)->number] = *std::move(made);
}

}  // namespace djinn::worker
