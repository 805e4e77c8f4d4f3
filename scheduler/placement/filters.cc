#include "scheduler/placement/filters.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace djinn::scheduler {
namespace {

using Reason = std::optional<std::string>;

Reason Session(const Request& request, const WorkerFacts& worker,
               const Terms& /*terms*/) {
  if (!request.barred) return std::nullopt;
  std::string why = request.barred(worker.id);
  if (why.empty()) return std::nullopt;
  return why;
}

Reason Cordon(const Request& /*request*/, const WorkerFacts& worker,
              const Terms& /*terms*/) {
  if (!worker.cordoned) return std::nullopt;
  return "is cordoned";
}

Reason Failure(const Request& /*request*/, const WorkerFacts& worker,
               const Terms& /*terms*/) {
  if (worker.failure.empty()) return std::nullopt;
  return absl::StrCat("has a failing device: ", worker.failure);
}

Reason Capability(const Request& request, const WorkerFacts& worker,
                  const Terms& /*terms*/) {
  for (const std::string& needed : request.required) {
    if (needed == worker.device ||
        std::find(worker.capabilities.begin(), worker.capabilities.end(),
                  needed) != worker.capabilities.end()) {
      continue;
    }
    return absl::StrCat("lacks ", needed);
  }
  return std::nullopt;
}

Reason Phase(const Request& request, const WorkerFacts& worker,
             const Terms& /*terms*/) {
  if (worker.phases == 0 || request.phase == semantics::Phase::kUnspecified ||
      (worker.phases >> static_cast<unsigned>(request.phase) & 1) != 0) {
    return std::nullopt;
  }
  return "is kept for other phases";
}

Reason Memory(const Request& /*request*/, const WorkerFacts& worker,
              const Terms& terms) {
  if (terms.missing_bytes <= worker.available_bytes) return std::nullopt;
  return absl::StrCat("has ", DescribeBytes(worker.available_bytes),
                      " available of ", DescribeBytes(terms.missing_bytes),
                      " missing");
}

Reason Kept(const Request& request, const WorkerFacts& worker,
            const Terms& /*terms*/) {
  const auto kept = request.kept_for_others.find(worker.id);
  if (kept == request.kept_for_others.end()) return std::nullopt;
  return std::string(kept->second);
}

constexpr struct {
  const char* name;
  Reason (*apply)(const Request&, const WorkerFacts&, const Terms&);
} kFilters[] = {{"session", Session}, {"cordon", Cordon},
                {"failure", Failure}, {"capability", Capability},
                {"phase", Phase},     {"memory", Memory},
                {"kept", Kept}};

}  // namespace

std::optional<Drop> Filter(const Request& request, const WorkerFacts& worker,
                           const Terms& terms) {
  for (const auto& filter : kFilters) {
    if (Reason reason = filter.apply(request, worker, terms)) {
      return Drop{filter.name, *std::move(reason)};
    }
  }
  return std::nullopt;
}

std::string DescribeBytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
  if (bytes < 1000) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes) / 1000;
  size_t unit = 0;
  for (; value >= 999.95 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

}  // namespace djinn::scheduler
