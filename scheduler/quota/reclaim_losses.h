// Limits how much device time tenants lose when others reclaim their own quota.
//
// A session that a reclaim evicts begins again, so its tenant loses the device
// time that it had used. In any minute a tenant loses no more than a limit: a
// reclaim that would cost more takes other victims or is put off.
//
// A lender gets its own nevertheless, however much one session has used. One
// reclaim may cost a tenant any amount if the tenant lost nothing in the minute
// before, or if such reclaims have been put off for a minute and are still
// asked for. In any minute a tenant therefore loses at most the limit plus the
// cost of one reclaim. A reclaim that is put off succeeds after a minute,
// unless another one of that kind did meanwhile.
//
// Not thread-safe; reads no clock. Times are monotonic and never decrease.
#ifndef SCHEDULER_QUOTA_RECLAIM_LOSSES_H_
#define SCHEDULER_QUOTA_RECLAIM_LOSSES_H_

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"

namespace djinn::scheduler {

class ReclaimLosses {
 public:
  static constexpr absl::Duration kWindow = absl::Minutes(1);
  // A tenant that waits for a reclaim asks more often than this.
  static constexpr absl::Duration kAskedFor = absl::Seconds(30);

  // Tracks what one reclaim may still cost each tenant while its victims are
  // chosen.
  class Allowance {
   public:
    // Creates an allowance without limits.
    Allowance() = default;
    // Returns whether the tenant may lose `lost` on top of what was taken
    // before. Subtracts it if so.
    bool Take(const std::string& tenant, absl::Duration lost);

   private:
    friend class ReclaimLosses;
    // Null for no limits; otherwise it must outlive the allowance.
    ReclaimLosses* losses_ = nullptr;
    absl::Duration now_;
    std::map<std::string, absl::Duration> left_;
  };

  explicit ReclaimLosses(absl::Duration limit) : limit_(limit) {}

  absl::Duration limit() const { return limit_; }
  // Returns the device time that the tenant lost in the last minute.
  absl::Duration Lost(const std::string& tenant, absl::Duration now);
  // Returns the device time that one reclaim may cost the tenant now.
  absl::Duration Left(const std::string& tenant, absl::Duration now);
  // Returns the allowance of one reclaim. It is valid until Add() or PutOff()
  // is called.
  Allowance ForOne(absl::Duration now);
  // Counts the cost of one reclaim to the tenant, summed over its victims.
  void Add(const std::string& tenant, absl::Duration lost, absl::Duration now);
  // Notes that a reclaim was put off because it would have cost the tenant
  // `lost`, which is more than is left.
  void PutOff(const std::string& tenant, absl::Duration lost,
              absl::Duration now);

 private:
  struct Tenant {
    // Times and amounts of the losses in the last minute.
    std::deque<std::pair<absl::Duration, absl::Duration>> losses;
    absl::Duration sum;
    // Time of the first reclaim that was put off, time of the latest one, and
    // the cost of the most expensive one. They start again when a reclaim
    // exceeds the limit or costs at least `most_put_off`.
    std::optional<absl::Duration> first_put_off;
    absl::Duration last_put_off;
    absl::Duration most_put_off;
  };
  Tenant& Now(const std::string& tenant, absl::Duration now);

  const absl::Duration limit_;
  std::map<std::string, Tenant> tenants_;
};

}  // namespace djinn::scheduler

#endif  // SCHEDULER_QUOTA_RECLAIM_LOSSES_H_
