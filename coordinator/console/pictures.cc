#include "coordinator/console/pictures.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "common/base/version.h"
#include "coordinator/console/json_rows.h"
#include "nlohmann/json.hpp"

namespace djinn::console {
namespace {

// Keeps the order of keys, which makes answers easy to read.
using Json = nlohmann::ordered_json;

constexpr size_t kMaxLineages = 500;

int64_t Micros(absl::Time time) {
  return time == absl::InfiniteFuture() ? -1 : absl::ToUnixMicros(time);
}
int64_t Micros(absl::Duration duration) {
  return absl::ToInt64Microseconds(duration);
}
int64_t Micros(const google::protobuf::Duration& duration) {
  return Micros(FromProtoDuration(duration));
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false,
                   Json::error_handler_t::replace);
}

// Returns `head` with further members, whose values are JSON already.
std::string WithMembers(
    const Json& head,
    std::initializer_list<std::pair<const char*, std::string>> members) {
  std::string text = Dump(head);
  text.pop_back();
  for (const auto& [name, value] : members) {
    absl::StrAppend(&text, text.size() > 1 ? "," : "", "\"", name,
                    "\":", value);
  }
  text.push_back('}');
  return text;
}

std::string GateName(v1::RunGate gate) {
  std::string name = v1::RunGate_Name(gate);
  return name.substr(sizeof("RUN_GATE_") - 1);
}

}  // namespace

std::string OverviewJson(const Observer::Now& now, absl::Duration interval) {
  Json json = {{"version", std::string(kVersion)},
               {"round", now.round},
               {"interval", Micros(interval)}};
  if (!now.status.ok()) {
    json["error"] = {{"reason", ErrorReason(now.status)},
                     {"text", std::string(now.status.message())},
                     {"since", Micros(now.failing_since)}};
  }
  if (now.snapshot == nullptr) return Dump(json);
  const Snapshot& seen = *now.snapshot;
  int64_t active = 0, lost = 0, cordoned = 0, waiting = 0;
  for (const v1::WorkerInfo& worker : seen.workers.workers()) {
    (worker.state() == v1::WorkerInfo::ACTIVE ? active : lost) += 1;
    cordoned += worker.cordoned();
  }
  for (const v1::QueueInfo& queue : seen.queues.queues()) {
    waiting += queue.standing().waiting_count();
  }
  json["at"] = Micros(seen.at);
  json["workers"] = active;
  json["lost"] = lost;
  json["cordoned"] = cordoned;
  json["sessions"] = seen.sessions.sessions_size();
  json["leases"] = seen.leases.leases_size();
  json["tenants"] = seen.tenants.tenants_size();
  json["graphs"] = seen.graphs.graphs_size();
  json["waiting"] = waiting;
  return Dump(json);
}

std::string WorkersJson(const Snapshot& snapshot) {
  Names names;
  Rows rows;
  for (const v1::WorkerInfo& worker : snapshot.workers.workers()) {
    rows.Add({names.IndexOf(worker.worker_id()), names.IndexOf(worker.device()),
              worker.state(), worker.cordoned(),
              static_cast<int64_t>(worker.busy_share() * 1e6),
              worker.queued_runs(), worker.lease_count()});
  }
  return WithMembers({{"at", Micros(snapshot.at)},
                      {"columns",
                       {"worker", "device", "state", "cordoned", "busy_ppm",
                        "queued", "leases"}}},
                     {{"names", names.Json()}, {"rows", rows.Json()}});
}

