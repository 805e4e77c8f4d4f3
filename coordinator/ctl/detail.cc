#include "coordinator/ctl/detail.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/lease/phase_times.h"
#include "common/lease/priority_class.h"
#include "coordinator/ctl/lineage.h"
#include "coordinator/ctl/reports.h"
#include "coordinator/ctl/table.h"

namespace djinn::ctl {
namespace {

// Number of models that a line names, the largest first.
constexpr size_t kNamedModels = 4;

std::string Counted(uint64_t count, absl::string_view what, uint64_t bytes) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s", ", ",
                      FormatBytes(bytes));
}

// Formats a duration with three significant digits.
std::string Seconds(const google::protobuf::Duration& duration) {
  return absl::StrFormat("%.3gs", static_cast<double>(duration.seconds()) +
                                      1e-9 * duration.nanos());
}

// Formats a duration with three decimals, so that a column aligns.
std::string Precisely(const google::protobuf::Duration& duration) {
  return absl::StrFormat("%.3fs", static_cast<double>(duration.seconds()) +
                                      1e-9 * duration.nanos());
}

std::string OfLimit(uint64_t used, uint64_t limit) {
  return absl::StrCat(FormatBytes(used), " of ", FormatBytes(limit));
}

void AddUse(const v1::SessionUse& use, std::vector<Row>* rows) {
  const auto add = [rows](const char* name, const v1::StorageUse& storages) {
    rows->push_back(
        {name, Counted(storages.count(), "storage", storages.size_bytes())});
  };
  add("contents", use.contents());
  add("own storages", use.storages());
  add("caches", use.caches());
  add("generators", use.generators());
  rows->push_back({"models", DescribeModels(use)});
  rows->push_back({"runs in flight", absl::StrCat(use.queued_runs())});
}

std::string ByPhase(
    const google::protobuf::RepeatedPtrField<v1::PhaseUse>& phases) {
  return absl::StrJoin(phases, ", ",
                       [](std::string* out, const v1::PhaseUse& phase) {
                         absl::StrAppend(out, PhaseName(phase.phase()), " ",
                                         Precisely(phase.device_time()));
                       });
}

// Adds the use, and the grant where there is a limit.
void AddCredits(const v1::LeaseUse& used, const v1::LeaseCredits& granted,
                std::vector<Row>* rows) {
  std::string time = FormatDuration(used.device_time());
  if (granted.has_device_time()) {
    absl::StrAppend(&time, " of ", FormatDuration(granted.device_time()));
  }
  rows->push_back({"device time", time});
  if (used.phases_size() > 0) {
    rows->push_back({"time by phase", ByPhase(used.phases())});
  }
  rows->push_back({"bytes moved", granted.has_bytes()
                                      ? OfLimit(used.bytes(), granted.bytes())
                                      : FormatBytes(used.bytes())});
}

// Adds the limits of a session at one worker, and the use of each there.
void AddUseOfLimits(const v1::SessionUse& use, const v1::SessionLimits& limits,
                    std::vector<Row>* rows) {
  const uint64_t bytes =
      use.contents().size_bytes() + use.storages().size_bytes() +
      use.caches().size_bytes() + use.generators().size_bytes();
  rows->push_back({"memory", OfLimit(bytes, limits.memory_bytes())});
  if (limits.has_content_bytes()) {
    rows->push_back({"content memory", OfLimit(use.contents().size_bytes(),
                                               limits.content_bytes())});
  }
  // Without a limit of their own, caches count as storage memory.
  const uint64_t caches =
      limits.has_cache_bytes() ? use.caches().size_bytes() : 0;
  if (limits.has_storage_bytes()) {
    rows->push_back(
        {"storage memory", OfLimit(bytes - use.contents().size_bytes() - caches,
                                   limits.storage_bytes())});
  }
  if (limits.has_cache_bytes()) {
    rows->push_back({"cache memory", OfLimit(caches, limits.cache_bytes())});
  }
  rows->push_back(
      {"outstanding",
       absl::StrCat(
           use.outstanding(), " of ", limits.max_outstanding(), " messages, ",
           OfLimit(use.outstanding_bytes(), limits.max_outstanding_bytes()))});
  rows->push_back(
      {"graphs", absl::StrCat(use.graph_count(), " of ", limits.max_graphs())});
}

