#include "scheduler/quota/reclaim_losses.h"

#include <algorithm>

namespace djinn::scheduler {

ReclaimLosses::Tenant& ReclaimLosses::Now(const std::string& tenant,
                                          absl::Duration now) {
  Tenant& found = tenants_[tenant];
  while (!found.losses.empty() && now - found.losses.front().first >= kWindow) {
    found.sum -= found.losses.front().second;
    found.losses.pop_front();
  }
  if (found.first_put_off.has_value() && now - found.last_put_off > kAskedFor) {
    found.first_put_off.reset();
    found.most_put_off = absl::ZeroDuration();
  }
  return found;
}

absl::Duration ReclaimLosses::Lost(const std::string& tenant,
                                   absl::Duration now) {
  return Now(tenant, now).sum;
}

absl::Duration ReclaimLosses::Left(const std::string& tenant,
                                   absl::Duration now) {
  const Tenant& found = Now(tenant, now);
  const bool waited =
      found.first_put_off.has_value() && now - *found.first_put_off >= kWindow;
  if (found.losses.empty() || waited) return absl::InfiniteDuration();
  return std::max(absl::ZeroDuration(), limit_ - found.sum);
}

ReclaimLosses::Allowance ReclaimLosses::ForOne(absl::Duration now) {
  Allowance allowance;
  allowance.losses_ = this;
  allowance.now_ = now;
  return allowance;
}

bool ReclaimLosses::Allowance::Take(const std::string& tenant,
                                    absl::Duration lost) {
  if (losses_ == nullptr) return true;
  const auto [left, added] = left_.try_emplace(tenant);
  if (added) left->second = losses_->Left(tenant, now_);
  if (lost > left->second) return false;
  left->second -= lost;
  return true;
}

void ReclaimLosses::Add(const std::string& tenant, absl::Duration lost,
                        absl::Duration now) {
  if (lost <= absl::ZeroDuration()) return;
  Tenant& found = Now(tenant, now);
  if (found.sum + lost > limit_ || lost >= found.most_put_off) {
    found.first_put_off.reset();
    found.most_put_off = absl::ZeroDuration();
  }
  found.losses.emplace_back(now, lost);
  found.sum += lost;
}

void ReclaimLosses::PutOff(const std::string& tenant, absl::Duration lost,
                           absl::Duration now) {
  Tenant& found = Now(tenant, now);
  found.most_put_off = std::max(found.most_put_off, lost);
  if (!found.first_put_off.has_value()) found.first_put_off = now;
  found.last_put_off = now;
}

}  // namespace djinn::scheduler
