#include "coordinator/config/config.h"

#include <algorithm>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/proto_duration.h"
#include "common/base/status_macros.h"
#include "common/lease/priority_class.h"
#include "common/net/channel_options.h"
#include "common/net/tls_config.h"
#include "scheduler/quota/quota_reader.h"

namespace djinn::coordinator {
namespace {

constexpr uint64_t kMaxCount = std::numeric_limits<uint32_t>::max();
// Each takes a few hundred bytes.
constexpr uint64_t kMaxRecordedJobs = 100'000;
// Clients send values up to this size inside messages, whatever the limit, and
// reject a worker whose limit is lower.
constexpr uint64_t kMinInlineBytes = 8 << 10;
// One message is executed while the next one travels.
constexpr uint64_t kMinOutstanding = 2;
// Room for what surrounds the largest inline value, and for graphs, which
// count as a whole.
constexpr uint64_t kMinBytesBesidesInline = 1 << 20;

// Beyond a factor of a million, shares mean never and always.
constexpr double kMinWeight = 0.001;
constexpr double kMaxWeight = 1000;

constexpr absl::Duration kMinCreditPeriod = absl::Minutes(1);
// A worker looks at the progress of its executors once a second.
constexpr absl::Duration kMinNodeLimit = absl::Seconds(5);
// Default of worker_silence, unless the heartbeats are slower. Shorter ones do
// not make a busy machine quicker.
constexpr absl::Duration kLeastDefaultSilence = absl::Seconds(3);

// Reads the limits of the parts of the memory in `limits`.
template <typename Limits>
void ReadMemoryParts(ConfigMap* map, Limits* limits) {
  if (limits->memory_bytes() == 0) {
    map->Error("memory", "expected at least 1, got 0");
  }
  const auto part = [&](absl::string_view key) -> std::optional<uint64_t> {
    if (!map->Has(key)) return std::nullopt;
    const uint64_t bytes = map->Size(key, 0);
    if (bytes > limits->memory_bytes()) {
      map->Error(key,
                 absl::StrCat("is a part of memory, and must not exceed its ",
                              limits->memory_bytes(), ", got ", bytes));
    }
    return bytes;
  };
  if (const auto bytes = part("content_memory")) {
    limits->set_content_bytes(*bytes);
  }
  if (const auto bytes = part("storage_memory")) {
    limits->set_storage_bytes(*bytes);
  }
  if (const auto bytes = part("cache_memory")) limits->set_cache_bytes(*bytes);
}

v1::SessionLimits ReadLimits(ConfigMap map) {
  v1::SessionLimits limits;
  limits.set_memory_bytes(map.Size("memory", uint64_t{16} << 30));
  limits.set_max_outstanding(static_cast<uint32_t>(
      map.UInt("max_outstanding", 256, kMinOutstanding, kMaxCount)));
  limits.set_max_outstanding_bytes(
      map.Size("max_outstanding_bytes", uint64_t{64} << 20));
  limits.set_inline_bytes(map.Size("inline_bytes", uint64_t{64} << 10));
  limits.set_max_graphs(
      static_cast<uint32_t>(map.UInt("max_graphs", 4096, 1, kMaxCount)));
  ReadMemoryParts(&map, &limits);
  if (limits.inline_bytes() < kMinInlineBytes) {
    map.Error("inline_bytes",
              absl::StrCat("expected at least ", kMinInlineBytes,
                           " (8KiB), got ", limits.inline_bytes()));
  }
  // A value and what surrounds it must fit into one message.
  if (limits.inline_bytes() > kMaxControlMessageBytes / 2) {
    map.Error("inline_bytes", absl::StrCat("must not exceed 32MiB, got ",
                                           limits.inline_bytes()));
  } else if (limits.max_outstanding_bytes() <
             limits.inline_bytes() + kMinBytesBesidesInline) {
    map.Error("max_outstanding_bytes",
              absl::StrCat("expected at least ",
                           limits.inline_bytes() + kMinBytesBesidesInline,
                           " (inline_bytes and 1MiB), got ",
                           limits.max_outstanding_bytes()));
  }
  return limits;
}

uint64_t Times(uint64_t count, uint64_t limit, uint64_t most) {
  uint64_t product;
  if (__builtin_mul_overflow(count, limit, &product)) return most;
  return std::min(product, most);
}

// Defaults to the sum of what the sessions may have.
v1::TenantLimits ReadTotals(ConfigMap map, const Tenant& tenant) {
  const uint64_t sessions = tenant.max_sessions;
  const v1::SessionLimits& each = tenant.limits;
  constexpr uint64_t kMaxSize = std::numeric_limits<int64_t>::max();
  v1::TenantLimits totals;
  totals.set_memory_bytes(
      map.Size("memory", Times(sessions, each.memory_bytes(), kMaxSize)));
  totals.set_max_outstanding(static_cast<uint32_t>(map.UInt(
      "max_outstanding", Times(sessions, each.max_outstanding(), kMaxCount), 1,
      kMaxCount)));
  totals.set_max_outstanding_bytes(
      map.Size("max_outstanding_bytes",
               Times(sessions, each.max_outstanding_bytes(), kMaxSize)));
  if (map.Has("max_models")) {
    totals.set_max_models(
        static_cast<uint32_t>(map.UInt("max_models", 0, 0, kMaxCount)));
  }
  if (map.Has("model_bytes")) {
    totals.set_model_bytes(map.Size("model_bytes", 0));
  }
  ReadMemoryParts(&map, &totals);
  if (totals.max_outstanding_bytes() == 0) {
    map.Error("max_outstanding_bytes", "expected at least 1, got 0");
  }
  return totals;
}

CreditLimits ReadCredits(ConfigMap map) {
  CreditLimits credits;
  if (map.Has("device_time")) {
    credits.device_time = map.Duration("device_time", absl::ZeroDuration());
  }
  if (map.Has("bytes")) credits.bytes = map.Size("bytes", 0);
  if (map.Has("period")) {
    credits.period = map.Duration("period", absl::ZeroDuration());
    if (credits.period < kMinCreditPeriod) {
      map.Error("period", "must be at least 1m");
    }
    if (!credits.limited()) {
      map.Error("period", "there is neither device_time nor bytes beside it");
    }
  }
  return credits;
}

std::string ReadPolicy(ConfigMap* map, absl::string_view key,
                       absl::string_view fallback) {
  std::string name = map->String(key, fallback);
  if (!map->Has(key)) return name;
  const absl::Status known = scheduler::FindPolicy(name).status();
  if (!known.ok()) map->Error(key, known.message());
  return name;
}

v1::PriorityClass ReadPriorityClass(ConfigMap* map, absl::string_view key,
                                    v1::PriorityClass fallback) {
  const std::string text = map->String(key, PriorityClassName(fallback));
  if (const auto found = ParsePriorityClass(text)) return *found;
  map->Error(key, absl::StrCat("expected batch, interactive or realtime, got "
                               "\"",
                               text, "\""));
  return fallback;
}

Config::Scaler ReadScaler(ConfigMap map, bool encrypted) {
  Config::Scaler scaler;
  scaler.listen = map.String("listen", "");
  scaler.insecure = map.Bool("insecure", false);
  scaler.target_utilisation =
      map.Number("target_utilisation", scaler.target_utilisation, 0.01, 1);
  if (!scaler.listen.empty()) {
    CheckConfigAddress(&map, "listen", scaler.listen,
                       scaler.insecure || encrypted);
  }
  return scaler;
}

Config::Etcd ReadEtcd(ConfigMap* root) {
  Config::Etcd etcd;
  if (!root->Has("etcd")) return etcd;
  ConfigMap map = root->Map("etcd");
  etcd.endpoints = map.Strings("endpoints");
  etcd.prefix = map.String("prefix", etcd.prefix);
  etcd.lease = map.Duration("lease", etcd.lease);
  etcd.insecure = map.Bool("insecure", false);
  etcd.tls = ReadChannelTls(&map, "tls", etcd.insecure);
  if (etcd.endpoints.empty()) map.Error("endpoints", "needs at least one");
  for (const std::string& endpoint : etcd.endpoints) {
    CheckConfigAddress(&map, "endpoints", endpoint,
                       etcd.insecure || etcd.tls.enabled());
  }
  if (etcd.prefix.empty() || etcd.prefix.back() == '/') {
    map.Error("prefix", "must not be empty or end with a slash");
  }
  if (etcd.lease < absl::Seconds(1) ||
      etcd.lease != absl::Floor(etcd.lease, absl::Seconds(1))) {
    map.Error("lease", "must be whole seconds, at least 1s");
  }
  return etcd;
}

// Reads the quotas of a tenant or a cohort.
template <typename Holder>
void ReadAllQuotas(ConfigMap map, const scheduler::QuotaOwner& owner,
                   Holder* holder) {
  constexpr scheduler::Resource kResources[] = {
      scheduler::Resource::kMemoryBytes, scheduler::Resource::kContentBytes,
      scheduler::Resource::kStorageBytes, scheduler::Resource::kCacheBytes,
      scheduler::Resource::kOutstandingMessages};
  scheduler::ReadQuotas(&map, owner, kResources, &holder->quotas);
  holder->device_rate = scheduler::ReadRateQuota(
      &map, "device_seconds_per_second", scheduler::RateUnit::kSeconds, owner);
  holder->byte_rate = scheduler::ReadRateQuota(
      &map, "bytes_per_second", scheduler::RateUnit::kBytes, owner);
}

double ReadWeight(ConfigMap* map) {
  return map->Map("fairSharing").Number("weight", 1, kMinWeight, kMaxWeight);
}

Cohort ReadCohort(ConfigMap map) {
  Cohort cohort;
  cohort.name = map.RequiredString("name");
  scheduler::CheckCohortName(&map, "name", cohort.name);
  cohort.weight = ReadWeight(&map);
  ReadAllQuotas(map.Map("quota"), scheduler::CohortAsOwner(cohort.name),
                &cohort);
  return cohort;
}

Tenant ReadTenant(ConfigMap map) {
  Tenant tenant;
  tenant.name = map.RequiredString("name");
  tenant.token = map.RequiredSecret("token_file");
  tenant.max_sessions =
      static_cast<uint32_t>(map.UInt("max_sessions", 64, 1, kMaxCount));
  tenant.limits = ReadLimits(map.Map("limits"));
  tenant.totals = ReadTotals(map.Map("totals"), tenant);
  if (map.Has("node_limit")) {
    const absl::Duration limit =
        map.Duration("node_limit", absl::ZeroDuration());
    if (limit < kMinNodeLimit) map.Error("node_limit", "at least 5s");
    *tenant.totals.mutable_node_limit() = ToProtoDuration(limit);
  }
  tenant.credits = ReadCredits(map.Map("credits"));
  ConfigMap placement = map.Map("placement");
  tenant.placement.policy = ReadPolicy(&placement, "policy", "");
  tenant.placement.required = placement.Strings("required");
  tenant.weight = ReadWeight(&map);
  tenant.max_priority_class =
      ReadPriorityClass(&map, "max_priority_class", tenant.max_priority_class);
  tenant.share_contents = map.Bool("share_contents", false);
  tenant.batch_with_others = map.Bool("batch_with_others", false);
  tenant.cohort = map.String("cohort", "");
  scheduler::CheckCohortName(&map, "cohort", tenant.cohort);
  ReadAllQuotas(map.Map("quota"), scheduler::TenantAsOwner(tenant.cohort),
                &tenant);
  tenant.credits.device_time_rated = tenant.device_rate.has_value();
  tenant.credits.bytes_rated = tenant.byte_rate.has_value();
  return tenant;
}

void CheckCohorts(const Config& config, ConfigMap root) {
  std::set<std::string> names;
  for (const Cohort& cohort : config.cohorts) {
    if (!names.insert(cohort.name).second) {
      root.Error("cohorts", "the name " + cohort.name + " is given twice");
    }
  }
}

Operator ReadOperator(ConfigMap map) {
  Operator one;
  one.name = map.RequiredString("name");
  const std::string role = map.RequiredString("role");
  if (!role.empty() && !ParseRole(role, &one.role)) {
    map.Error("role", "viewer, operator or admin");
  }
  one.token = map.RequiredSecret("token_file");
  return one;
}

// Each credential must lead to one principal.
void CheckSecrets(const Config& config, ConfigMap root) {
  std::set<std::string> names, tokens;
  for (const std::string& token : {config.join_token, config.admin_token}) {
    if (!token.empty() && !tokens.insert(token).second) {
      root.Error("admin_token_file", "the join token must be another one");
    }
  }
  std::set<std::string> operators = {"admin"};
  for (const Operator& one : config.operators) {
    if (!operators.insert(one.name).second) {
      root.Error("operators", "the name " + one.name + " is given twice");
    }
    if (!one.token.empty() && !tokens.insert(one.token).second) {
      root.Error("operators",
                 "the token of " + one.name + " is also another principal's");
    }
  }
  for (const Tenant& tenant : config.tenants) {
    if (!names.insert(tenant.name).second) {
      root.Error("tenants", "the name " + tenant.name + " is given twice");
    }
    if (!tenant.token.empty() && !tokens.insert(tenant.token).second) {
      root.Error("tenants", "the token of " + tenant.name +
                                " is also another principal's");
    }
  }
}

}  // namespace

absl::StatusOr<Config> ReadConfig(ConfigReader reader) {
  Config config;
  ConfigMap root = reader.root();
  config.listen = root.String("listen", config.listen);
  config.insecure = root.Bool("insecure", config.insecure);
  config.tls = ReadServerTls(&root, "tls", config.insecure);
  CheckConfigAddress(&root, "listen", config.listen,
                     config.insecure || config.tls.enabled());
  config.monitoring = ReadMonitoring(&root);
  config.tracing = ReadTracing(&root);
  config.session_timeout =
      root.Duration("session_timeout", config.session_timeout);
  config.worker_timeout =
      root.Duration("worker_timeout", config.worker_timeout);
  config.heartbeat_interval =
      root.Duration("heartbeat_interval", config.heartbeat_interval);
  config.worker_silence = root.Duration(
      "worker_silence",
      std::max(1.5 * config.heartbeat_interval, kLeastDefaultSilence));
  config.lease_valid_for =
      root.Duration("lease_valid_for", config.lease_valid_for);
  config.lease_grace_period =
      root.Duration("lease_grace_period", config.lease_grace_period);
  config.lease_key_lifetime =
      root.Duration("lease_key_lifetime", config.lease_key_lifetime);
  config.lease_request_timeout =
      root.Duration("lease_request_timeout", config.lease_request_timeout);
  config.line_patience =
      root.Duration("line_patience", config.lease_request_timeout / 2);
  config.reclaim_spares_for =
      root.Duration("reclaim_spares_for", config.reclaim_spares_for);
  config.reclaim_loss_limit =
      root.Duration("reclaim_loss_limit", config.reclaim_loss_limit);
  config.graph_store_bytes =
      root.Size("graph_store_size", config.graph_store_bytes);
  config.scaler = ReadScaler(root.Map("scaler"), config.tls.enabled());
  config.automatic_migration =
      root.Bool("automatic_migration", config.automatic_migration);
  config.placement_policy =
      ReadPolicy(&root, "placement_policy", config.placement_policy);
  config.recorded_jobs =
      root.UInt("recorded_jobs", config.recorded_jobs, 0, kMaxRecordedJobs);
  config.state_file = root.Path("state_file");
  config.etcd = ReadEtcd(&root);
  if (config.etcd.enabled() && !config.state_file.empty()) {
    root.Error("state_file", "not together with etcd, which keeps the state");
  }
  config.advertise = root.String("advertise", "");
  if (!config.advertise.empty()) {
    CheckConfigAddress(&root, "advertise", config.advertise,
                       config.insecure || config.tls.enabled());
    if (!config.etcd.enabled()) {
      root.Error("advertise", "has no effect without etcd");
    }
  }
  config.join_token = root.RequiredSecret("join_token_file");
  config.admin_token = root.RequiredSecret("admin_token_file");
  for (ConfigMap& one : root.Maps("operators")) {
    config.operators.push_back(ReadOperator(one));
  }
  for (ConfigMap& cohort : root.Maps("cohorts")) {
    config.cohorts.push_back(ReadCohort(cohort));
  }
  CheckCohorts(config, root);
  for (ConfigMap& tenant : root.Maps("tenants")) {
    config.tenants.push_back(ReadTenant(tenant));
  }
  if (config.tenants.empty()) root.Error("tenants", "needs at least one");
  CheckSecrets(config, root);
  if (config.heartbeat_interval < absl::Milliseconds(10)) {
    root.Error("heartbeat_interval", "must be at least 10ms");
  }
  if (config.reclaim_loss_limit < absl::Seconds(1)) {
    root.Error("reclaim_loss_limit", "must be at least 1s");
  }
  if (config.worker_timeout <= config.heartbeat_interval) {
    root.Error("worker_timeout", "must exceed heartbeat_interval");
  }
  if (config.worker_silence <= config.heartbeat_interval) {
    root.Error("worker_silence", "must exceed heartbeat_interval");
  }
  if (config.lease_valid_for <= config.worker_timeout) {
    root.Error("lease_valid_for", "must exceed worker_timeout");
  }
  // The previous key must be retired by then.
  if (config.lease_key_lifetime <=
      2 * (config.lease_valid_for + config.lease_grace_period)) {
    root.Error("lease_key_lifetime",
               "must exceed lease_valid_for and lease_grace_period twice");
  }
  DJINN_RETURN_IF_ERROR(reader.Finish());
  return config;
}

std::vector<Operator> OperatorsOf(const Config& config) {
  std::vector<Operator> all = {{"admin", Role::kAdmin, config.admin_token}};
  all.insert(all.end(), config.operators.begin(), config.operators.end());
  return all;
}

}  // namespace djinn::coordinator
