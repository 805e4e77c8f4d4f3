#include "tests/schedules/cluster.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client_lib/session/remote_session.h"
#include "common/lease/lease_verifier.h"
#include "common/transport/in_process.h"

namespace djinn::schedules {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);
// Exceeds every device's number.
constexpr int kDevices = 1000;

// Returns the id of the device's n-th lease.
std::string NewLeaseId(int device, int n) {
  return absl::StrCat(n * kDevices + device);
}

class InProcessConnector : public WorkerConnector {
 public:
  explicit InProcessConnector(Cluster* cluster) : cluster_(cluster) {}

  absl::StatusOr<std::unique_ptr<ClientStream>> Connect(
      const v1::Lease& lease, const std::string&) override {
    return cluster_->Connect(DeviceOf(lease));
  }

 private:
  // Returns the device of a lease; see NewLeaseId().
  static int DeviceOf(const v1::Lease& lease) {
    int id = 0;
    (void)absl::SimpleAtoi(lease.lease_id(), &id);
    return id % kDevices;
  }

  Cluster* const cluster_;
};

worker::WorkerCoreOptions CoreOptions(const Setup& setup) {
  worker::WorkerCoreOptions options;
  options.worker_id = "worker";
  options.one_tenant = setup.executors;
  options.graph_cache.max_plans = setup.max_plans;
  return options;
}

}  // namespace

Cluster::Cluster(const Setup& setup)
    : setup_(setup),
      device_(uint64_t{1} << 32),
      network_(setup.faults, setup.told_memory_bytes) {
  if (setup_.slow_every > 0) {
    device_.SetExecuteHook([this](const std::string&) {
      if (nodes_.fetch_add(1) % setup_.slow_every == 0) {
        TakeTime(20);
      }
      return absl::OkStatus();
    });
  }
  auto core = MakeCore();
  MutexLock lock(&mu_);
  core_ = std::move(core);
}

Cluster::~Cluster() = default;

std::shared_ptr<worker::WorkerCore> Cluster::MakeCore() {
  return std::make_shared<worker::WorkerCore>(CoreOptions(setup_), &device_,
                                              &worker_clock_, &random_);
}

std::shared_ptr<worker::WorkerCore> Cluster::core() const {
  MutexLock lock(&mu_);
  return core_;
}

std::unique_ptr<Session> Cluster::Open(int index) {
  SessionOptions options;
  // The timeouts are long because client_clock_ skips the pauses between
  // attempts to connect. The skipped pauses must neither use up other waits nor
  // make an attempt so short that it is skipped.
  options.resume_timeout = 3 * kPatience;
  options.connect_timeout = 3 * kPatience;
  options.operation_timeout = 12 * kPatience;
  options.clock = &client_clock_;
  options.recovers = setup_.recovers;
  options.replay_memory = setup_.replay_memory;
  for (size_t device = 0; device < setup_.sessions.size(); ++device) {
    if (setup_.sessions[device] == index && setup_.workers > 1) {
      options.device_workers[static_cast<int>(device)] = setup_.workers;
    }
  }
  if (setup_.checkpoint_micros >= 0) {
    options.checkpoints = true;
    options.replay_time = absl::Microseconds(setup_.checkpoint_micros);
    options.checkpoint_overhead = 1;
    options.checkpoint_memory = setup_.checkpoint_memory;
  }
  const bool other = setup_.two_tenants && index == 1;
  return *OpenSession(
      std::move(options),
      std::make_unique<GrantingLink>(this, absl::StrCat("session-", index),
                                     other ? "other" : "tenant"),
      std::make_unique<InProcessConnector>(this));
}

v1::Lease Cluster::Grant(const std::string& session_id,
                         const std::string& tenant_name, int device,
                         LinkEnd* link) {
  v1::LeaseClaims record = LeaseAuthority::Claims(NewLeaseId(device, ++grants_),
                                                  session_id, tenant_name);
  record.set_virtual_device(device % 100);
  record.set_member(device / 100);
  v1::SessionLimits* const limits = record.mutable_limits();
  limits->set_memory_bytes(setup_.memory_bytes);
  limits->set_max_outstanding(setup_.max_outstanding);
  limits->set_max_outstanding_bytes(setup_.max_outstanding_bytes);
  limits->set_inline_bytes(kInlineBytes);
  limits->set_max_graphs(setup_.max_graphs);
  v1::TenantLimits* const tenant = record.mutable_tenant_limits();
  tenant->set_memory_bytes(2 * setup_.memory_bytes);
  tenant->set_max_outstanding(setup_.tenant_outstanding);
  tenant->set_max_outstanding_bytes(2 * setup_.max_outstanding_bytes);

  std::shared_ptr<worker::WorkerCore> core;
  {
    MutexLock lock(&mu_);
    while (core_ == nullptr) core_changed_.Wait(&mu_);
    core = core_;
    granted_[device] = {record, link};
  }
  v1::DesiredState desired;
  const std::string token = List(record, *core, &desired);
  core->Apply(desired);

  v1::Lease lease;
  lease.set_lease_id(record.lease_id());
  lease.set_token(token);
  lease.set_session_epoch(record.session_epoch());
  lease.set_worker_id("worker");
  lease.set_worker_incarnation(core->incarnation());
  lease.set_worker_address("in-process");
  return lease;
}

std::string Cluster::List(const v1::LeaseClaims& record,
                          const worker::WorkerCore& core,
                          v1::DesiredState* desired) {
  MutexLock lock(&authority_mu_);
  const v1::SignedLease signed_lease =
      authority_.Issue(record, "worker", core.incarnation());
  authority_.List(signed_lease, desired);
  return signed_lease.SerializeAsString();
}

