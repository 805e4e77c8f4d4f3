#include "coordinator/tables/lease_table.h"

#include <utility>

namespace djinn::coordinator {
namespace {

void EraseFrom(std::map<std::string, std::set<std::string>>* index,
               const std::string& key, const std::string& id) {
  const auto found = index->find(key);
  if (found == index->end()) return;
  found->second.erase(id);
  if (found->second.empty()) index->erase(found);
}

}  // namespace

Lease* LeaseTable::Add(Lease lease) {
  auto owned = std::make_unique<Lease>(std::move(lease));
  Lease* const added = owned.get();
  by_session_[added->session_id].insert(added->id);
  by_worker_[added->worker_id].insert(added->id);
  by_tenant_[added->tenant].insert(added->id);
  if (added->promised_bytes > 0) {
    promising_[added->worker_id].insert(added->id);
  }
  leases_[added->id] = std::move(owned);
  return added;
}

void LeaseTable::Remove(const std::string& id) {
  const auto found = leases_.find(id);
  if (found == leases_.end()) return;
  // `id` may be a reference into the lease itself.
  const std::unique_ptr<Lease> lease = std::move(found->second);
  leases_.erase(found);
  EraseFrom(&by_session_, lease->session_id, lease->id);
  EraseFrom(&by_worker_, lease->worker_id, lease->id);
  EraseFrom(&by_tenant_, lease->tenant, lease->id);
  EraseFrom(&promising_, lease->worker_id, lease->id);
}

Lease* LeaseTable::Find(const std::string& id) {
  const auto found = leases_.find(id);
  return found == leases_.end() ? nullptr : found->second.get();
}

Lease* LeaseTable::FindDevice(const std::string& session_id, MemberId device) {
  for (Lease* lease : OfSession(session_id)) {
    if (lease->device == device && !lease->migrating()) {
      return lease;
    }
  }
  return nullptr;
}

Lease* LeaseTable::FindMigration(const Lease& from) {
  for (Lease* lease : OfSession(from.session_id)) {
    if (lease->migrates_from == from.id) return lease;
  }
  return nullptr;
}

std::vector<Lease*> LeaseTable::Of(const Index& index,
                                   const std::string& key) const {
  std::vector<Lease*> result;
  const auto found = index.find(key);
  if (found == index.end()) return result;
  for (const std::string& id : found->second) {
    result.push_back(leases_.at(id).get());
  }
  return result;
}

std::vector<Lease*> LeaseTable::OfSession(const std::string& session_id) const {
  return Of(by_session_, session_id);
}

std::vector<Lease*> LeaseTable::OfWorker(const std::string& worker_id) const {
  return Of(by_worker_, worker_id);
}

std::vector<Lease*> LeaseTable::OfTenant(const std::string& tenant) const {
  return Of(by_tenant_, tenant);
}

bool LeaseTable::Spans(const std::string& session_id,
                       uint32_t virtual_device) const {
  for (const Lease* lease : OfSession(session_id)) {
    if (lease->device.virtual_device == virtual_device &&
        lease->device.member > 0) {
      return true;
    }
  }
  return false;
}

size_t LeaseTable::CountOfWorker(const std::string& worker_id) const {
  const auto found = by_worker_.find(worker_id);
  return found == by_worker_.end() ? 0 : found->second.size();
}

std::vector<Lease*> LeaseTable::PromisingOfWorker(
    const std::string& worker_id) const {
  return Of(promising_, worker_id);
}

void LeaseTable::EndPromise(Lease* lease) {
  lease->promised_bytes = 0;
  EraseFrom(&promising_, lease->worker_id, lease->id);
}

}  // namespace djinn::coordinator
