#include "gpu_worker/streams/session_factory.h"

#include <utility>

#include "gpu_worker/leases/lease_turn.h"

namespace djinn::worker {

std::shared_ptr<Session> SessionFactory::Make(
    const Lease& lease, uint64_t queue_key,
    std::function<void(absl::Status)> fail) {
  const v1::LeaseClaims& claims = lease.claims;
  auto session = std::make_shared<Session>(
      environment_, claims.session_id(), claims.tenant(), AccountOf(claims),
      lease.meter, claims.limits(),
      SessionCallbacks{
          [queue = queue_, queue_key] { queue->MakeRunnable(queue_key); },
          std::move(fail),
          [queue = queue_, queue_key] { queue->UpdatePhase(queue_key); }});
  session->Apply(claims);
  queue_->Join(queue_key, session, lease.meter, WeightOf(claims));
  return session;
}

void SessionFactory::UpdateTenant(const v1::LeaseClaims& claims) {
  if (!claims.has_tenant_limits()) return;
  MutexLock lock(&mu_);
  const auto found = accounts_.find(claims.tenant());
  if (found == accounts_.end()) return;
  if (const std::shared_ptr<TenantAccount> account = found->second.lock()) {
    account->SetLimits(claims.tenant_limits());
  }
}

void SessionFactory::Update(const v1::LeaseClaims& claims, uint64_t queue_key,
                            Session* session) {
  session->Apply(claims);
  queue_->Update(queue_key, WeightOf(claims));
}

std::shared_ptr<TenantAccount> SessionFactory::AccountOf(
    const v1::LeaseClaims& lease) {
  MutexLock lock(&mu_);
  std::shared_ptr<TenantAccount> account = accounts_[lease.tenant()].lock();
  if (account == nullptr) {
    absl::erase_if(accounts_,
                   [](const auto& entry) { return entry.second.expired(); });
    account = std::make_shared<TenantAccount>(
        [this, tenant = lease.tenant()](uint64_t missing) {
          return end_lost_(tenant, missing);
        });
    accounts_[lease.tenant()] = account;
  }
  if (lease.has_tenant_limits()) account->SetLimits(lease.tenant_limits());
  return account;
}

}  // namespace djinn::worker