void AddLimits(const v1::SessionLimits& limits, std::vector<Row>* rows) {
  rows->push_back({"memory limit", FormatBytes(limits.memory_bytes())});
  if (limits.has_content_bytes()) {
    rows->push_back(
        {"content memory limit", FormatBytes(limits.content_bytes())});
  }
  if (limits.has_storage_bytes()) {
    rows->push_back(
        {"storage memory limit", FormatBytes(limits.storage_bytes())});
  }
  if (limits.has_cache_bytes()) {
    rows->push_back({"cache memory limit", FormatBytes(limits.cache_bytes())});
  }
  rows->push_back({"outstanding limit",
                   absl::StrCat(limits.max_outstanding(), " messages, ",
                                FormatBytes(limits.max_outstanding_bytes()))});
  rows->push_back({"inline limit", FormatBytes(limits.inline_bytes())});
  rows->push_back({"graphs limit", absl::StrCat(limits.max_graphs())});
}

std::string Describe(const v1::CacheUse& cache, absl::string_view what) {
  return absl::StrCat(Counted(cache.entries(), what, cache.size_bytes()), ", ",
                      cache.hits(), " hits, ", cache.misses(), " misses, ",
                      cache.evictions(), " evicted");
}

std::string Describe(const v1::DiskUse& disk) {
  std::string text = absl::StrCat(Describe(disk.cache(), "content"), ", limit ",
                                  FormatBytes(disk.limit_bytes()));
  if (disk.failed_writes() > 0) {
    absl::StrAppend(&text, ", ", disk.failed_writes(), " not written");
  }
  if (disk.corrupt_files() > 0) {
    absl::StrAppend(&text, ", ", disk.corrupt_files(), " broken");
  }
  if (!disk.failure().empty()) absl::StrAppend(&text, ": ", disk.failure());
  return text;
}

std::string Describe(const v1::GraphTensor& tensor) {
  const std::string slot = absl::StrCat("#", tensor.slot(), " ");
  if (tensor.data_type() == v1::DATA_TYPE_UNSPECIFIED) {
    return absl::StrCat(slot, "by data");
  }
  return absl::StrCat(slot, DescribeShape(tensor.data_type(), tensor.sizes()));
}

template <typename Tensors>
std::string DescribeAll(const Tensors& tensors) {
  const std::string text =
      absl::StrJoin(tensors, " ", [](std::string* out, const auto& tensor) {
        absl::StrAppend(out, Describe(tensor));
      });
  return OrDash(text);
}

std::string Effects(const v1::GraphNode& node) {
  std::vector<std::string> effects;
  for (const uint32_t slot : node.written_slots()) {
    effects.push_back(absl::StrCat("#", slot));
  }
  if (node.has_generator_slot()) {
    effects.push_back(absl::StrCat("#", node.generator_slot(), " (draws)"));
  }
  return OrDash(absl::StrJoin(effects, " "));
}

// Lists the workers from which values came.
std::string Describe(
    const google::protobuf::RepeatedPtrField<v1::PeerLink>& links) {
  return OrDash(absl::StrJoin(
      links, ", ", [](std::string* out, const v1::PeerLink& link) {
        absl::StrAppend(out, link.worker_id(), ": ",
                        FormatBytes(link.bytes_per_second()), "/s");
      }));
}

std::string Describe(const v1::DeviceSpeed& speed) {
  if (speed.flops_per_second() == 0) return "not known";
  return absl::StrCat(
      FormatCount(static_cast<uint64_t>(speed.flops_per_second())), " flop/s, ",
      FormatBytes(static_cast<uint64_t>(speed.bytes_per_second())), "/s, ",
      absl::StrFormat("%.1fus", speed.seconds_per_call() * 1e6), " a call");
}

std::string Phases(const google::protobuf::RepeatedField<int>& phases) {
  if (phases.empty()) return "all";
  return absl::StrJoin(phases, " ", [](std::string* out, int phase) {
    absl::StrAppend(out, Name(static_cast<v1::Phase>(phase)));
  });
}

std::string Describe(const v1::Cost& cost) {
  return absl::StrCat(FormatCount(cost.flops()), " flop, ",
                      FormatBytes(cost.read_bytes()), " read, ",
                      FormatBytes(cost.written_bytes()), " written");
}

