#include "coordinator/ctl/quota_report.h"

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/config/config_reader.h"
#include "common/status_macros.h"
#include "coordinator/ctl/table.h"

namespace djinn::ctl {
namespace {

bool IsInBytes(absl::string_view resource) {
  return absl::StrContains(resource, "bytes");
}

absl::StatusOr<double> Amount(absl::string_view resource,
                              absl::string_view text) {
  double number = 0;
  if (absl::SimpleAtod(text, &number)) return number;
  if (IsInBytes(resource)) {
    DJINN_ASSIGN_OR_RETURN(const uint64_t bytes, ParseSize(text));
    return static_cast<double>(bytes);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("expected a number of ", resource, ", got \"", text, "\""));
}

const v1::ResourceQuota* FindQuota(const v1::TenantInfo& tenant,
                                   absl::string_view resource) {
  for (const v1::ResourceQuota& quota : tenant.quotas()) {
    if (quota.resource() == resource) return &quota;
  }
  return nullptr;
}

// What the flag says; nothing for "none".
absl::StatusOr<std::optional<double>> Limit(const Command& command,
                                            absl::string_view flag,
                                            std::optional<double> before) {
  if (!command.Has(flag)) return before;
  const std::string text = command.Flag(flag);
  if (text == "none") return std::nullopt;
  DJINN_ASSIGN_OR_RETURN(const double limit, Amount(command.resource, text));
  return std::optional(limit);
}

std::string Number(absl::string_view resource, double value) {
  if (IsInBytes(resource) && value >= 1000) {
    return absl::StrFormat("%.15g (%s)", value,
                           FormatBytes(static_cast<uint64_t>(value)));
  }
  return absl::StrFormat("%.6g", value);
}

std::string Names(const google::protobuf::RepeatedPtrField<std::string>& names,
                  absl::string_view nobody) {
  return names.empty() ? std::string(nobody) : absl::StrJoin(names, ", ");
}

}  // namespace

absl::StatusOr<v1::TryQuotaRequest> TriedQuota(const Command& command,
                                               const v1::TenantInfo& tenant) {
  v1::TryQuotaRequest request;
  request.set_tenant(command.name);
  request.set_resource(command.resource);
  DJINN_ASSIGN_OR_RETURN(const double nominal,
                         Amount(command.resource, command.Flag("nominal")));
  request.set_nominal(nominal);
  std::optional<double> borrowing, lending;
  if (const auto* const before = FindQuota(tenant, command.resource)) {
    if (before->has_borrowing_limit()) borrowing = before->borrowing_limit();
    if (before->has_lending_limit()) lending = before->lending_limit();
  }
  DJINN_ASSIGN_OR_RETURN(borrowing,
                         Limit(command, "borrowing_limit", borrowing));
  DJINN_ASSIGN_OR_RETURN(lending, Limit(command, "lending_limit", lending));
  if (borrowing.has_value()) request.set_borrowing_limit(*borrowing);
  if (lending.has_value()) request.set_lending_limit(*lending);
  return request;
}

std::string Report(const v1::TryQuotaRequest& request,
                   const v1::TryQuotaResponse& response) {
  const std::string& resource = request.resource();
  const v1::ResourceQuota& before = response.before();
  const v1::ResourceQuota& after = response.after();
  const auto number = [&](double value) { return Number(resource, value); };
  const auto limit = [&](bool limited, double value) {
    return limited ? number(value) : std::string("none");
  };
  // What it was and what it would be, where it was anything.
  const auto change = [&](const std::string& was, const std::string& is) {
    if (!response.has_before()) return is;
    return was == is ? is : absl::StrCat(was, " -> ", is);
  };
  std::string text = FormatTable(
      {{"tenant", request.tenant()},
       {"quota of", resource},
       {"nominal", change(number(before.nominal()), number(after.nominal()))},
       {"borrowing limit",
        change(limit(before.has_borrowing_limit(), before.borrowing_limit()),
               limit(after.has_borrowing_limit(), after.borrowing_limit()))},
       {"lending limit",
        change(limit(before.has_lending_limit(), before.lending_limit()),
               limit(after.has_lending_limit(), after.lending_limit()))},
       {"used", number(after.used())},
       {"borrowed",
        change(number(before.borrowed()), number(after.borrowed()))},
       {"lent", change(number(before.lent()), number(after.lent()))},
       {"over nominal", number(response.over_nominal())},
       {"available", number(response.available())},
       {"takes back from", Names(response.reclaims_from(), "nobody")},
       {"gives back to", Names(response.reclaimed_by(), "nobody")}});
  if (response.others_size() > 0) {
    std::vector<Row> rows = {{"TENANT", "BORROWED", "LENT"}};
    for (const v1::TryQuotaResponse::Change& other : response.others()) {
      const auto arrow = [&](double was, double is) {
        return was == is ? number(is)
                         : absl::StrCat(number(was), " -> ", number(is));
      };
      rows.push_back(
          {other.tenant(),
           arrow(other.before().borrowed(), other.after().borrowed()),
           arrow(other.before().lent(), other.after().lent())});
    }
    absl::StrAppend(&text, "\n", FormatTable(rows));
  }
  return absl::StrCat(text,
                      "\nnothing was changed: quotas are set in the "
                      "coordinator's configuration, then `djinnctl reload`\n");
}

}  // namespace djinn::ctl
