#include "coordinator/console/memory_history.h"

#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace djinn::console {
namespace {

size_t SizeOf(const MemoryMoment& moment) {
  return moment.workers.size() + moment.tenants.size();
}

}  // namespace

std::shared_ptr<const MemoryMoment> MemoryMomentOf(
    const v1::ListWorkersResponse& workers,
    const v1::ListLeasesResponse& leases, absl::Time now) {
  auto moment = std::make_shared<MemoryMoment>();
  moment->at = now;
  absl::flat_hash_map<std::string, uint32_t> index;
  for (const v1::WorkerInfo& info : workers.workers()) {
    index[info.worker_id()] = static_cast<uint32_t>(moment->workers.size());
    WorkerMemory& one = moment->workers.emplace_back();
    one.worker = info.worker_id();
    one.device = info.device();
    one.state = info.state();
    one.memory = info.memory_bytes();
    one.free = info.free_bytes();
    one.storages = info.memory().storage_bytes();
    one.contents = info.memory().content_bytes();
    one.idle_contents = info.memory().idle_content_bytes();
    one.transfers = info.memory().transfer_bytes();
    one.caches = info.memory().cache_bytes();
    one.content_evictions = info.content_cache().evictions();
    one.plan_evictions = info.plan_cache().evictions();
  }
  std::map<std::pair<uint32_t, std::string>, TenantMemory> tenants;
  for (const v1::LeaseInfo& lease : leases.leases()) {
    const auto worker = index.find(lease.worker_id());
    if (worker == index.end()) continue;
    TenantMemory& one = tenants[{worker->second, lease.tenant()}];
    one.worker = worker->second;
    one.tenant = lease.tenant();
    one.contents += lease.use().contents().size_bytes();
    one.storages += lease.use().storages().size_bytes();
    one.caches += lease.use().caches().size_bytes();
    one.generators += lease.use().generators().size_bytes();
  }
  for (auto& [key, one] : tenants) moment->tenants.push_back(std::move(one));
  return moment;
}

void MemoryHistory::Add(std::shared_ptr<const MemoryMoment> moment) {
  if (!moments_.empty() && moments_.back()->workers == moment->workers &&
      moments_.back()->tenants == moment->tenants) {
    return;
  }
  size_ += SizeOf(*moment);
  moments_.push_back(std::move(moment));
  while (size_ > capacity_ && moments_.size() > 1) {
    size_ -= SizeOf(*moments_.front());
    moments_.pop_front();
  }
}

std::shared_ptr<const MemoryMoment> MemoryHistory::At(absl::Time at) const {
  if (moments_.empty()) return nullptr;
  std::shared_ptr<const MemoryMoment> found = moments_.front();
  for (const auto& moment : moments_) {
    if (moment->at > at) break;
    found = moment;
  }
  return found;
}

std::vector<absl::Time> MemoryHistory::times() const {
  std::vector<absl::Time> times;
  for (const auto& moment : moments_) times.push_back(moment->at);
  return times;
}

}  // namespace djinn::console