std::vector<Row> StageRows(const v1::GraphMeaning& meaning) {
  std::vector<Row> rows = {{"STAGE", "NODES", "PHASE", "MODALITY", "FLOP",
                            "READ", "WRITTEN", "WEIGHTS", "KV CACHES", "FROM"}};
  for (int i = 0; i < meaning.stages_size(); ++i) {
    const v1::GraphStage& stage = meaning.stages(i);
    rows.push_back({absl::StrCat(i),
                    absl::StrCat(stage.first_node(), "..",
                                 stage.first_node() + stage.node_count() - 1),
                    Name(stage.phase()), Name(stage.modality()),
                    FormatCount(stage.cost().flops()),
                    FormatBytes(stage.cost().read_bytes()),
                    FormatBytes(stage.cost().written_bytes()),
                    FormatBytes(stage.weight_bytes()),
                    FormatBytes(stage.kv_cache_bytes()),
                    OrDash(absl::StrJoin(stage.inputs(), " "))});
  }
  return rows;
}

std::vector<Row> NodeRows(const v1::GraphInfo& info) {
  const v1::GraphMeaning& meaning = info.meaning();
  Row titles = {"NODE",   "OPERATOR", "OPERANDS", "RESULTS",
                "WRITES", "PHASE",    "ROLE",     "FLOP"};
  const bool noted =
      std::any_of(info.nodes().begin(), info.nodes().end(),
                  [](const v1::GraphNode& node) { return node.has_note(); });
  if (noted) titles.insert(titles.end(), {"SAID", "MODULE", "CALLED AT"});
  std::vector<Row> rows = {std::move(titles)};
  for (int i = 0; i < info.nodes_size(); ++i) {
    const v1::GraphNode& node = info.nodes(i);
    // A coordinator that has not analyzed the graph yet sends no meaning.
    const v1::NodeMeaning& found = i < meaning.nodes_size()
                                       ? meaning.nodes(i)
                                       : v1::NodeMeaning::default_instance();
    rows.push_back({absl::StrCat(i), node.operator_name(),
                    DescribeAll(node.operands()), DescribeAll(node.results()),
                    Effects(node), Name(found.phase()), OrDash(found.role()),
                    FormatCount(found.cost().flops())});
    if (!noted) continue;
    const v1::CallNote& note = node.note();
    Row& row = rows.back();
    row.push_back(Name(note.phase()));
    row.push_back(OrDash(note.module_path()));
    row.push_back(OrDash(note.location()));
  }
  return rows;
}

// Returns who lately could not reach the worker.
std::string Reach(const v1::WorkerInfo& info) {
  if (info.unreached_sessions() == 0) return "reach it";
  return absl::StrCat(
      info.unreached_sessions(), " did not reach it, the last ",
      FormatDuration(info.unreached_age()), " ago; ",
      info.unreached_by_all()
          ? "all tenants prefer other workers"
          : absl::StrCat(info.unreached_tenants(), " prefer other workers"));
}

}  // namespace

std::string Detail(const v1::WorkerInfo& info) {
  std::vector<Row> rows = {
      {"worker", info.worker_id()},
      {"state", v1::WorkerInfo::State_Name(info.state())},
      {"last report", absl::StrCat(FormatDuration(info.report_age()), " ago")},
      {"incarnation", absl::StrCat(absl::Hex(info.incarnation()))},
      {"address", info.address()},
      {"shared memory", info.shared_memory_socket().empty()
                            ? "none"
                            : info.shared_memory_socket()},
      {"device", info.device()},
      {"free", OfLimit(info.free_bytes(), info.memory_bytes())},
      {"leases", absl::StrCat(info.lease_count())},
      {"sessions", absl::StrCat(info.session_count())},
      {"runs in flight", absl::StrCat(info.queued_runs())},
      {"new leases", info.draining()   ? "none: drained"
                     : info.cordoned() ? "none: cordoned"
                     : !info.gpu_health().failure().empty()
                         ? "none: its GPU fails"
                         : "yes"},
      {"clients", Reach(info)},
      {"speed", Describe(info.speed())},
      {"price", absl::StrCat(info.price_per_hour(), " an hour")},
      {"link",
       info.link_bytes_per_second() == 0
           ? "not known"
           : absl::StrCat(FormatBytes(info.link_bytes_per_second()), "/s")},
      {"measured from", Describe(info.links())},
      {"capabilities", OrDash(absl::StrJoin(info.capabilities(), " "))},
      {"phases", Phases(info.phases())}};
  if (info.has_gpu_health()) {
    rows.push_back({"gpu", DescribeGpu(info.gpu_health())});
  }
  if (!info.has_memory()) return FormatTable(rows);  // a lost worker
  const v1::MemoryUse& memory = info.memory();
  rows.push_back(
      {"storages",
       absl::StrCat(FormatBytes(memory.storage_bytes()), ", ",
                    FormatBytes(memory.cache_bytes()), " of them caches")});
  rows.push_back(
      {"contents", absl::StrCat(FormatBytes(memory.content_bytes()), ", ",
                                FormatBytes(memory.idle_content_bytes()),
                                " of them idle")});
  rows.push_back({"transfers", FormatBytes(memory.transfer_bytes())});
  rows.push_back({"plan cache", Describe(info.plan_cache(), "plan")});
  rows.push_back({"content cache", Describe(info.content_cache(), "content")});
  if (info.has_disk()) rows.push_back({"on disk", Describe(info.disk())});
  const v1::ExecutionUse& executed = info.executed();
  rows.push_back({"executed",
                  absl::StrCat(executed.runs(), " runs, ", executed.nodes(),
                               " nodes, ", executed.failed_nodes(), " failed, ",
                               executed.skipped_nodes(), " skipped")});
  rows.push_back(
      {"device time",
       absl::StrCat(Precisely(executed.device_time()), " of ",
                    Precisely(executed.executor_time()), " at work")});
  if (executed.phases_size() > 0) {
    rows.push_back({"time by phase", ByPhase(executed.phases())});
  }
  return FormatTable(rows);
}

