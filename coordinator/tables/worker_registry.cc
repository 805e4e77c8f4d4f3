#include "coordinator/tables/worker_registry.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "common/base/status_macros.h"
#include "common/lease/lease_verifier.h"
#include "common/net/server_address.h"
#include "coordinator/tables/errors.h"
#include "coordinator/tables/run_inquiries.h"

namespace djinn::coordinator {
namespace {

// How long a lost worker stays visible to operators.
constexpr absl::Duration kForgetAfter = absl::Hours(1);
// Most bytes of a socket's path, an address or an id, with room to spare. They
// are listed to other workers, logged, and sent to clients.
constexpr size_t kMaxText = 512;
constexpr int kMaxCapabilities = 256;
constexpr int kMaxEndpoints = 256;
// The window over which the devices' work is averaged, and the weight of a
// report in the time of a run.
constexpr absl::Duration kWindow = absl::Minutes(1);
constexpr double kRunWeight = 0.2;

// Applies what the device executed since the last report. A worker's numbers
// may decrease if it lies or compiled a plan again; they are ignored then.
void ApplyExecuted(const v1::ExecutionUse& executed, absl::Duration passed,
                   Worker* worker) {
  const absl::Duration busy =
      std::max(FromProtoDuration(executed.device_time()) -
                   FromProtoDuration(worker->facts.executed.device_time()),
               absl::ZeroDuration());
  if (passed > absl::ZeroDuration()) {
    const double weight = 1 - std::exp(-absl::FDivDuration(passed, kWindow));
    const double share = std::min(absl::FDivDuration(busy, passed), 1.0);
    worker->load.busy_share += weight * (share - worker->load.busy_share);
  }
  if (executed.runs() <= worker->facts.executed.runs()) return;
  const double seconds =
      absl::ToDoubleSeconds(busy) /
      static_cast<double>(executed.runs() - worker->facts.executed.runs());
  const double weight = worker->load.seconds_per_run > 0 ? kRunWeight : 1;
  worker->load.seconds_per_run +=
      weight * (seconds - worker->load.seconds_per_run);
}

v1::WorkerState NothingHeld() {
  v1::WorkerState report;
  report.set_complete(true);
  return report;
}

absl::Status CheckText(absl::string_view what, absl::string_view text) {
  if (text.size() <= kMaxText) return absl::OkStatus();
  return Violation(absl::StrCat(what, " of ", text.size(), " bytes: at most ",
                                kMaxText, " are allowed"));
}

absl::Status CheckSocket(const std::string& socket) {
  if (socket.empty() || (socket[0] == '/' && socket.size() <= kMaxText)) {
    return absl::OkStatus();
  }
  return Violation("the shared-memory socket is no absolute path");
}

absl::Status CheckEndpoints(const v1::WorkerState& report) {
  if (report.tenant_endpoints_size() > kMaxEndpoints) {
    return Violation(absl::StrCat(report.tenant_endpoints_size(),
                                  " tenant endpoints: at most ", kMaxEndpoints,
                                  " are allowed"));
  }
  for (const v1::TenantEndpoint& endpoint : report.tenant_endpoints()) {
    DJINN_RETURN_IF_ERROR(CheckText("a tenant", endpoint.tenant()));
    DJINN_RETURN_IF_ERROR(CheckText("an address", endpoint.address()));
    const absl::Status address = CheckAddress(endpoint.address(), true);
    if (!address.ok()) return Violation(address.message());
    DJINN_RETURN_IF_ERROR(CheckSocket(endpoint.shared_memory_socket()));
  }
  return absl::OkStatus();
}

}  // namespace

const absl::btree_set<std::string>& Worker::LeasesOf(
    const std::string& session_id) const {
  static const auto* const kNone = new absl::btree_set<std::string>();
  const auto found = leases.of_session.find(session_id);
  return found == leases.of_session.end() ? *kNone : found->second;
}

bool Worker::KnowsPeer(const Worker& other) const {
  const auto told = link.told_peers.find(other.id);
  return told != link.told_peers.end() &&
         told->second == std::pair(other.incarnation, other.facts.address);
}

uint64_t Worker::HeldBytesOf(absl::string_view tenant) const {
  const auto found = leases.held_bytes.find(tenant);
  if (found == leases.held_bytes.end()) return 0;
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  return absl::Uint128Low64(std::min<absl::uint128>(found->second, kMost));
}

const std::vector<ContentKey>& Worker::ContentsBySize(
    const std::string& tenant) {
  const auto [sorted, added] = cache.by_size.try_emplace(tenant);
  const auto all = cache.contents.find(tenant);
  if (!added || all == cache.contents.end()) return sorted->second;
  sorted->second.assign(all->second.begin(), all->second.end());
  std::sort(sorted->second.begin(), sorted->second.end(),
            [](const ContentKey& a, const ContentKey& b) {
              return a.second > b.second;
            });
  return sorted->second;
}

absl::Status WorkerRegistry::Check(const v1::WorkerState& report) {
  if (report.worker_id().empty()) return Violation("no worker id");
  if (report.incarnation() == 0) return Violation("no incarnation");
  DJINN_RETURN_IF_ERROR(CheckEndpoints(report));
  if (report.acknowledgement()) return absl::OkStatus();
  DJINN_RETURN_IF_ERROR(CheckText("a worker id", report.worker_id()));
  DJINN_RETURN_IF_ERROR(CheckText("an address", report.address()));
  DJINN_RETURN_IF_ERROR(CheckText("a device", report.device()));
  if (report.capabilities_size() > kMaxCapabilities) {
    return Violation(absl::StrCat(report.capabilities_size(),
                                  " capabilities: at most ", kMaxCapabilities,
                                  " are allowed"));
  }
  for (const std::string& capability : report.capabilities()) {
    DJINN_RETURN_IF_ERROR(CheckText("a capability", capability));
  }
  for (const v1::HeldSession& session : report.sessions()) {
    const v1::MessageWait& wait = session.wait();
    DJINN_RETURN_IF_ERROR(CheckText("a worker id", wait.worker_id()));
    DJINN_RETURN_IF_ERROR(CheckText("a tenant", wait.served_tenant()));
    DJINN_RETURN_IF_ERROR(CheckText("a session", wait.served_session_id()));
  }
  for (const v1::EndedLease& ended : report.ended_leases()) {
    DJINN_RETURN_IF_ERROR(CheckText("a reason", ended.reason()));
  }
  DJINN_RETURN_IF_ERROR(RunInquiries::Check(report));
  // Accepts addresses that are not local: clients decide whether to use them.
  const absl::Status address = CheckAddress(report.address(), true);
  if (!address.ok()) return Violation(address.message());
  return CheckSocket(report.shared_memory_socket());
}

absl::StatusOr<WorkerRegistry::Joined> WorkerRegistry::Join(
    const v1::WorkerState& report, uint64_t stream,
    std::shared_ptr<Waker> waker, absl::Duration now) {
  DJINN_RETURN_IF_ERROR(Check(report));
  if (!report.complete()) {
    return Violation("the first report of a stream is not complete");
  }
  std::unique_ptr<Worker>& slot = workers_[report.worker_id()];
  Joined joined;
  if (slot == nullptr) {
    slot = std::make_unique<Worker>();
    slot->id = report.worker_id();
  } else if (slot->incarnation != report.incarnation()) {
    if (slot->connected() && now - slot->last_report <= timeout_) {
      return MakeError(absl::StatusCode::kAlreadyExists, "WORKER_ID_IN_USE",
                       absl::StrCat("worker id \"", report.worker_id(),
                                    "\" is in use by a live worker at ",
                                    slot->facts.address),
                       {{"worker", report.worker_id()}});
    }
    joined.restarted = true;
    joined.silence = now - slot->last_report;
    slot->ends.drops.Clear();
    slot->served_phases = 0;
    ForgetWork(slot.get());
  }
  Worker* const worker = slot.get();
  joined.worker = worker;
  joined.replaced = std::move(worker->link.waker);
  worker->incarnation = report.incarnation();
  worker->state = v1::WorkerInfo::ACTIVE;
  worker->link.number = stream;
  worker->link.waker = std::move(waker);
  worker->link.revision = 0;
  worker->link.dirty = true;
  // Messages of an earlier stream may never have arrived.
  worker->link.unacknowledged.clear();
  worker->link.told_peers.clear();
  worker->ends.drops.Restart();
  worker->ends.closing.Restart();
  for (auto& [lease_id, settling] : worker->ends.settling)
    settling.revision = 0;
  for (const auto& [fingerprint, runs] : worker->load.graphs) {
    worker->load.untold.insert(fingerprint);
  }
  Apply(report, now, worker);
  return joined;
}

void WorkerRegistry::Apply(const v1::WorkerState& report, absl::Duration now,
                           Worker* worker) {
  ApplyWork(report, now, worker);
  worker->last_report = now;
  worker->facts.address = report.address();
  worker->facts.shared_memory_socket = report.shared_memory_socket();
  ApplyEndpoints(report, worker);
  worker->facts.device = report.device();
  worker->facts.numerics = report.numerics();
  worker->facts.memory_bytes = report.memory_bytes();
  worker->facts.free_bytes = report.free_bytes();
  worker->facts.queued_runs = report.queued_runs();
  worker->cache.contents.clear();
  worker->cache.by_size.clear();
  worker->cache.content_bytes = 0;
  worker->cache.content_count = static_cast<uint32_t>(report.contents_size());
  for (const v1::HeldContent& content : report.contents()) {
    worker->cache.contents[content.tenant()].insert(
        {ContentHash{content.hash_high(), content.hash_low()},
         content.size_bytes()});
    worker->cache.content_bytes += content.size_bytes();
  }
  worker->facts.speed = report.speed();
  worker->facts.price_per_hour = report.price_per_hour();
  worker->facts.link_bytes_per_second = report.link_bytes_per_second();
  worker->facts.client_bytes_per_second = report.client_bytes_per_second();
  worker->facts.links.clear();
  for (const v1::PeerLink& link : report.links()) {
    worker->facts.links[link.worker_id()] = link.bytes_per_second();
  }
  worker->facts.capabilities.assign(report.capabilities().begin(),
                                    report.capabilities().end());
  worker->facts.phases = 0;
  for (const int phase : report.phases()) {
    if (v1::Phase_IsValid(phase)) worker->facts.phases |= 1u << phase;
  }
  ApplyHeld(report, worker);
  worker->facts.memory = report.memory();
  worker->facts.plan_cache = report.plan_cache();
  worker->facts.content_cache = report.content_cache();
  worker->facts.disk.reset();
  if (report.has_disk()) worker->facts.disk = report.disk();
  worker->facts.executed = report.executed();
  worker->facts.gpu_health.reset();
  if (report.has_gpu_health()) worker->facts.gpu_health = report.gpu_health();
}

void WorkerRegistry::ApplyEndpoints(const v1::WorkerState& report,
                                    Worker* worker) {
  worker->facts.endpoints.clear();
  for (const v1::TenantEndpoint& endpoint : report.tenant_endpoints()) {
    worker->facts.endpoints[endpoint.tenant()] = endpoint;
  }
}

void WorkerRegistry::ApplyWork(const v1::WorkerState& report,
                               absl::Duration now, Worker* worker) {
  if (worker->load.reported) {
    ApplyExecuted(report.executed(), now - worker->last_report, worker);
  }
  const auto before = std::exchange(worker->load.graphs, {});
  worker->load.ran.clear();
  size_t stayed = 0;
  for (const v1::HeldGraph& graph : report.graphs()) {
    const auto found = before.find(graph.fingerprint());
    const bool known = found != before.end();
    const Worker::Runs old = known ? found->second : Worker::Runs();
    const auto [it, added] =
        worker->load.graphs.try_emplace(graph.fingerprint());
    Worker::Runs& runs = it->second;
    runs = {graph.run_count(), FromProtoDuration(graph.device_time()),
            graph.content_bytes()};
    if (known) {
      stayed += added ? 1 : 0;
    } else {
      with_graph_[graph.fingerprint()].insert(worker);
    }
    // A count that decreased belongs to another plan of the graph.
    if (!known || runs.count < old.count) {
      worker->load.untold.insert(graph.fingerprint());
    }
    if (!worker->load.reported) continue;
    if (runs.count > old.count && runs.device_time >= old.device_time) {
      worker->load.ran.push_back({graph.fingerprint(), runs.count - old.count,
                                  runs.device_time - old.device_time});
    }
  }
  worker->load.reported = true;
  if (stayed == before.size()) return;
  for (const auto& [fingerprint, runs] : before) {
    if (!worker->load.graphs.contains(fingerprint)) Unlist(fingerprint, worker);
  }
}

void WorkerRegistry::ForgetWork(Worker* worker) {
  for (const auto& [fingerprint, runs] : worker->load.graphs) {
    Unlist(fingerprint, worker);
  }
  worker->load.graphs.clear();
  worker->load.ran.clear();
  worker->facts.executed.Clear();
  worker->load.busy_share = 0;
  worker->load.seconds_per_run = 0;
  worker->load.queued_seconds = {};
  worker->load.reported = false;
}

void WorkerRegistry::Unlist(const std::string& fingerprint, Worker* worker) {
  worker->load.untold.erase(fingerprint);
  const auto found = with_graph_.find(fingerprint);
  found->second.erase(worker);
  if (found->second.empty()) with_graph_.erase(found);
}

void WorkerRegistry::ApplyHeld(const v1::WorkerState& report, Worker* worker) {
  worker->leases.changed.clear();
  worker->leases.arrived.clear();
  absl::flat_hash_set<std::string> released(report.released_lease_ids().begin(),
                                            report.released_lease_ids().end());
  if (report.complete()) {
    for (const auto& [lease_id, held] : worker->leases.held)
      released.insert(lease_id);
  }
  for (const v1::HeldSession& session : report.sessions()) {
    const v1::LeaseClaims lease = UncheckedClaims(session.lease());
    released.erase(lease.lease_id());
    Worker::Held held;
    held.session_id = lease.session_id();
    held.tenant = lease.tenant();
    held.storage_count = session.storage_count();
    held.storage_bytes = session.storage_bytes();
    held.attached = session.attached();
    held.use = session.use();
    held.lease_use = session.lease_use();
    held.out_of_credit = session.out_of_credit();
    if (session.has_yielded()) held.yielded = session.yielded();
    if (session.has_wait()) held.wait = session.wait();
    worker->leases.changed.push_back(lease.lease_id());
    SetHeld(lease.lease_id(), std::move(held), worker);
  }
  for (const std::string& lease_id : released) RemoveHeld(lease_id, worker);
}

void WorkerRegistry::SetHeld(const std::string& lease_id, Worker::Held held,
                             Worker* worker) {
  held.grown = FromProtoDuration(held.lease_use.device_time());
  const auto before = worker->leases.held.find(lease_id);
  const bool known = before != worker->leases.held.end();
  if (held.attached && !(known && before->second.attached)) {
    worker->leases.arrived.insert(held.tenant);
  }
  if (known) {
    held.grown -= FromProtoDuration(before->second.lease_use.device_time());
    RemoveHeld(lease_id, worker);
  }
  worker->leases.held_bytes[held.tenant] += held.storage_bytes;
  worker->leases.of_session[held.session_id].insert(lease_id);
  with_session_[held.session_id].insert(worker);
  if (held.out_of_credit) worker->leases.out_of_credit.insert(lease_id);
  if (held.use.queued_runs() > 0) worker->leases.queueing.insert(lease_id);
  worker->leases.held.insert_or_assign(lease_id, std::move(held));
}

void WorkerRegistry::RemoveHeld(const std::string& lease_id, Worker* worker) {
  const auto found = worker->leases.held.find(lease_id);
  if (found == worker->leases.held.end()) return;
  const Worker::Held& held = found->second;
  worker->leases.held_bytes[held.tenant] -= held.storage_bytes;
  worker->leases.out_of_credit.erase(lease_id);
  worker->leases.queueing.erase(lease_id);
  const auto leases = worker->leases.of_session.find(held.session_id);
  leases->second.erase(lease_id);
  if (leases->second.empty()) {
    worker->leases.of_session.erase(leases);
    const auto workers = with_session_.find(held.session_id);
    workers->second.erase(worker);
    if (workers->second.empty()) with_session_.erase(workers);
  }
  worker->leases.held.erase(found);
}

const WorkerRegistry::Workers& WorkerRegistry::Indexed(
    const absl::flat_hash_map<std::string, Workers>& index,
    const std::string& key) {
  static const Workers* const kNone = new Workers();
  const auto found = index.find(key);
  return found == index.end() ? *kNone : found->second;
}

const WorkerRegistry::Workers& WorkerRegistry::WithGraph(
    const std::string& fingerprint) const {
  return Indexed(with_graph_, fingerprint);
}

const WorkerRegistry::Workers& WorkerRegistry::WithSession(
    const std::string& session_id) const {
  return Indexed(with_session_, session_id);
}

void WorkerRegistry::Disconnect(Worker* worker) {
  worker->link.number = 0;
  worker->link.waker = nullptr;
}

std::vector<Worker*> WorkerRegistry::Overdue(absl::Duration now) {
  std::vector<Worker*> overdue;
  for (const auto& [id, worker] : workers_) {
    if (worker->state == v1::WorkerInfo::ACTIVE &&
        now - worker->last_report > timeout_) {
      overdue.push_back(worker.get());
    }
  }
  return overdue;
}

void WorkerRegistry::MarkLost(Worker* worker) {
  worker->state = v1::WorkerInfo::LOST;
  worker->cache.contents.clear();
  worker->cache.by_size.clear();
  worker->cache.content_bytes = 0;
  worker->cache.content_count = 0;
  ApplyHeld(NothingHeld(), worker);
  worker->facts.memory.reset();
  worker->facts.queued_runs = 0;
  ForgetWork(worker);
  worker->facts.free_bytes = 0;
  worker->facts.endpoints.clear();
  Disconnect(worker);
}

std::vector<std::string> WorkerRegistry::Forget(absl::Duration now) {
  std::vector<std::string> forgotten;
  std::erase_if(workers_, [&](const auto& entry) {
    const Worker& worker = *entry.second;
    const bool gone = worker.state == v1::WorkerInfo::LOST &&
                      now - worker.last_report > kForgetAfter &&
                      (worker.served_phases == 0 || now >= worker.serves_until);
    if (gone) forgotten.push_back(worker.id);
    return gone;
  });
  return forgotten;
}

void WorkerRegistry::Remove(Worker* worker) {
  // Takes it out of the indices.
  MarkLost(worker);
  workers_.erase(workers_.find(worker->id));
}

Worker* WorkerRegistry::Find(const std::string& id) {
  const auto found = workers_.find(id);
  return found == workers_.end() ? nullptr : found->second.get();
}

}  // namespace djinn::coordinator
