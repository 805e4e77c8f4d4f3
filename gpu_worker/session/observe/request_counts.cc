#include "gpu_worker/session/observe/request_counts.h"

namespace djinn::worker {

RequestCounts::Succeeded* RequestCounts::SucceededOf(
    const std::string& tenant) {
  MutexLock lock(&mu_);
  std::unique_ptr<Succeeded>& counts = succeeded_[tenant];
  if (counts == nullptr) counts = std::make_unique<Succeeded>();
  return counts.get();
}

void RequestCounts::AddFailed(const std::string& tenant, v1::Phase phase,
                              absl::StatusCode code) {
  failed_.Add({tenant, PhaseName(phase), absl::StatusCodeToString(code)});
}

void RequestCounts::Collect(Exposition* out) const {
  failed_.Collect(out);
  MutexLock lock(&mu_);
  for (const auto& [tenant, counts] : succeeded_) {
    for (int phase = 0; phase < PhaseTimes::kPhases; ++phase) {
      const uint64_t count = (*counts)[phase].load(std::memory_order_relaxed);
      if (count == 0) continue;
      out->Counter(kName, kHelp, static_cast<double>(count),
                   {{"tenant", tenant},
                    {"phase", PhaseName(static_cast<v1::Phase>(phase))},
                    {"code", "OK"}});
    }
  }
}

}  // namespace djinn::worker