std::string DescribePriority(const v1::Urgency& urgency) {
  return absl::StrCat(PriorityClassName(urgency.priority_class()),
                      IsDeclared(urgency.priority_class())
                          ? ""
                          : ", not declared: training counts as batch");
}

std::string DescribeMigration(const v1::MigrationInfo& migration) {
  std::string text = absl::StrCat(
      FormatDuration(migration.age()), " ago by ", migration.reason(),
      ", from ", migration.from_worker_id(), " to ", migration.to_worker_id());
  switch (migration.state()) {
    case v1::MigrationInfo::DONE:
      absl::StrAppend(&text, ": ",
                      Counted(migration.storage_count(), "storage",
                              migration.moved_bytes()),
                      " moved, ", FormatBytes(migration.held_bytes()),
                      " were there; calls waited for ",
                      Seconds(migration.paused()));
      break;
    case v1::MigrationInfo::FAILED:
      absl::StrAppend(&text, ": it stays; ", migration.failure_reason(), ": ",
                      migration.failure());
      break;
    default:
      absl::StrAppend(&text, ": under way");
  }
  if (migration.has_terms()) {
    const v1::MigrationTerms& terms = migration.terms();
    absl::StrAppend(
        &text, absl::StrFormat(
                   "; predicted %.3gs if it stays, %.3gs if it migrates, "
                   "of which %.3gs to move %s",
                   terms.stay_seconds(), terms.go_seconds(),
                   terms.transfer_seconds(), FormatBytes(terms.state_bytes())));
  }
  return text;
}

std::string Detail(const v1::MigrateSessionResponse& response) {
  std::vector<Row> rows = {{"DEVICE", "FROM", "TO"}};
  for (const v1::MigrationInfo& migration : response.migrations()) {
    rows.push_back({absl::StrCat(migration.virtual_device()),
                    migration.from_worker_id(), migration.to_worker_id()});
  }
  std::string text = FormatTable(rows);
  for (const v1::MigrateSessionResponse::Failure& failure :
       response.failures()) {
    absl::StrAppend(&text, "device ", failure.virtual_device(), " stays; ",
                    failure.reason(), ": ", failure.message(), "\n");
  }
  return text;
}

std::string DescribeModels(const v1::SessionUse& use) {
  std::string text = Counted(use.model_count(), "model", use.model_bytes());
  if (use.models_size() > 0) {
    std::vector<v1::ModelUse> models(use.models().begin(), use.models().end());
    std::stable_sort(models.begin(), models.end(),
                     [](const v1::ModelUse& a, const v1::ModelUse& b) {
                       return a.size_bytes() > b.size_bytes();
                     });
    const bool all = models.size() <= kNamedModels;
    if (!all) models.resize(kNamedModels);
    absl::StrAppend(
        &text, ": ",
        absl::StrJoin(models, ", ",
                      [](std::string* out, const v1::ModelUse& model) {
                        absl::StrAppend(out, OrDash(model.name()), " ",
                                        FormatBytes(model.size_bytes()));
                      }),
        all ? "" : ", ...");
  }
  if (use.refused_models() > 0) {
    absl::StrAppend(&text, "; refused ", use.refused_models(),
                    use.refused_models() == 1 ? " time" : " times");
  }
  return text;
}

