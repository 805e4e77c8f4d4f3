#include "client_lib/session/remote_session.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/optimization.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client_lib/session/device/outgoing/session_context.h"
#include "client_lib/session/device/replica/checkpoint_steps.h"
#include "client_lib/session/device/replica/replica.h"
#include "client_lib/session/model/fork_guard.h"
#include "client_lib/session/model/wait.h"
#include "client_lib/session/multi_worker/device_router.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"

namespace djinn {
namespace {

// Time that a session dropped without Close() may take to flush.
constexpr absl::Duration kDropTimeout = absl::Seconds(5);
// Bounds on the time, after the deadline, that workers take to cancel
// unfinished runs, streams to end, and the coordinator to acknowledge the end.
// Their sum stays below the two seconds that Close() may add.
constexpr absl::Duration kCancelTimeout = absl::Milliseconds(400);
constexpr absl::Duration kStreamEndTimeout = absl::Milliseconds(400);
constexpr absl::Duration kMinFarewell = absl::Milliseconds(800);

class CostOfDevices final : public PendingCost {
 public:
  void Add(std::shared_ptr<RemoteDevice> device,
           std::shared_ptr<MeterWait> wait) {
    parts_.emplace_back(std::move(device), std::move(wait));
  }
  absl::StatusOr<Cost> Wait() override {
    v1::MeteredUse sum;
    for (const auto& [device, wait] : parts_) {
      DJINN_ASSIGN_OR_RETURN(const v1::MeteredUse use,
                             replica::AwaitMeter(device->state(), wait.get()));
      AddUse(use, &sum);
    }
    return Cost{
        absl::Nanoseconds(static_cast<int64_t>(sum.device_nanoseconds())),
        sum.received_bytes(), sum.sent_bytes(), sum.runs()};
  }

 private:
  std::vector<
      std::pair<std::shared_ptr<RemoteDevice>, std::shared_ptr<MeterWait>>>
      parts_;
};

class RemoteSession final : public Session, private CoordinatorEvents {
 public:
  explicit RemoteSession(std::shared_ptr<SessionContext> context)
      : context_(std::move(context)) {}

  ~RemoteSession() override {
    if (IsForkedChild()) {
      LeakEverything();
    } else {
      (void)Close(kDropTimeout);
    }
  }

