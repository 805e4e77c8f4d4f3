#include "scheduler/quota/quota_reader.h"

#include <cstdint>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace djinn::scheduler {
namespace {

constexpr uint64_t kMaxCount = std::numeric_limits<uint32_t>::max();
// Device-seconds per second, that is, devices.
constexpr double kMaxRate = 1e6;

// Calls `read` for each key that a quota has.
template <typename AnyQuota, typename Read>
AnyQuota ReadOne(ConfigMap map, const QuotaOwner& owner, Read read) {
  AnyQuota quota;
  if (owner.needs_nominal && !map.Has("nominalQuota")) {
    map.Error("nominalQuota", "is missing");
  }
  quota.nominal = read(&map, "nominalQuota");
  for (const auto& [key, limit] :
       {std::pair("borrowingLimit", &quota.borrowing_limit),
        std::pair("lendingLimit", &quota.lending_limit)}) {
    if (!map.Has(key)) continue;
    *limit = read(&map, key);
    if (!owner.has_neighbours) map.Error(key, owner.alone);
  }
  return quota;
}

int64_t ReadAmount(ConfigMap* map, absl::string_view key, Resource resource) {
  return static_cast<int64_t>(resource == Resource::kOutstandingMessages
                                  ? map->UInt(key, 0, 0, kMaxCount)
                                  : map->Size(key, 0));
}

}  // namespace

void CheckCohortName(ConfigMap* map, absl::string_view key,
                     const std::string& name) {
  if (name.empty()) return;
  for (const absl::string_view part : absl::StrSplit(name, '/')) {
    if (!part.empty()) continue;
    map->Error(key, absl::StrCat("expected names with a / between them, got \"",
                                 name, "\""));
    return;
  }
}

QuotaOwner TenantAsOwner(absl::string_view cohort) {
  return {.needs_nominal = true,
          .has_neighbours = !cohort.empty(),
          .alone = "there is no cohort to borrow from or lend to"};
}

QuotaOwner CohortAsOwner(absl::string_view name) {
  return {.has_neighbours = absl::StrContains(name, '/'),
          .alone =
              "there is no cohort around it to borrow from or lend "
              "to"};
}

void ReadQuotas(ConfigMap* map, const QuotaOwner& owner,
                absl::Span<const Resource> resources, Quotas* quotas) {
  for (const Resource resource : resources) {
    const absl::string_view key = ResourceName(resource);
    if (!map->Has(key)) continue;
    (*quotas)[static_cast<size_t>(resource)] =
        ReadOne<Quota>(map->Map(key), owner,
                       [resource](ConfigMap* of, absl::string_view name) {
                         return ReadAmount(of, name, resource);
                       });
  }
}

std::optional<RateQuota> ReadRateQuota(ConfigMap* map, absl::string_view key,
                                       RateUnit unit, const QuotaOwner& owner) {
  if (!map->Has(key)) return std::nullopt;
  return ReadOne<RateQuota>(
      map->Map(key), owner, [unit](ConfigMap* of, absl::string_view name) {
        return unit == RateUnit::kSeconds
                   ? of->Number(name, 0, 0, kMaxRate)
                   : static_cast<double>(of->Size(name, 0));
      });
}

}  // namespace djinn::scheduler