std::string DescribeYielded(const v1::Yielded& yielded) {
  return absl::StrCat(yielded.count(),
                      yielded.count() == 1 ? " time" : " times", ", for ",
                      FormatDuration(yielded.time()), " in all; last ",
                      FormatDuration(yielded.last_age()), " ago to session ",
                      yielded.last_session_id(), " of tenant ",
                      yielded.last_tenant(), ", by ", yielded.last_reason());
}

std::string Detail(const v1::SessionInfo& info) {
  std::vector<Row> rows = {
      {"session", info.session_id()},
      {"tenant", info.tenant()},
      {"program", OrDash(info.program())},
      {"placement", info.placement_policy().empty() ? "as the tenant's"
                                                    : info.placement_policy()},
      {"state", v1::SessionInfo::State_Name(info.state())},
      {"opened", FormatTime(info.open_time())},
      {"epoch", absl::StrCat(info.session_epoch())},
      {"priority", DescribePriority(info.urgency())},
      {"run deadline", info.urgency().has_run_deadline()
                           ? FormatDuration(info.urgency().run_deadline())
                           : "-"},
      {"leases", OrDash(absl::StrJoin(info.lease_ids(), " "))},
      {"devices without worker",
       OrDash(absl::StrJoin(info.pending_virtual_devices(), " "))},
      {"graphs defined", absl::StrCat(info.graph_count())},
      {"storages",
       Counted(info.storage_count(), "storage", info.storage_bytes())}};
  for (const v1::MigrationInfo& migration : info.migrations()) {
    rows.push_back(
        {absl::StrCat("device ", migration.virtual_device(), " moved"),
         DescribeMigration(migration)});
  }
  for (const v1::RecoveryInfo& recovery : info.recoveries()) {
    rows.push_back({absl::StrCat("device ",
                                 DeviceText(recovery.report().virtual_device(),
                                            recovery.report().member()),
                                 " recovered"),
                    DescribeRecovery(recovery)});
  }
  AddUse(info.use(), &rows);
  AddLimits(info.limits(), &rows);
  return FormatTable(rows);
}

std::string Detail(const v1::TenantInfo& info) {
  std::vector<Row> rows = {
      {"tenant", info.tenant()},
      {"queue", DescribeQueue(info.has_queue_stop(), info.queue_stop())},
      {"weight", absl::StrCat(info.weight())},
      {"priority at most", PriorityClassName(info.max_priority_class())},
      {"contents",
       info.share_contents() ? "shared with other tenants that do" : "its own"},
      {"batches", info.batch_with_others() ? "with other tenants that do"
                                           : "of its own sessions"},
      {"sessions",
       absl::StrCat(info.session_count(), " of ", info.max_sessions())},
      {"leases", absl::StrCat(info.lease_count())},
      {"placement", info.placement_policy()},
      {"required", OrDash(absl::StrJoin(info.required_capabilities(), " "))},
      {"storages", FormatBytes(info.storage_bytes())},
      {"contents kept", FormatBytes(info.content_bytes())}};
  AddUse(info.use(), &rows);
  AddLimits(info.limits(), &rows);
  rows.push_back({"models limit", info.has_max_models()
                                      ? absl::StrCat(info.max_models())
                                      : "none"});
  rows.push_back({"model bytes limit", info.has_model_bytes()
                                           ? FormatBytes(info.model_bytes())
                                           : "none"});
  rows.push_back({"node limit", info.has_node_limit()
                                    ? FormatDuration(info.node_limit())
                                    : "the worker's"});
  AddCredits(info.credits().used(), info.credits().granted(), &rows);
  rows.push_back({"cohort", OrDash(info.cohort())});
  for (const v1::ResourceQuota& quota : info.quotas()) {
    rows.push_back(
        {absl::StrCat("quota of ", quota.resource()), DescribeQuota(quota)});
  }
  return FormatTable(rows);
}

std::string DescribeQueue(bool stopped, const v1::QueueStop& stop) {
  if (!stopped) return "active";
  return absl::StrCat("stopped since ", FormatTime(stop.stop_time()),
                      stop.drain() ? ", its leases end" : "",
                      ": no new leases");
}