  absl::Status Open() {
    DJINN_ASSIGN_OR_RETURN(
        CoordinatorLink::Opened opened,
        context_->link->Open(context_->options.program,
                             context_->options.connect_timeout, this));
    context_->session_id = std::move(opened.session_id);
    context_->tenant = std::move(opened.tenant);
    MutexLock lock(&mu_);
    open_ = true;
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<VirtualDevice>> Device(int index) override {
    if (IsForkedChild()) return AfterForkError();
    if (index < 0 || index >= context_->options.device_count) {
      return MakeError(
          absl::StatusCode::kOutOfRange, "NO_SUCH_DEVICE",
          absl::StrCat("device index ", index, " of a session with ",
                       context_->options.device_count, " devices"));
    }
    std::shared_ptr<DeviceRouter> failed;
    {
      MutexLock lock(&mu_);
      if (!open_) {
        return MakeError(absl::StatusCode::kFailedPrecondition,
                         "SESSION_CLOSED", "the session is closed");
      }
      const auto found = FindDevice(index);
      if (found == devices_.end()) {
        return devices_.emplace_back(
            DeviceRouter::Make(index, /*incarnation=*/0, context_));
      }
      if (ABSL_PREDICT_TRUE(!(*found)->FailureIsKnown())) return *found;
      // The last one stays: there are no numbers for the storages of another.
      if ((*found)->incarnation() + 1 == kMaxIncarnations) return *found;
      // Until it has ended, other threads get the failed device.
      if (!ending_.insert(index).second) return *found;
      failed = *found;
    }
    return Replace(failed);
  }

  const SessionOptions& options() const override { return context_->options; }
  std::string session_id() const override { return context_->session_id; }
  std::string tenant() const override { return context_->tenant; }

  Statistics statistics() const override {
    Statistics sum;
    {
      MutexLock lock(&mu_);
      sum = of_former_;
      for (const auto& device : devices_) AddStatistics(*device, &sum);
    }
    sum.root_errors = context_->root_errors.count();
    sum.bytes_spilled = context_->spill->written();
    return sum;
  }

  absl::StatusOr<std::unique_ptr<PendingCost>> AskCost(uint32_t lane) override {
    if (IsForkedChild()) return AfterForkError();
    auto cost = std::make_unique<CostOfDevices>();
    std::vector<std::shared_ptr<DeviceRouter>> devices;
    {
      MutexLock lock(&mu_);
      devices = devices_;
    }
    for (const auto& device : devices) device->OnMeter(lane);
    for (const auto& device : Members()) {
      DJINN_ASSIGN_OR_RETURN(auto wait,
                             replica::AskMeter(device->state(), lane));
      cost->Add(device, std::move(wait));
    }
    return cost;
  }

  std::vector<absl::Status> RootErrors() const override {
    return context_->root_errors.Kept();
  }

  absl::Status FinishProfile() override {
    if (IsForkedChild()) return AfterForkError();
    absl::Status result;
    for (const auto& device : Members()) {
      result.Update(replica::FinishProfile(device->state()));
    }
    return result;
  }

  absl::Status Checkpoint(absl::Duration timeout) override {
    if (IsForkedChild()) return AfterForkError();
    if (!context_->options.recovers) {
      return MakeError(absl::StatusCode::kFailedPrecondition, "CHECKPOINTS_OFF",
                       "the session makes no checkpoints: connect with "
                       "recovery \"replay\" or \"checkpoint\" (or "
                       "DJINN_RECOVERY)");
    }
    const Deadline deadline(timeout, context_->options.clock);
    absl::Status result;
    for (const auto& device : Members()) {
      result.Update(replica::Checkpoint(device->state(), deadline));
    }
    return result;
  }

  absl::Status Close(absl::Duration timeout) override {
    if (IsForkedChild()) return AfterForkError();
    Clock* const clock = context_->options.clock;
    const Deadline deadline(timeout, clock);
    {
      MutexLock lock(&mu_);
      if (!open_) return absl::OkStatus();
      open_ = false;
    }
    BeginClose();
    const auto devices = Members();
    absl::Status result = Finish(devices, deadline);
    for (const auto& device : devices) replica::Stop(device->state());
    context_->link->CancelRequests();
    {
      // The wait needs no deadline: it ends with the requests.
      MutexLock lock(&mu_);
      while (!ending_.empty()) ended_.Wait(&mu_);
    }
    const Deadline streams(kStreamEndTimeout, clock);
    for (const auto& device : devices) replica::Join(device->state(), streams);
    const absl::Status ended =
        context_->link->Close(std::max(deadline.left(), kMinFarewell));
    if (!ended.ok()) {
      log::Warning("the coordinator did not hear the end of the session",
                   {{"error", ended}});
    }
    for (const auto& device : devices) replica::Disconnect(device->state());
    for (;;) {
      const absl::Status error = context_->root_errors.TakeUnreported(-1);
      if (error.ok()) break;
      log::Error("a write failed and nothing had said so", {{"error", error}});
      if (result.ok()) result = error;
    }
    return result;
  }

 private:
  using Devices = std::vector<std::shared_ptr<DeviceRouter>>;

  Devices::iterator FindDevice(int index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return std::find_if(
        devices_.begin(), devices_.end(),
        [index](const auto& device) { return device->index() == index; });
  }

  static void AddStatistics(const DeviceRouter& device, Statistics* sum) {
    for (const auto& member : device.Members()) {
      replica::AddStatistics(member->state(), sum);
    }
    device.AddStatistics(sum);
  }

  // Puts a new device in the place of one that has failed, and returns it. Only
  // one thread at a time may do this for an index. The storages of the failed
  // device go on returning its failure. The new device has nothing of it.
  absl::StatusOr<std::shared_ptr<VirtualDevice>> Replace(
      const std::shared_ptr<DeviceRouter>& failed) {
    failed->BeginClose();
    const auto members = failed->Members();
    for (const auto& member : members) replica::Stop(member->state());
    const Deadline streams(kStreamEndTimeout, context_->options.clock);
    for (const auto& member : members) {
      replica::State& state = member->state();
      // The sender thread may wait for a lease.
      replica::Join(state, streams);
      replica::GiveLeaseBack(state, /*unreachable=*/false);
      replica::Disconnect(state);
    }
    // The coordinator receives the program's graphs again, for the new worker.
    context_->SendGraphsAgain();
    MutexLock lock(&mu_);
    ending_.erase(failed->index());
    ended_.SignalAll();
    if (!open_) return failed;
    AddStatistics(*failed, &of_former_);
    std::shared_ptr<DeviceRouter>& device = *FindDevice(failed->index());
    device = DeviceRouter::Make(failed->index(), failed->incarnation() + 1,
                                context_);
    log::Info("a virtual device that failed begins anew",
              {{"device", device->index()}});
    return device;
  }

  // Flushes the devices and cancels what is not executed by the deadline.
  absl::Status Finish(const std::vector<std::shared_ptr<RemoteDevice>>& devices,
                      const Deadline& deadline) {
    std::vector<std::shared_ptr<RemoteDevice>> unfinished;
    absl::Status result;
    for (const auto& device : devices) {
      if (!replica::Flush(device->state(), deadline)) {
        unfinished.push_back(device);
      }
      const absl::Status failure =
          replica::FailureThatLostWork(device->state());
      if (failure.ok()) continue;
      log::Error("work was lost at the end of the session",
                 {{"device", device->index()}, {"error", failure}});
      if (result.ok()) result = failure;
    }
    for (const auto& device : unfinished) replica::Cancel(device->state());
    const Deadline answers(kCancelTimeout, context_->options.clock);
    std::vector<std::string> losses;
    for (const auto& device : unfinished) {
      replica::AwaitCancelled(device->state(), answers);
      std::string loss = replica::DescribeLoss(device->state());
      if (!loss.empty()) losses.push_back(std::move(loss));
    }
    if (losses.empty()) return result;
    result = MakeError(absl::StatusCode::kDeadlineExceeded, "UNFINISHED_WORK",
                       absl::StrCat("work was unfinished at the deadline: ",
                                    absl::StrJoin(losses, "; ")));
    log::Error("work was lost at the end of the session", {{"error", result}});
    return result;
  }

  // A forked child has neither the link's threads nor the devices'. Destroying
  // an object for which those threads waited would block for ever.
  void LeakEverything() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    new std::shared_ptr<SessionContext>(context_);
    new Devices(std::move(devices_));
  }

