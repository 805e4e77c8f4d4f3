#include "coordinator/console/testing/simulated_cluster.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "common/base/status_macros.h"

namespace djinn::console {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr int kGraphs = 5;
constexpr int kGraphNodes = 200;
constexpr v1::Phase kPhases[] = {v1::PHASE_FORWARD, v1::PHASE_LLM_PREFILL,
                                 v1::PHASE_LLM_DECODE,
                                 v1::PHASE_VISION_ENCODING, v1::PHASE_TRAINING};

std::string SessionName(int session) {
  return absl::StrFormat("s%07d", session);
}
int SessionNumber(const std::string& name) {
  int number = -1;
  return absl::SimpleAtoi(name.substr(1), &number) ? number : -1;
}
std::string WorkerName(int worker) { return absl::StrFormat("w%05d", worker); }
std::string TenantName(int tenant) {
  return absl::StrFormat("tenant-%02d", tenant);
}
std::string Fingerprint(int graph) {
  return absl::StrFormat("%064x", 0xabcdef00 + graph);
}

// Spreads small numbers, so that pictures do not look like stairs.
uint64_t Mixed(uint64_t n) { return n * 0x9e3779b97f4a7c15u >> 40; }

google::protobuf::Duration Millis(double count) {
  return ToProtoDuration(absl::Milliseconds(count));
}

// Fills in a graph of layers, each with a weight, a branch and a sum.
void AddNodes(int count, v1::Phase phase, v1::GraphInfo* graph) {
  v1::GraphMeaning* const meaning = graph->mutable_meaning();
  for (int i = 0; i < count; ++i) {
    v1::GraphNode* const node = graph->add_nodes();
    v1::NodeMeaning* const what = meaning->add_nodes();
    const int kind = i % 4;
    node->set_operator_name(kind == 0   ? "aten::linear"
                            : kind == 1 ? "aten::gelu"
                            : kind == 2 ? "aten::mul.Tensor"
                                        : "aten::add.Tensor");
    what->set_role(kind == 0 ? "mlp.up" : "");
    what->set_phase(phase);
    what->mutable_cost()->set_flops(kind == 0 ? 40'000'000 : 200'000);
    what->mutable_cost()->set_read_bytes(kind == 0 ? 4'000'000 : 100'000);
    what->mutable_cost()->set_written_bytes(50'000);
    // Slot 2 i is the result, slot 2 i + 1 a weight of a linear layer.
    node->add_results()->set_slot(static_cast<uint32_t>(2 * i));
    v1::SlotMeaning* const result = meaning->add_slots();
    result->set_residency(v1::RESIDENCY_EPHEMERAL_ACTIVATION);
    result->set_size_bytes(50'000);
    v1::SlotMeaning* const weight = meaning->add_slots();
    if (kind == 0) {
      weight->set_residency(i % 8 == 0 ? v1::RESIDENCY_PERSISTENT_WEIGHT
                                       : v1::RESIDENCY_STATEFUL_KV_CACHE);
      weight->set_size_bytes(4'000'000);
      node->add_operands()->set_slot(static_cast<uint32_t>(2 * i + 1));
    }
    const auto edge = [&](int from, double criticality) {
      if (from < 0) return;
      v1::GraphEdge* const one = meaning->add_edges();
      one->set_producer(static_cast<uint32_t>(from));
      one->set_consumer(static_cast<uint32_t>(i));
      one->set_slot(static_cast<uint32_t>(2 * from));
      one->set_size_bytes(50'000);
      one->set_criticality(criticality);
    };
    // 1 and 2 both read 0; 3 adds them.
    edge(kind == 2 ? i - 2 : i - 1, kind == 2 ? 0.6 : 1);
    if (kind == 3) edge(i - 2, 0.6);
  }
  v1::GraphStage* const stage = meaning->add_stages();
  stage->set_node_count(static_cast<uint32_t>(count));
  stage->set_phase(phase);
  stage->mutable_cost()->set_flops(uint64_t{10'000'000} * count);
}

v1::GraphInfo MakeGraph(int index, int nodes) {
  v1::GraphInfo graph;
  graph.set_fingerprint(Fingerprint(index));
  graph.set_node_count(static_cast<uint32_t>(nodes));
  graph.set_run_count(1000 - 100 * index);
  graph.set_ordinal(index);
  graph.add_worker_ids(WorkerName(0));
  v1::GraphMeaning* const meaning = graph.mutable_meaning();
  meaning->set_phase(kPhases[index]);
  meaning->mutable_cost()->set_flops(uint64_t{10'000'000} * nodes);
  meaning->mutable_cost()->set_read_bytes(uint64_t{1'000'000} * nodes);
  meaning->set_peak_bytes(2 * kGiB);
  meaning->set_weight_bytes(kGiB);
  return graph;
}

}  // namespace

void SimulatedCluster::Fail(absl::Status status) {
  MutexLock lock(&mu_);
  failure_ = std::move(status);
}

void SimulatedCluster::Lose(int worker) {
  MutexLock lock(&mu_);
  lost_worker_ = worker;
}

std::string SimulatedCluster::Tenant(int session) const {
  return TenantName(session % options_.tenants);
}

absl::Duration SimulatedCluster::Elapsed() const {
  return options_.clock == nullptr ? absl::ZeroDuration()
                                   : options_.clock->Monotonic() - began_;
}

int SimulatedCluster::WorkerOf(int session) const {
  const int worker = session % options_.workers;
  return worker == lost_worker_ ? (worker + 1) % options_.workers : worker;
}

std::string SimulatedCluster::LeaseOf(int session) const {
  return absl::StrCat("lease-", session, "-", WorkerOf(session));
}

absl::StatusOr<v1::ListWorkersResponse> SimulatedCluster::Workers() {
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(failure_);
  ++looks_;
  v1::ListWorkersResponse all;
  for (int i = 0; i < options_.workers; ++i) {
    v1::WorkerInfo* const worker = all.add_workers();
    const uint64_t mixed = Mixed(static_cast<uint64_t>(i) + 1);
    worker->set_worker_id(WorkerName(i));
    worker->set_state(i == lost_worker_ ? v1::WorkerInfo::LOST
                                        : v1::WorkerInfo::ACTIVE);
    worker->set_device(i % 4 == 0 ? "NVIDIA H200" : "CPU");
    worker->set_memory_bytes(80 * kGiB);
    v1::MemoryUse* const memory = worker->mutable_memory();
    memory->set_content_bytes(mixed % 40 * kGiB);
    memory->set_idle_content_bytes(mixed % 40 * kGiB / 4);
    memory->set_storage_bytes((mixed + static_cast<uint64_t>(looks_)) % 30 *
                              kGiB);
    memory->set_cache_bytes(memory->storage_bytes() / 2);
    memory->set_transfer_bytes(kGiB);
    worker->set_free_bytes(worker->memory_bytes() - memory->content_bytes() -
                           memory->storage_bytes() - kGiB);
    worker->mutable_content_cache()->set_evictions(
        static_cast<uint64_t>(looks_) * (mixed % 3));
    worker->set_busy_share(static_cast<double>(mixed % 100) / 100);
    worker->set_lease_count(
        static_cast<uint32_t>(options_.sessions / options_.workers));
    worker->mutable_speed()->set_flops_per_second(1e12);
    worker->mutable_speed()->set_bytes_per_second(1e11);
  }
  return all;
}

absl::StatusOr<v1::ListSessionsResponse> SimulatedCluster::Sessions() {
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(failure_);
  v1::ListSessionsResponse all;
  for (int i = 0; i < options_.sessions; ++i) {
    v1::SessionInfo* const session = all.add_sessions();
    session->set_session_id(SessionName(i));
    session->set_tenant(Tenant(i));
    session->set_state(v1::SessionInfo::ATTACHED);
    session->add_lease_ids(LeaseOf(i));
    if (options_.migrated_every == 0 || i % options_.migrated_every != 0) {
      continue;
    }
    v1::MigrationInfo* const migration = session->add_migrations();
    migration->set_from_worker_id(WorkerName((i + 1) % options_.workers));
    migration->set_to_worker_id(WorkerName(i % options_.workers));
    migration->set_reason("drain");
    migration->set_state(v1::MigrationInfo::DONE);
    migration->set_moved_bytes(3 * kGiB);
    *migration->mutable_paused() = Millis(42);
    *migration->mutable_age() = ToProtoDuration(absl::Seconds(30) + Elapsed());
  }
  return all;
}

absl::StatusOr<v1::ListTenantsResponse> SimulatedCluster::Tenants() {
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(failure_);
  v1::ListTenantsResponse all;
  for (int i = 0; i < options_.tenants; ++i) {
    v1::TenantInfo* const tenant = all.add_tenants();
    tenant->set_tenant(TenantName(i));
    tenant->set_cohort(i % 2 == 0 ? "lab" : "production");
    tenant->set_weight(1 + i % 3);
    v1::ResourceQuota* const quota = tenant->add_quotas();
    quota->set_resource("memory_bytes");
    quota->set_nominal(static_cast<double>(100 * kGiB));
    quota->set_borrowing_limit(static_cast<double>(50 * kGiB));
    quota->set_lending_limit(static_cast<double>(40 * kGiB));
    const bool borrows = i % 4 < 2;
    quota->set_used(static_cast<double>((borrows ? 125 : 60) * kGiB));
    quota->set_borrowed(static_cast<double>((borrows ? 25 : 0) * kGiB));
    quota->set_lent(static_cast<double>((borrows ? 0 : 25) * kGiB));
  }
  return all;
}

absl::StatusOr<v1::ListQueuesResponse> SimulatedCluster::Queues() {
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(failure_);
  v1::ListQueuesResponse all;
  for (int i = 0; i < options_.tenants; ++i) {
    v1::QueueInfo* const queue = all.add_queues();
    queue->set_tenant(TenantName(i));
    v1::TenantStanding* const standing = queue->mutable_standing();
    standing->set_fair_share(1.0 / options_.tenants);
    standing->set_device_time_share(
        2.0 * (i + 1) / (options_.tenants * (options_.tenants + 1)));
    *standing->mutable_used()->mutable_device_time() = Millis(5000.0 * (i + 1));
    if (i != 0) continue;
    standing->set_waiting_count(2);
    *queue->mutable_oldest_wait() = Millis(7000);
    v1::WaitingFor* const waiting = queue->add_waiting();
    waiting->set_reason("NO_CAPACITY");
    waiting->set_count(2);
  }
  return all;
}

absl::StatusOr<v1::ListLeasesResponse> SimulatedCluster::Leases() {
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(failure_);
  v1::ListLeasesResponse all;
  for (int i = 0; i < options_.sessions; ++i) {
    v1::LeaseInfo* const lease = all.add_leases();
    lease->set_lease_id(LeaseOf(i));
    lease->set_session_id(SessionName(i));
    lease->set_tenant(Tenant(i));
    lease->set_worker_id(WorkerName(WorkerOf(i)));
    lease->set_state(v1::LeaseInfo::IN_USE);
    lease->set_placement_reason("least loaded of 3");
    *lease->mutable_age() = ToProtoDuration(WorkerOf(i) == i % options_.workers
                                                ? absl::Seconds(10) + Elapsed()
                                                : absl::ZeroDuration());
    *lease->mutable_lease_use()->mutable_device_time() = Millis(500.0 * looks_);
    const uint64_t mixed = Mixed(static_cast<uint64_t>(i) + 1);
    lease->mutable_use()->mutable_contents()->set_size_bytes(mixed % 9 * kGiB);
    lease->mutable_use()->mutable_storages()->set_size_bytes(mixed % 5 * kGiB);
    lease->mutable_use()->mutable_caches()->set_size_bytes(mixed % 7 * kGiB);
  }
  return all;
}

absl::StatusOr<v1::ListGraphsResponse> SimulatedCluster::Graphs() {
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(failure_);
  v1::ListGraphsResponse all;
  for (int i = 0; i < kGraphs; ++i) {
    *all.add_graphs() = MakeGraph(i, kGraphNodes);
  }
  return all;
}

absl::StatusOr<v1::GraphInfo> SimulatedCluster::Graph(
    const std::string& fingerprint) {
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(failure_);
  for (int i = 0; i < kGraphs; ++i) {
    if (Fingerprint(i) != fingerprint) continue;
    v1::GraphInfo graph = MakeGraph(i, kGraphNodes);
    AddNodes(kGraphNodes, kPhases[i], &graph);
    return graph;
  }
  return MakeError(absl::StatusCode::kNotFound, "GRAPH_UNKNOWN",
                   "no graph \"" + fingerprint + "\"");
}

absl::StatusOr<v1::ListRunsResponse> SimulatedCluster::Runs(
    const std::string& session_id) {
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(failure_);
  const int session = SessionNumber(session_id);
  asked_.resize(static_cast<size_t>(options_.sessions));
  const int asked = asked_[static_cast<size_t>(session)]++;
  v1::ListRunsResponse all;
  for (int i = 0; i < options_.runs; ++i) {
    v1::RunInfo* const run = all.add_runs();
    run->set_session_id(session_id);
    run->set_tenant(Tenant(session));
    run->set_worker_id(WorkerName(WorkerOf(session)));
    run->set_lease_id(LeaseOf(session));
    v1::RunRecord* const record = run->mutable_record();
    // The run that was in service at the last question has ended.
    const int number = asked * (options_.runs - 1) + i;
    const uint64_t mixed = Mixed(static_cast<uint64_t>(session * 131 + number));
    record->set_number(static_cast<uint64_t>(number) + 1);
    const int graph = static_cast<int>(mixed % kGraphs);
    record->set_fingerprint(Fingerprint(graph));
    record->set_phase(kPhases[graph]);
    const bool last = i + 1 == options_.runs;
    const double each = 1500.0 / options_.runs;
    const double age = each * (options_.runs - i);
    const double waited = each * 0.1 * static_cast<double>(mixed % 4);
    *record->mutable_age() = Millis(age);
    *record->mutable_waited() = Millis(waited);
    *record->mutable_served() = Millis(last ? age - waited : each * 0.6);
    *record->mutable_device_time() = Millis(each * 0.5);
    record->set_state(last ? v1::RunRecord::IN_SERVICE
                           : v1::RunRecord::COMPLETED);
    if (mixed % 17 == 0) {
      record->set_yield_count(1);
      *record->mutable_yielded_for() = Millis(each * 0.1);
      v1::RunPreemption* const by = record->add_preemptions();
      by->set_tenant(TenantName(0));
      by->set_reason("higher_priority");
    }
    if (mixed % 41 == 0 && !last) {
      record->set_state(v1::RunRecord::FAILED);
      record->mutable_failure()->set_reason("OPERATOR_FAILED");
    }
  }
  return all;
}

absl::StatusOr<v1::SessionExplanation> SimulatedCluster::ExplainSession(
    const std::string& session_id) {
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(failure_);
  const int session = SessionNumber(session_id);
  v1::SessionExplanation why;
  why.set_session_id(session_id);
  why.set_tenant(Tenant(session));
  v1::DeviceExplanation* const device = why.add_devices();
  const bool moved = WorkerOf(session) != session % options_.workers;
  if (!moved &&
      (options_.lost_every == 0 || session % options_.lost_every != 0)) {
    return why;
  }
  const int from =
      moved ? session % options_.workers : (session + 2) % options_.workers;
  v1::LostLease* const lost = device->mutable_lost_lease();
  lost->set_lease_id(absl::StrCat("lease-", session, "-", from));
  lost->set_worker_id(WorkerName(from));
  lost->set_reason("WORKER_LOST");
  *lost->mutable_lost() = Millis(1234);
  *lost->mutable_age() =
      ToProtoDuration(absl::Seconds(moved ? 0 : 12) + Elapsed());
  return why;
}

absl::StatusOr<v1::TenantExplanation> SimulatedCluster::ExplainTenant(
    const std::string& tenant) {
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(failure_);
  v1::TenantExplanation why;
  why.set_tenant(tenant);
  v1::TenantExplanation::Held* const held = why.add_held();
  held->set_session_id("waiting1");
  held->mutable_gate()->set_reason("NO_CAPACITY");
  held->mutable_gate()->set_message("no worker has 16 GiB free");
  held->mutable_gate()->set_unblocked_by("a session that ends");
  return why;
}

}  // namespace djinn::console