std::string RunsJson(const RunHistory& runs, uint64_t after, uint64_t before) {
  Names names;
  Rows rows;
  const auto& all = runs.by_change();
  uint64_t rest_before = 0;
  int sent = 0;
  for (auto each = all.lower_bound(before); each != all.begin();) {
    --each;
    if (each->first <= after) break;
    if (sent++ == kMaxSentRuns) {
      rest_before = each->first + 1;
      break;
    }
    const SeenRun& run = each->second;
    rows.Add(
        {static_cast<int64_t>(run.id), static_cast<int64_t>(each->first),
         names.IndexOf(run.worker), names.IndexOf(run.tenant),
         names.IndexOf(run.session), names.IndexOf(run.fingerprint),
         run.virtual_device, run.member, static_cast<int64_t>(run.number),
         run.phase, run.state,
         names.IndexOf(run.state == v1::RunRecord::WAITING ? GateName(run.gate)
                                                           : run.reason),
         names.IndexOf(run.preempted_by), Micros(run.received),
         Micros(run.waited),
         run.served < absl::ZeroDuration() ? -1 : Micros(run.served),
         Micros(run.device_time), static_cast<int64_t>(run.yields),
         Micros(run.yielded_for)});
  }
  return WithMembers(
      {{"last_change", runs.last_change()},
       {"rest_before", rest_before},
       // Runs whose change has a lower number were forgotten here.
       {"first_change", all.empty() ? 0 : all.begin()->first},
       {"columns",
        {"id", "change", "worker", "tenant", "session", "graph", "device",
         "member", "number", "phase", "state", "reason", "preempted_by",
         "received", "waited", "served", "device_time", "yields",
         "yielded_for"}}},
      {{"names", names.Json()}, {"rows", rows.Json()}});
}

std::string SharesJson(const Snapshot& snapshot) {
  std::map<std::string, const v1::QueueInfo*> queues;
  for (const v1::QueueInfo& queue : snapshot.queues.queues()) {
    queues[queue.tenant()] = &queue;
  }
  Json tenants = Json::array();
  for (const v1::TenantInfo& info : snapshot.tenants.tenants()) {
    Json quotas = Json::array();
    for (const v1::ResourceQuota& quota : info.quotas()) {
      Json one = {
          {"resource", quota.resource()}, {"nominal", quota.nominal()},
          {"used", quota.used()},         {"borrowed", quota.borrowed()},
          {"lent", quota.lent()},         {"borrowing_limit", nullptr},
          {"lending_limit", nullptr}};
      if (quota.has_borrowing_limit()) {
        one["borrowing_limit"] = quota.borrowing_limit();
      }
      if (quota.has_lending_limit()) {
        one["lending_limit"] = quota.lending_limit();
      }
      quotas.push_back(std::move(one));
    }
    Json one = {{"tenant", info.tenant()},
                {"cohort", info.cohort()},
                {"weight", info.weight()},
                {"weighted_share", info.weighted_share()},
                {"sessions", info.session_count()},
                {"leases", info.lease_count()},
                {"stopped", info.has_queue_stop()},
                {"quotas", std::move(quotas)}};
    const auto found = queues.find(info.tenant());
    if (found != queues.end()) {
      const v1::QueueInfo& queue = *found->second;
      const v1::TenantStanding& standing = queue.standing();
      one["fair_share"] = standing.fair_share();
      one["device_time_share"] = standing.device_time_share();
      one["device_time"] = Micros(standing.used().device_time());
      one["waiting"] = standing.waiting_count();
      one["oldest_wait"] =
          queue.has_oldest_wait() ? Micros(queue.oldest_wait()) : -1;
      Json reasons = Json::object();
      for (const v1::WaitingFor& reason : queue.waiting()) {
        reasons[reason.reason()] = reason.count();
      }
      one["reasons"] = std::move(reasons);
    }
    tenants.push_back(std::move(one));
  }
  Json held = Json::array();
  for (const v1::TenantExplanation& why : snapshot.waiting) {
    for (const v1::TenantExplanation::Held& one : why.held()) {
      held.push_back({{"tenant", why.tenant()},
                      {"session", one.session_id()},
                      {"device", one.virtual_device()},
                      {"reason", one.gate().reason()},
                      {"message", one.gate().message()},
                      {"unblocked_by", one.gate().unblocked_by()}});
    }
  }
  return Dump({{"at", Micros(snapshot.at)},
               {"tenants", std::move(tenants)},
               {"held", std::move(held)}});
}