  // Stops intake and seals what was called.
  void BeginClose() {
    std::vector<std::shared_ptr<DeviceRouter>> devices;
    {
      MutexLock lock(&mu_);
      devices = devices_;
    }
    for (const auto& device : devices) device->BeginClose();
  }

  // Returns the members of all devices.
  std::vector<std::shared_ptr<RemoteDevice>> Members() const {
    std::vector<std::shared_ptr<RemoteDevice>> members;
    MutexLock lock(&mu_);
    for (const auto& device : devices_) {
      for (auto& member : device->Members()) {
        members.push_back(std::move(member));
      }
    }
    return members;
  }

  void OnLeaseEnded(const std::string& lease_id,
                    const std::string& reason) override {
    for (const auto& device : Members()) {
      replica::OnLeaseEnded(device->state(), lease_id, reason);
    }
  }

  void OnMigrationRequested(const v1::MigrationRequest& request) override {
    for (const auto& device : Members()) {
      if (replica::OnMigrationRequested(device->state(), request)) return;
    }
    v1::MigrationOutcome outcome;
    outcome.set_from_lease_id(request.from_lease_id());
    outcome.set_to_lease_id(request.to().lease().lease_id());
    FillDetail(MakeError(absl::StatusCode::kFailedPrecondition, "LEASE_UNUSED",
                         "no virtual device of the session uses the lease"),
               outcome.mutable_failure());
    context_->link->ReportMigration(request.to().virtual_device(),
                                    std::move(outcome));
  }

  void OnStages(const v1::StageAnswer& answer) override {
    std::shared_ptr<DeviceRouter> device;
    {
      MutexLock lock(&mu_);
      for (const auto& each : devices_) {
        if (each->index() == static_cast<int>(answer.virtual_device())) {
          device = each;
        }
      }
    }
    if (device != nullptr) device->OnStages(answer);
  }

  void OnLineageAsked(const v1::LineageQuestion& question) override {
    v1::SessionRequest report;
    v1::LineageAnswer* const answer = report.mutable_lineage();
    answer->set_number(question.number());
    for (const auto& device : Members()) {
      *answer->add_devices() =
          replica::DescribeLineage(device->state(), question.storage());
    }
    replica::ShrinkAnswer(answer);
    context_->link->Report(std::move(report));
  }

  void OnAttachedAgain() override { context_->SendGraphsAgain(); }

  const std::shared_ptr<SessionContext> context_;
  mutable Mutex mu_;
  bool open_ ABSL_GUARDED_BY(mu_) = false;
  Devices devices_ ABSL_GUARDED_BY(mu_);
  // Indices of failed devices that a thread is about to replace, and the
  // statistics of those that were replaced.
  std::set<int> ending_ ABSL_GUARDED_BY(mu_);
  CondVar ended_;
  Statistics of_former_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> OpenSession(
    SessionOptions options, std::unique_ptr<CoordinatorLink> link,
    std::unique_ptr<WorkerConnector> connector) {
  if (IsForkedChild()) return AfterForkError();
  ArmForkGuard();
  auto context = std::make_shared<SessionContext>();
  context->options = std::move(options);
  context->spill = SpillFile::Make(context->options.replay_disk);
  context->link = std::move(link);
  context->connector = std::move(connector);
  auto session = std::make_unique<RemoteSession>(std::move(context));
  DJINN_RETURN_IF_ERROR(session->Open());
  return session;
}

}  // namespace djinn
