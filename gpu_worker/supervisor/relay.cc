#include "gpu_worker/supervisor/relay.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "common/base/proto_duration.h"
#include "common/lease/lease_verifier.h"

namespace djinn::worker {
namespace {

// Most phases that are kept for later executors.
constexpr size_t kMaxPhases = 65536;

void AddDuration(const google::protobuf::Duration& added,
                 google::protobuf::Duration* sum) {
  *sum = ToProtoDuration(FromProtoDuration(*sum) + FromProtoDuration(added));
}

void AddCache(const v1::CacheUse& added, v1::CacheUse* sum) {
  sum->set_entries(sum->entries() + added.entries());
  sum->set_size_bytes(sum->size_bytes() + added.size_bytes());
  sum->set_hits(sum->hits() + added.hits());
  sum->set_misses(sum->misses() + added.misses());
  sum->set_evictions(sum->evictions() + added.evictions());
}

void AddMemory(const v1::MemoryUse& added, v1::MemoryUse* sum) {
  sum->set_storage_bytes(sum->storage_bytes() + added.storage_bytes());
  sum->set_content_bytes(sum->content_bytes() + added.content_bytes());
  sum->set_idle_content_bytes(sum->idle_content_bytes() +
                              added.idle_content_bytes());
  sum->set_transfer_bytes(sum->transfer_bytes() + added.transfer_bytes());
  sum->set_cache_bytes(sum->cache_bytes() + added.cache_bytes());
}

// Most bytes that a nested message takes in addition to its own.
constexpr size_t kFieldBytes = 8;
// Most links in a report.
constexpr int kMaxLinks = 256;

// If several executors measured a link, the highest rate counts.
void AddLink(const v1::PeerLink& link, v1::WorkerState* state) {
  for (v1::PeerLink& known : *state->mutable_links()) {
    if (known.worker_id() != link.worker_id()) continue;
    known.set_bytes_per_second(
        std::max(known.bytes_per_second(), link.bytes_per_second()));
    return;
  }
  if (state->links_size() < kMaxLinks) *state->add_links() = link;
}

// Replaces the use by the last one if it is smaller.
void KeepUse(const v1::LeaseUse& last, v1::LeaseUse* use) {
  if (FromProtoDuration(use->device_time()) <
          FromProtoDuration(last.device_time()) ||
      use->bytes() < last.bytes()) {
    *use = last;
  }
}

// Adds the tenant's entry for a graph to `out`; entries of others stay hidden.
void AddPhase(const v1::GraphPhase& phase, const std::string& tenant,
              v1::DesiredState* out) {
  const auto& tenants = phase.tenants();
  if (!tenants.empty() &&
      std::find(tenants.begin(), tenants.end(), tenant) == tenants.end()) {
    return;
  }
  v1::GraphPhase* const added = out->add_graph_phases();
  *added = phase;
  added->clear_tenants();
  if (!tenants.empty()) added->add_tenants(tenant);
}

void AddBatching(const v1::DesiredState& desired, const std::string& tenant,
                 v1::DesiredState* out) {
  const auto& all = desired.batching_tenants();
  if (std::find(all.begin(), all.end(), tenant) != all.end()) {
    out->add_batching_tenants(tenant);
  }
}

}  // namespace

void AddExecution(const v1::ExecutionUse& added, v1::ExecutionUse* sum) {
  sum->set_runs(sum->runs() + added.runs());
  sum->set_nodes(sum->nodes() + added.nodes());
  sum->set_failed_nodes(sum->failed_nodes() + added.failed_nodes());
  sum->set_skipped_nodes(sum->skipped_nodes() + added.skipped_nodes());
  AddDuration(added.device_time(), sum->mutable_device_time());
  AddDuration(added.executor_time(), sum->mutable_executor_time());
  for (const v1::PhaseUse& phase : added.phases()) {
    v1::PhaseUse* same = nullptr;
    for (v1::PhaseUse& known : *sum->mutable_phases()) {
      if (known.phase() == phase.phase()) same = &known;
    }
    if (same == nullptr) {
      *sum->add_phases() = phase;
    } else {
      AddDuration(phase.device_time(), same->mutable_device_time());
    }
  }
}

void StandingOrders::Learn(const v1::DesiredState& desired) {
  // The first message of a stream lists all phases again.
  if (desired.revision() == 1) phases_.clear();
  for (const std::string& key_id : desired.retired_lease_key_ids()) {
    retired_keys_.insert(key_id);
  }
  for (const v1::Peer& peer : desired.peers()) {
    workers_.insert(peer.worker_id());
  }
  for (const v1::GraphPhase& phase : desired.graph_phases()) {
    if (phases_.size() >= kMaxPhases) break;
    if (phase.tenants().empty()) {
      phases_[{phase.fingerprint(), ""}] = phase;
    }
    for (const std::string& tenant : phase.tenants()) {
      v1::GraphPhase& one = phases_[{phase.fingerprint(), tenant}];
      one = phase;
      one.clear_tenants();
      one.add_tenants(tenant);
    }
  }
  last_ = desired;
}

v1::DesiredState StandingOrders::PartOf(const v1::DesiredState& desired,
                                        const std::string& tenant,
                                        const RelayedLeases& leases,
                                        const ExecutorReport& report) {
  v1::DesiredState part;
  *part.mutable_lease_keys() = desired.lease_keys();
  *part.mutable_retired_lease_key_ids() = desired.retired_lease_key_ids();
  AddBatching(desired, tenant, &part);
  for (const v1::GraphPhase& phase : desired.graph_phases()) {
    if (report.graphs().contains(phase.fingerprint())) {
      AddPhase(phase, tenant, &part);
    }
  }
  absl::flat_hash_set<std::string> sessions;
  for (const auto& [id, lease] : leases) sessions.insert(lease.session_id);
  for (const std::string& session_id : desired.drop_session_ids()) {
    if (sessions.contains(session_id)) part.add_drop_session_ids(session_id);
  }
  for (const v1::RunsQuestion& question : desired.runs_questions()) {
    if (sessions.contains(question.session_id())) {
      *part.add_runs_questions() = question;
    }
  }
  for (const std::string& lease_id : desired.drop_lease_ids()) {
    if (leases.contains(lease_id)) part.add_drop_lease_ids(lease_id);
  }
  for (const std::string& lease_id : desired.settled_lease_ids()) {
    if (leases.contains(lease_id)) part.add_settled_lease_ids(lease_id);
  }
  return part;
}

v1::DesiredState StandingOrders::AllFor(const std::string& tenant) const {
  v1::DesiredState all;
  *all.mutable_lease_keys() = last_.lease_keys();
  for (const std::string& key_id : retired_keys_) {
    all.add_retired_lease_key_ids(key_id);
  }
  AddBatching(last_, tenant, &all);
  return all;
}

void StandingOrders::AddPhases(const std::string& fingerprint,
                               const std::string& tenant,
                               v1::DesiredState* out) const {
  for (const std::string& of : {std::string(), tenant}) {
    const auto phase = phases_.find({fingerprint, of});
    if (phase != phases_.end()) *out->add_graph_phases() = phase->second;
  }
}

ReportNews ExecutorReport::Apply(v1::WorkerState report,
                                 const RelayedLeases& given) {
  ReportNews news;
  if (report.acknowledgement()) return news;
  std::map<std::string, v1::LeaseUse> before;
  if (report.complete()) {
    for (const auto& [id, held] : held_) before[id] = held.lease_use();
    for (const auto& [id, ended] : ended_) before[id] = ended.use();
    held_.clear();
    ended_.clear();
  }
  const auto keep_use = [&](const std::string& id, v1::LeaseUse* use) {
    const auto held = held_.find(id);
    if (held != held_.end()) KeepUse(held->second.lease_use(), use);
    const auto ended = ended_.find(id);
    if (ended != ended_.end()) KeepUse(ended->second.use(), use);
    const auto earlier = before.find(id);
    if (earlier != before.end()) KeepUse(earlier->second, use);
  };
  for (v1::HeldSession& session : *report.mutable_sessions()) {
    const std::string id = UncheckedClaims(session.lease()).lease_id();
    const auto lease = given.find(id);
    if (lease == given.end()) {
      news.strangers.push_back(id);
      continue;
    }
    // The supervisor's own copy stands, whatever the executor reports.
    *session.mutable_lease() = lease->second.lease;
    keep_use(id, session.mutable_lease_use());
    held_[id] = std::move(session);
  }
  for (const std::string& id : report.released_lease_ids()) held_.erase(id);
  for (v1::EndedLease& ended : *report.mutable_ended_leases()) {
    const std::string id = UncheckedClaims(ended.lease()).lease_id();
    const auto lease = given.find(id);
    // The end of an unknown lease is ignored: the worker has ended the lease,
    // or never had it.
    if (lease == given.end()) continue;
    *ended.mutable_lease() = lease->second.lease;
    keep_use(id, ended.mutable_use());
    ended.clear_reason();
    held_.erase(id);
    ended_[id] = std::move(ended);
  }
  for (const std::string& id : report.forgotten_lease_ids()) ended_.erase(id);
  absl::flat_hash_map<std::string, uint64_t> graphs;
  for (const v1::HeldGraph& graph : report.graphs()) {
    graphs[graph.fingerprint()] = graph.run_count();
    const auto before = graphs_.find(graph.fingerprint());
    // A count that decreased belongs to another plan, which knows no phase.
    if (before == graphs_.end() || graph.run_count() < before->second) {
      news.graphs.push_back(graph.fingerprint());
    }
  }
  graphs_ = std::move(graphs);
  report.clear_sessions();
  report.clear_ended_leases();
  last_ = std::move(report);
  return news;
}

void ExecutorReport::AddTo(const std::string& tenant, const ReportPart& part,
                           v1::WorkerState* state) const {
  size_t left = part.bytes;
  // Returns whether there is room for the message, and takes it.
  const auto fits = [&left](const google::protobuf::MessageLite& message) {
    const size_t size = message.ByteSizeLong() + kFieldBytes;
    const bool room = size <= left;
    left -= std::min(size, left);
    return room;
  };
  for (const auto& [id, held] : held_) {
    v1::HeldSession* const added = state->add_sessions();
    *added = held;
    if (fits(held)) continue;
    added->clear_use();
    added->clear_yielded();
    added->clear_wait();
  }
  for (const auto& [id, ended] : ended_) {
    (void)fits(ended);
    *state->add_ended_leases() = ended;
  }
  for (const v1::RunsAnswer& answer : last_.runs_answers()) {
    if (fits(answer)) *state->add_runs_answers() = answer;
  }
  constexpr uint32_t kMost = std::numeric_limits<uint32_t>::max();
  state->set_queued_runs(
      state->queued_runs() +
      std::min(last_.queued_runs(), kMost - state->queued_runs()));
  size_t contents = part.contents;
  for (const v1::HeldContent& content : last_.contents()) {
    if (contents-- == 0) break;
    v1::HeldContent* const added = state->add_contents();
    added->set_tenant(tenant);
    added->set_hash_high(content.hash_high());
    added->set_hash_low(content.hash_low());
    added->set_size_bytes(content.size_bytes());
  }
  absl::flat_hash_map<std::string, v1::HeldGraph*> graphs;
  for (v1::HeldGraph& known : *state->mutable_graphs()) {
    graphs[known.fingerprint()] = &known;
  }
  size_t more_graphs = part.graphs;
  for (const v1::HeldGraph& graph : last_.graphs()) {
    const auto found = graphs.find(graph.fingerprint());
    if (found == graphs.end()) {
      if (more_graphs > 0 && fits(graph)) {
        --more_graphs;
        *state->add_graphs() = graph;
      }
      continue;
    }
    v1::HeldGraph* const same = found->second;
    same->set_run_count(same->run_count() + graph.run_count());
    same->set_content_bytes(
        std::max(same->content_bytes(), graph.content_bytes()));
    AddDuration(graph.device_time(), same->mutable_device_time());
  }
  AddMemory(last_.memory(), state->mutable_memory());
  AddCache(last_.plan_cache(), state->mutable_plan_cache());
  AddCache(last_.content_cache(), state->mutable_content_cache());
  AddExecution(last_.executed(), state->mutable_executed());
  state->set_client_bytes_per_second(std::max(state->client_bytes_per_second(),
                                              last_.client_bytes_per_second()));
  for (const v1::PeerLink& link : last_.links()) AddLink(link, state);
}

v1::LeaseUse ExecutorReport::UseOf(const std::string& lease_id) const {
  const auto held = held_.find(lease_id);
  return held == held_.end() ? v1::LeaseUse() : held->second.lease_use();
}

uint64_t ExecutorReport::used_bytes() const {
  return last_.memory_bytes() -
         std::min(last_.memory_bytes(), last_.free_bytes());
}

}  // namespace djinn::worker