std::string MemoryJson(const MemoryMoment& moment,
                       const std::vector<absl::Time>& times) {
  Names names;
  Rows workers, cells;
  for (const WorkerMemory& one : moment.workers) {
    workers.Add(
        {names.IndexOf(one.worker), names.IndexOf(one.device), one.state,
         static_cast<int64_t>(one.memory), static_cast<int64_t>(one.free),
         static_cast<int64_t>(one.storages), static_cast<int64_t>(one.contents),
         static_cast<int64_t>(one.idle_contents),
         static_cast<int64_t>(one.transfers), static_cast<int64_t>(one.caches),
         static_cast<int64_t>(one.content_evictions),
         static_cast<int64_t>(one.plan_evictions)});
  }
  for (const TenantMemory& one : moment.tenants) {
    cells.Add({one.worker, names.IndexOf(one.tenant),
               static_cast<int64_t>(one.contents),
               static_cast<int64_t>(one.storages),
               static_cast<int64_t>(one.caches),
               static_cast<int64_t>(one.generators)});
  }
  Json moments = Json::array();
  for (const absl::Time time : times) moments.push_back(Micros(time));
  return WithMembers({{"at", Micros(moment.at)},
                      {"moments", std::move(moments)},
                      {"worker_columns",
                       {"worker", "device", "state", "memory", "free",
                        "storages", "contents", "idle_contents", "transfers",
                        "caches", "content_evictions", "plan_evictions"}},
                      {"columns",
                       {"worker_row", "tenant", "contents", "storages",
                        "caches", "generators"}}},
                     {{"names", names.Json()},
                      {"worker_rows", workers.Json()},
                      {"rows", cells.Json()}});
}

std::string LineageJson(const LeaseHistory& leases) {
  // The device is the number of the virtual device and of its replica.
  using Device = std::tuple<std::string, uint32_t, uint32_t>;
  struct Lineage {
    std::vector<const LeaseSpan*> spans;
    std::vector<const SeenMigration*> migrations;
    absl::Time changed = absl::InfinitePast();
  };
  std::map<Device, Lineage> all;
  for (const LeaseSpan& span : leases.ended()) {
    Lineage& one = all[{span.session, span.virtual_device, span.member}];
    one.spans.push_back(&span);
    one.changed = std::max(one.changed, span.ended);
  }
  for (const SeenMigration& migration : leases.migrations()) {
    Lineage& one = all[{migration.session, migration.info.virtual_device(), 0}];
    one.migrations.push_back(&migration);
    one.changed = std::max(one.changed, migration.decided);
  }
  for (const auto& [id, span] : leases.open()) {
    const auto found =
        all.find({span.session, span.virtual_device, span.member});
    if (found != all.end()) found->second.spans.push_back(&span);
  }
  std::vector<std::pair<const Device*, const Lineage*>> shown;
  for (const auto& [device, one] : all) {
    const bool plain = one.migrations.empty() && one.spans.size() == 1 &&
                       one.spans[0]->end_reason.empty();
    if (!plain) shown.push_back({&device, &one});
  }
  std::sort(shown.begin(), shown.end(), [](const auto& a, const auto& b) {
    return a.second->changed > b.second->changed;
  });
  Json devices = Json::array();
  for (const auto& [device, one] : shown) {
    if (devices.size() == kMaxLineages) break;
    std::vector<const LeaseSpan*> spans = one->spans;
    std::sort(spans.begin(), spans.end(),
              [](const auto* a, const auto* b) { return a->began < b->began; });
    Json json_spans = Json::array();
    for (const LeaseSpan* span : spans) {
      json_spans.push_back({{"lease", span->lease},
                            {"worker", span->worker},
                            {"why", span->placement_reason},
                            {"began", Micros(span->began)},
                            {"ended", Micros(span->ended)},
                            {"end_reason", span->end_reason},
                            {"for_tenant", span->for_tenant},
                            {"device_time", Micros(span->device_time)}});
    }
    Json moves = Json::array();
    for (const SeenMigration* seen : one->migrations) {
      const v1::MigrationInfo& info = seen->info;
      moves.push_back({{"from", info.from_worker_id()},
                       {"to", info.to_worker_id()},
                       {"reason", info.reason()},
                       {"state", v1::MigrationInfo::State_Name(info.state())},
                       {"failure_reason", info.failure_reason()},
                       {"failure", info.failure()},
                       {"moved_bytes", info.moved_bytes()},
                       {"held_bytes", info.held_bytes()},
                       {"paused", Micros(info.paused())},
                       {"decided", Micros(seen->decided)}});
    }
    devices.push_back({{"session", std::get<0>(*device)},
                       {"tenant", spans.empty() ? one->migrations[0]->tenant
                                                : spans[0]->tenant},
                       {"device", std::get<1>(*device)},
                       {"member", std::get<2>(*device)},
                       {"spans", std::move(json_spans)},
                       {"migrations", std::move(moves)}});
  }
  return Dump({{"devices", std::move(devices)}, {"total", shown.size()}});
}

}  // namespace djinn::console
