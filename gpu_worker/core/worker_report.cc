#include "gpu_worker/core/worker_report.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/proto_duration.h"
#include "common/lease/phase_times.h"
#include "common/net/protocol_version.h"
#include "djinn/v1/usage.pb.h"
#include "gpu_worker/plan/graph_cache.h"
#include "gpu_worker/plan/run_context.h"
#include "gpu_worker/pull/link_rates.h"
#include "gpu_worker/session/uploads/upload_rate.h"
#include "gpu_worker/store/content_cache.h"
#include "gpu_worker/store/content_store.h"
#include "gpu_worker/store/device_memory.h"
#include "gpu_worker/store/disk_report.h"

namespace djinn::worker {
namespace {

// The most questions answered at a time, however many the coordinator lists.
constexpr size_t kMaxQuestions = 64;

// Contents on disk are left out beyond this number of contents, so that a
// report stays well below the message limit. The cache limits the contents in
// memory.
constexpr size_t kMaxReportedContents = 64 << 10;

void ReportMemory(const Ledger::Usage& usage, uint64_t idle_content_bytes,
                  uint64_t cache_bytes, v1::MemoryUse* memory) {
  const auto bytes = [&](MemoryClass memory_class) {
    return usage.by_class[static_cast<size_t>(memory_class)];
  };
  memory->set_storage_bytes(bytes(MemoryClass::kStorages));
  memory->set_cache_bytes(std::min(cache_bytes, bytes(MemoryClass::kStorages)));
  memory->set_content_bytes(bytes(MemoryClass::kContents));
  memory->set_idle_content_bytes(idle_content_bytes);
  memory->set_transfer_bytes(bytes(MemoryClass::kTransfers));
}

template <typename Stats>
void ReportCache(const Stats& stats, v1::CacheUse* cache) {
  cache->set_hits(stats.hits);
  cache->set_misses(stats.misses);
  cache->set_evictions(stats.evictions);
}

void ReportExecuted(const ExecutionCounters& counters,
                    v1::ExecutionUse* executed) {
  executed->set_runs(counters.runs);
  executed->set_nodes(counters.nodes);
  executed->set_failed_nodes(counters.failed_nodes);
  executed->set_skipped_nodes(counters.skipped_nodes);
}

}  // namespace

WorkerReport::WorkerReport(const SessionEnvironment& environment,
                           const Parts& parts)
    : environment_(environment),
      parts_(parts),
      device_(*environment.memory->device()),
      ledger_(*environment.memory->ledger()) {}

bool WorkerReport::SetQuestions(std::vector<v1::RunsQuestion> questions) {
  MutexLock lock(&mu_);
  questions_ = std::move(questions);
  return !questions_.empty();
}

uint64_t WorkerReport::CacheBytes(const StreamTable::SessionMap& sessions) {
  uint64_t bytes = 0;
  for (const auto& [lease_id, entry] : sessions) {
    bytes += entry.session->quota().used(StorageClass::kCache).bytes;
  }
  return bytes;
}

uint64_t WorkerReport::LostBytes(uint64_t used_contents,
                                 const StreamTable::SessionMap& sessions) {
  uint64_t own = 0;
  uint64_t lost_contents = 0;
  uint64_t kept_contents = 0;
  for (const auto& [lease_id, entry] : sessions) {
    const SessionQuota& quota = entry.session->quota();
    const uint64_t shared = quota.used(StorageClass::kContent).bytes;
    if (entry.lost && !entry.session->executing()) {
      lost_contents += shared;
      own += quota.used() - std::min(quota.used(), shared);
    } else {
      kept_contents += shared;
    }
  }
  // Sessions may share a content, and each counts it.
  const uint64_t unshared =
      used_contents - std::min(used_contents, kept_contents);
  return own + std::min(unshared, lost_contents);
}

std::optional<v1::MessageWait> WorkerReport::WaitOf(
    const StreamTable::Entry& entry, absl::Duration now) const {
  std::optional<v1::MessageWait> wait = entry.session->wait();
  if (!wait.has_value() || wait->what() != v1::MessageWait::TURN) return wait;
  return parts_.executor.queue().DescribeWait(entry.queue_key, *std::move(wait),
                                              now);
}

void WorkerReport::ReportSessions(const std::vector<std::string>& lease_ids,
                                  const StreamTable::SessionMap& sessions,
                                  v1::WorkerState* state) const {
  uint32_t queued_runs = 0;
  const absl::Duration now = environment_.clock->Monotonic();
  for (size_t i = 0; i < lease_ids.size(); ++i) {
    const auto found = sessions.find(lease_ids[i]);
    if (found == sessions.end()) continue;
    const StreamTable::Entry& entry = found->second;
    v1::HeldSession* const held = state->mutable_sessions(static_cast<int>(i));
    held->set_storage_count(entry.session->status().storages);
    held->set_storage_bytes(entry.session->quota().used());
    held->set_attached(entry.attached);
    *held->mutable_use() = entry.session->use();
    if (auto wait = WaitOf(entry, now); wait.has_value()) {
      *held->mutable_wait() = *std::move(wait);
    }
    queued_runs += entry.session->next().queued_runs();
  }
  state->set_queued_runs(queued_runs);
}

void WorkerReport::AnswerRuns(v1::WorkerState* state) const {
  std::vector<v1::RunsQuestion> questions;
  {
    MutexLock lock(&mu_);
    questions = questions_;
  }
  questions.resize(std::min(questions.size(), kMaxQuestions));
  for (const v1::RunsQuestion& question : questions) {
    v1::RunsAnswer* const answer = state->add_runs_answers();
    answer->set_question_id(question.question_id());
    for (const std::string& lease_id :
         parts_.leases.LeasesOf(question.session_id())) {
      const std::optional<Lease> lease = parts_.leases.Find(lease_id);
      const std::optional<StreamTable::Entry> entry =
          parts_.streams.Find(lease_id);
      if (!lease.has_value() || !entry.has_value()) continue;
      const absl::Duration now = environment_.clock->Monotonic();
      v1::LeaseRuns* const runs = answer->add_leases();
      runs->set_lease_id(lease_id);
      entry->session->DescribeRuns(runs);
      // The session waits for credit, and has received none since.
      runs->set_out_of_credit(lease->meter->waiting() &&
                              !lease->meter->HasCredit());
      if (auto wait = WaitOf(*entry, now); wait.has_value()) {
        *runs->mutable_wait() = *std::move(wait);
      }
      for (v1::RunRecord& run : *runs->mutable_runs()) {
        if (run.state() != v1::RunRecord::IN_SERVICE) continue;
        if (auto first =
                parts_.executor.queue().PreemptorOf(entry->queue_key, now)) {
          *run.mutable_preempted_by() = *std::move(first);
        }
      }
    }
  }
}

void WorkerReport::ReportCaches(v1::WorkerState* state) const {
  const ContentCache::Stats contents = environment_.contents->stats();
  v1::CacheUse* const content_cache = state->mutable_content_cache();
  ReportCache(contents, content_cache);
  content_cache->set_entries(contents.entries);
  content_cache->set_size_bytes(contents.bytes);
  std::vector<ContentCache::Content> held = environment_.contents->List();
  if (environment_.store != nullptr) {
    const auto disk = environment_.store->stats();
    if (disk.has_value()) *state->mutable_disk() = DescribeDisk(*disk);
    // Clients need not send contents that are on disk, either.
    for (ContentCache::Content& content : environment_.store->List()) {
      if (held.size() >= kMaxReportedContents) break;
      if (environment_.contents->Peek(content.tenant, content.hash,
                                      content.size_bytes) == nullptr) {
        held.push_back(std::move(content));
      }
    }
  }
  for (ContentCache::Content& content : held) {
    v1::HeldContent* const added = state->add_contents();
    added->set_tenant(std::move(content.tenant));
    added->set_hash_high(content.hash.high);
    added->set_hash_low(content.hash.low);
    added->set_size_bytes(content.size_bytes);
  }
  const GraphCache::Stats plans = environment_.graphs->stats();
  ReportCache(plans, state->mutable_plan_cache());
  state->mutable_plan_cache()->set_entries(plans.plans);
  state->mutable_plan_cache()->set_size_bytes(plans.bytes);
  for (const std::shared_ptr<const Plan>& plan : environment_.graphs->List()) {
    v1::HeldGraph* held = state->add_graphs();
    held->set_fingerprint(plan->fingerprint());
    held->set_run_count(plan->runs());
    held->set_content_bytes(plan->content_bytes());
    *held->mutable_device_time() = ToProtoDuration(plan->device_time());
  }
}

v1::WorkerState WorkerReport::Snapshot() const {
  v1::WorkerState state;
  state.set_worker_id(environment_.worker_id);
  state.set_incarnation(parts_.incarnation);
  state.set_protocol_version(kProtocolVersion);
  state.set_device(device_.name());
  const Ledger::Usage usage = ledger_.usage();
  state.set_memory_bytes(usage.limit);
  const ContentCache::Stats contents = environment_.contents->stats();
  ReportCaches(&state);
  state.set_client_bytes_per_second(environment_.uploads->BytesPerSecond());
  for (v1::PeerLink& link : environment_.links->Known()) {
    *state.add_links() = std::move(link);
  }
  ReportExecuted(*environment_.counters, state.mutable_executed());
  const PhaseTimes busy = parts_.executor.busy();
  *state.mutable_executed()->mutable_device_time() =
      ToProtoDuration(busy.total());
  busy.Describe(state.mutable_executed()->mutable_phases());
  // Read after the device time, so that it is at least as much.
  *state.mutable_executed()->mutable_executor_time() =
      ToProtoDuration(parts_.executor.worked());
  // Listed before the sessions are copied, so that the copy has the session of
  // every listed lease.
  const std::vector<std::string> lease_ids = parts_.leases.Report(&state);
  const StreamTable::SessionMap sessions = parts_.streams.Sessions();
  // Spare memory, idle contents and lost sessions are reclaimed for any
  // allocation.
  const uint64_t spare =
      usage.by_class[static_cast<size_t>(MemoryClass::kSpare)];
  state.set_free_bytes(
      std::min(usage.limit,
               usage.limit - usage.used + spare + contents.idle_bytes +
                   LostBytes(contents.bytes - contents.idle_bytes, sessions)));
  ReportMemory(usage, contents.idle_bytes, CacheBytes(sessions),
               state.mutable_memory());
  ReportSessions(lease_ids, sessions, &state);
  AnswerRuns(&state);
  return state;
}

}  // namespace djinn::worker