void Cluster::DropSession(const std::string& session_id) {
  {
    MutexLock lock(&mu_);
    for (auto& [device, granted] : granted_) {
      if (granted.record.session_id() == session_id) granted.link = nullptr;
    }
  }
  // Without faults, the worker learns of a session's end from the session
  // itself, and needs no announcement.
  if (!setup_.faulty) return;
  v1::DesiredState desired;
  desired.add_drop_session_ids(session_id);
  if (const auto core = this->core()) core->Apply(desired);
}

absl::StatusOr<std::unique_ptr<ClientStream>> Cluster::Connect(int device) {
  InProcessPair pair = MakeInProcessPair(setup_.in_flight);
  const std::shared_ptr<worker::WorkerCore> core = this->core();
  if (core == nullptr) return absl::UnavailableError("the worker is away");
  std::unique_ptr<ClientStream> stream =
      network_.Connect(device, std::move(pair.client));
  core->Attach(std::move(pair.worker));
  return stream;
}

void Cluster::Restart(bool drains) {
  std::shared_ptr<worker::WorkerCore> old;
  {
    MutexLock lock(&mu_);
    // A different restart is in progress.
    if (core_ == nullptr) return;
    old = std::move(core_);
  }
  if (!drains) network_.Break(-1);
  old->Shutdown();
  auto core = MakeCore();
  v1::DesiredState desired;
  std::vector<v1::LeaseClaims> records;
  {
    MutexLock lock(&mu_);
    for (const auto& [device, granted] : granted_) {
      records.push_back(granted.record);
    }
  }
  for (const v1::LeaseClaims& record : records) {
    List(record, *core, &desired);
  }
  MutexLock lock(&mu_);
  if (setup_.grants_again) core->Apply(desired);
  core_ = std::move(core);
  former_cores_.push_back(std::move(old));
  core_changed_.SignalAll();
}

void Cluster::EndLease(int device, bool lost) {
  LinkEnd* link = nullptr;
  std::string lease_id;
  v1::DesiredState desired;
  {
    MutexLock lock(&mu_);
    const auto found = granted_.find(device);
    if (found == granted_.end()) return;
    link = found->second.link;
    lease_id = found->second.record.lease_id();
    if (lost) {
      desired.add_drop_lease_ids(lease_id);
    } else {
      desired.add_drop_session_ids(found->second.record.session_id());
    }
  }
  const auto tell_worker = [&] {
    if (const auto core = this->core()) core->Apply(desired);
  };
  // The worker's own reason would end the device.
  if (!lost) tell_worker();
  if (link != nullptr) {
    link->EndLease(lease_id, lost ? "EXECUTOR_LOST" : "told to");
  }
  if (lost) tell_worker();
}

void Cluster::ReturnLease(const std::string& lease_id) {
  v1::DesiredState desired;
  desired.add_drop_lease_ids(lease_id);
  if (const auto core = this->core()) core->Apply(desired);
}

std::string Cluster::Leftovers() const {
  using worker::MemoryClass;
  std::string text;
  const std::shared_ptr<worker::WorkerCore> core = this->core();
  const worker::Ledger::Usage usage = core->ledger().usage();
  const auto of = [&](MemoryClass memory_class) {
    return usage.by_class[static_cast<size_t>(memory_class)];
  };
  const uint64_t idle = core->contents().stats().idle_bytes;
  if (of(MemoryClass::kStorages) != 0 || of(MemoryClass::kTransfers) != 0 ||
      of(MemoryClass::kContents) != idle) {
    absl::StrAppend(&text, "the ledger holds ", of(MemoryClass::kStorages),
                    " bytes of storages, ", of(MemoryClass::kContents),
                    " of contents (", idle, " idle) and ",
                    of(MemoryClass::kTransfers), " of transfers; ");
  }
  MutexLock lock(&mu_);
  if (former_cores_.empty() && device_.live_bytes() != usage.used) {
    absl::StrAppend(&text, "the device holds ", device_.live_bytes(),
                    " bytes, the ledger ", usage.used, "; ");
  }
  const v1::WorkerState state = core->Snapshot();
  for (const v1::HeldSession& held : state.sessions()) {
    if (held.storage_count() == 0 && held.storage_bytes() == 0) continue;
    absl::StrAppend(&text, UncheckedClaims(held.lease()).lease_id(), " holds ",
                    held.storage_count(), " storages of ", held.storage_bytes(),
                    " bytes; ");
  }
  if (state.queued_runs() != 0) {
    absl::StrAppend(&text, state.queued_runs(), " runs are queued; ");
  }
  return text;
}

std::string Cluster::WaitUntilEmpty() {
  network_.NoticeAll();
  Clock* const clock = Clock::Real();
  const absl::Duration end = clock->Monotonic() + 5 * kPatience;
  for (;;) {
    std::string left = Leftovers();
    if (left.empty() || clock->Monotonic() > end) return left;
    TakeTime(1);
  }
}

std::string Cluster::Stop() {
  std::vector<std::shared_ptr<worker::WorkerCore>> cores;
  {
    MutexLock lock(&mu_);
    cores.swap(former_cores_);
    cores.push_back(std::move(core_));
  }
  cores.back()->Shutdown();
  cores.clear();
  if (device_.live_bytes() == 0) return "";
  return absl::StrCat("the stopped worker's device holds ",
                      device_.live_bytes(), " bytes");
}

}  // namespace djinn::schedules
