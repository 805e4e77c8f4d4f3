#include "coordinator/config/config_changes.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/config/operators.h"
#include "coordinator/config/tenants.h"

namespace djinn::coordinator {
namespace {

// The names of what was added, changed and removed.
struct Changes {
  std::vector<std::string> added;
  std::vector<std::string> changed;
  std::vector<std::string> removed;
};

// Compares two lists by the items' names. `describe` returns the text behind an
// added item's name. `difference` returns the one behind a changed item's name;
// nothing when both are equal.
template <typename Item>
void Compare(
    absl::string_view kind, const std::vector<Item>& from,
    const std::vector<Item>& to,
    absl::FunctionRef<std::string(const Item&)> describe,
    absl::FunctionRef<std::optional<std::string>(const Item&, const Item&)>
        difference,
    Changes* changes) {
  const auto find = [](const std::vector<Item>& all, const std::string& name) {
    const Item* found = nullptr;
    for (const Item& item : all) {
      if (item.name == name) found = &item;
    }
    return found;
  };
  for (const Item& item : to) {
    const Item* const before = find(from, item.name);
    if (before == nullptr) {
      changes->added.push_back(
          absl::StrCat(kind, " ", item.name, describe(item)));
    } else if (const std::optional<std::string> text =
                   difference(*before, item);
               text.has_value()) {
      changes->changed.push_back(absl::StrCat(kind, " ", item.name, *text));
    }
  }
  for (const Item& item : from) {
    if (find(to, item.name) == nullptr) {
      changes->removed.push_back(absl::StrCat(kind, " ", item.name));
    }
  }
}

}  // namespace

std::string ConfigChanges(const Config& from, const Config& to) {
  Changes changes;
  const auto no_text = [](const auto&) { return std::string(); };
  Compare<Tenant>(
      "tenant", from.tenants, to.tenants, no_text,
      [](const Tenant& a, const Tenant& b) -> std::optional<std::string> {
        if (SameSettings(a, b)) return std::nullopt;
        return std::string(a.token == b.token ? "" : " (token)");
      },
      &changes);
  Compare<Cohort>(
      "cohort", from.cohorts, to.cohorts, no_text,
      [](const Cohort& a, const Cohort& b) -> std::optional<std::string> {
        if (a == b) return std::nullopt;
        return "";
      },
      &changes);
  Compare<Operator>(
      "operator", OperatorsOf(from), OperatorsOf(to),
      [](const Operator& one) {
        return absl::StrCat(" (", RoleName(one.role), ")");
      },
      [](const Operator& a, const Operator& b) -> std::optional<std::string> {
        if (a == b) return std::nullopt;
        std::vector<std::string> parts;
        if (a.role != b.role) {
          parts.push_back(
              absl::StrCat(RoleName(a.role), " to ", RoleName(b.role)));
        }
        if (a.token != b.token) parts.push_back("token");
        return absl::StrCat(" (", absl::StrJoin(parts, ", "), ")");
      },
      &changes);
  if (from.join_token != to.join_token) changes.changed.push_back("join token");
  std::vector<std::string> parts;
  const auto add = [&](const char* what,
                       const std::vector<std::string>& names) {
    if (names.empty()) return;
    parts.push_back(absl::StrCat(what, ": ", absl::StrJoin(names, ", ")));
  };
  add("added", changes.added);
  add("changed", changes.changed);
  add("removed", changes.removed);
  return absl::StrJoin(parts, "; ");
}

std::vector<std::string> PendingSettings(const Config& running,
                                         const Config& read) {
  std::vector<std::string> names;
  const auto compare = [&](const char* name, const auto& before,
                           const auto& after) {
    if (before != after) names.push_back(name);
  };
  compare("listen", running.listen, read.listen);
  compare("insecure", running.insecure, read.insecure);
  // The contents of these files are read again while the process runs; a new
  // name of a file is not.
  compare("tls.certificate_file", running.tls.certificate_file,
          read.tls.certificate_file);
  compare("tls.private_key_file", running.tls.private_key_file,
          read.tls.private_key_file);
  compare("tls.client_ca_file", running.tls.client_ca_file,
          read.tls.client_ca_file);
  const std::vector<std::string> tracing =
      TracingDifferences(running.tracing, read.tracing);
  names.insert(names.end(), tracing.begin(), tracing.end());
  compare("monitoring.listen", running.monitoring.listen,
          read.monitoring.listen);
  compare("monitoring.insecure", running.monitoring.insecure,
          read.monitoring.insecure);
  compare("session_timeout", running.session_timeout, read.session_timeout);
  compare("worker_timeout", running.worker_timeout, read.worker_timeout);
  compare("worker_silence", running.worker_silence, read.worker_silence);
  compare("heartbeat_interval", running.heartbeat_interval,
          read.heartbeat_interval);
  compare("lease_valid_for", running.lease_valid_for, read.lease_valid_for);
  compare("lease_grace_period", running.lease_grace_period,
          read.lease_grace_period);
  compare("lease_key_lifetime", running.lease_key_lifetime,
          read.lease_key_lifetime);
  compare("lease_request_timeout", running.lease_request_timeout,
          read.lease_request_timeout);
  compare("line_patience", running.line_patience, read.line_patience);
  compare("reclaim_spares_for", running.reclaim_spares_for,
          read.reclaim_spares_for);
  compare("reclaim_loss_limit", running.reclaim_loss_limit,
          read.reclaim_loss_limit);
  compare("graph_store_size", running.graph_store_bytes,
          read.graph_store_bytes);
  compare("scaler.listen", running.scaler.listen, read.scaler.listen);
  compare("scaler.insecure", running.scaler.insecure, read.scaler.insecure);
  compare("scaler.target_utilisation", running.scaler.target_utilisation,
          read.scaler.target_utilisation);
  compare("automatic_migration", running.automatic_migration,
          read.automatic_migration);
  compare("placement_policy", running.placement_policy, read.placement_policy);
  compare("recorded_jobs", running.recorded_jobs, read.recorded_jobs);
  compare("state_file", running.state_file, read.state_file);
  compare("etcd.endpoints", running.etcd.endpoints, read.etcd.endpoints);
  compare("etcd.prefix", running.etcd.prefix, read.etcd.prefix);
  compare("etcd.lease", running.etcd.lease, read.etcd.lease);
  compare("etcd.insecure", running.etcd.insecure, read.etcd.insecure);
  compare("etcd.tls.ca_file", running.etcd.tls.ca_file, read.etcd.tls.ca_file);
  compare("etcd.tls.certificate_file", running.etcd.tls.certificate_file,
          read.etcd.tls.certificate_file);
  compare("etcd.tls.private_key_file", running.etcd.tls.private_key_file,
          read.etcd.tls.private_key_file);
  compare("etcd.tls.server_name", running.etcd.tls.server_name,
          read.etcd.tls.server_name);
  compare("advertise", running.advertise, read.advertise);
  return names;
}

}  // namespace djinn::coordinator