std::string Detail(const v1::QueueInfo& info) {
  const v1::TenantStanding& standing = info.standing();
  std::vector<Row> rows = {
      {"queue", info.tenant()},
      {"state", DescribeQueue(info.has_stop(), info.stop())},
      {"waiting", absl::StrCat(standing.waiting_count())},
      {"waiting for", DescribeWaiting(info)},
      {"oldest waits for",
       info.has_oldest_wait() ? FormatDuration(info.oldest_wait()) : "-"},
      {"first in line", info.first_place() == 0
                            ? "-"
                            : absl::StrCat("place ", info.first_place(), " of ",
                                           info.line_length())}};
  // The tenant is no longer configured.
  if (!info.has_standing()) return FormatTable(rows);
  const auto percent = [](double part) {
    return absl::StrFormat("%.1f%%", 100 * part);
  };
  rows.insert(
      rows.end(),
      {{"sessions", absl::StrCat(standing.session_count())},
       {"leases", absl::StrCat(standing.lease_count())},
       {"weight",
        absl::StrCat(standing.weight(), ", ", percent(standing.fair_share()),
                     " of those that have leases")},
       {"device time",
        absl::StrCat(FormatDuration(standing.used().device_time()), ", ",
                     percent(standing.device_time_share()),
                     " of all tenants'")},
       {"cohort", OrDash(info.cohort())},
       {"weighted share", absl::StrFormat("%.3g", info.weighted_share())}});
  return FormatTable(rows);
}

std::string Detail(const v1::LeaseInfo& info) {
  std::vector<Row> rows = {
      {"lease", info.lease_id()},
      {"state", v1::LeaseInfo::State_Name(info.state())},
      {"session",
       absl::StrCat(info.session_id(), ", epoch ", info.session_epoch())},
      {"tenant", info.tenant()},
      {"virtual device", DeviceText(info.virtual_device(), info.member())},
      {"worker", absl::StrCat(info.worker_id(), ", incarnation ",
                              absl::Hex(info.incarnation()))},
      {"age", FormatDuration(info.age())},
      {"why there", OrDash(info.placement_reason())}};
  AddUse(info.use(), &rows);
  AddUseOfLimits(info.use(), info.limits(), &rows);
  AddCredits(info.lease_use(), info.credits(), &rows);
  if (info.out_of_credit()) rows.push_back({"runs wait for", "credit"});
  if (info.has_yielded()) {
    rows.push_back({"runs yielded", DescribeYielded(info.yielded())});
  }
  return FormatTable(rows);
}

std::string Describe(const v1::BatchIndependence& batch) {
  if (batch.rows() == 0) return OrDash(batch.problem());
  const auto list = [](const auto& slots) {
    return absl::StrCat("#", absl::StrJoin(slots, " #"));
  };
  return absl::StrCat(batch.rows(), " rows, each by itself, of ",
                      list(batch.input_slots()),
                      batch.output_slots().empty()
                          ? ""
                          : absl::StrCat(" to ", list(batch.output_slots())));
}

std::string Detail(const v1::GraphInfo& info) {
  const v1::GraphMeaning& meaning = info.meaning();
  const std::string head = FormatTable(
      {{"graph", info.fingerprint()},
       {"size", absl::StrCat(info.node_count(), " nodes, ", info.slot_count(),
                             " slots, ", FormatBytes(info.size_bytes()))},
       {"definitions", absl::StrCat(info.definition_count())},
       {"runs", absl::StrCat(info.run_count())},
       {"contents", FormatBytes(info.content_bytes())},
       {"workers", OrDash(absl::StrJoin(info.worker_ids(), " "))},
       {"workload", Name(meaning.workload_class())},
       {"task", Name(meaning.task_type())},
       {"phase", Name(meaning.phase())},
       {"modality", Name(meaning.modality())},
       {"cost", Describe(meaning.cost())},
       {"memory",
        absl::StrCat("peak ", FormatBytes(meaning.peak_bytes()), ", weights ",
                     FormatBytes(meaning.weight_bytes()), ", kv caches ",
                     FormatBytes(meaning.kv_cache_bytes()))},
       {"batch", Describe(meaning.batch())}});
  return absl::StrCat(head, "\n", FormatTable(StageRows(meaning)), "\n",
                      FormatTable(NodeRows(info)));
}

}  // namespace djinn::ctl
