// How much tenants lose when others take back what is their own.
//
// A reclaim costs a tenant the device time that its sessions had used which
// have to begin again. Of that a tenant loses no more than a limit in any
// minute: a reclaim that would cost more takes other victims or is put off. But
// a lender gets its own, however much one session has used: one reclaim may
// cost a tenant whatever it takes if that lost nothing in the minute before, or
// if such reclaims have been put off for a minute, and are asked for still. So
// in any minute a tenant loses at most the limit and what one reclaim takes
// besides, and one that is put off goes on after a minute, unless another such
// one did meanwhile.
//
// Not thread-safe; reads no clock. Times are monotonic, and never go back.
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
  // Whoever waits for one asks more often than that.
  static constexpr absl::Duration kAskedFor = absl::Seconds(30);

  // What one reclaim may still cost tenants while its victims are chosen.
  class Allowance {
   public:
    // Anything.
    Allowance() = default;
    // Whether the tenant may lose so much besides what was taken before, which
    // it then does.
    bool Take(const std::string& tenant, absl::Duration lost);

   private:
    friend class ReclaimLosses;
    // Must outlive it, unless null.
    ReclaimLosses* losses_ = nullptr;
    absl::Duration now_;
    std::map<std::string, absl::Duration> left_;
  };

  explicit ReclaimLosses(absl::Duration limit) : limit_(limit) {}

  absl::Duration limit() const { return limit_; }
  // In the last minute.
  absl::Duration Lost(const std::string& tenant, absl::Duration now);
  // What one reclaim may cost the tenant now.
  absl::Duration Left(const std::string& tenant, absl::Duration now);
  // As long as nothing is added.
  Allowance ForOne(absl::Duration now);
  // A reclaim cost it so much, all its victims together.
  void Add(const std::string& tenant, absl::Duration lost, absl::Duration now);
  // One that would have cost it so much, more than is left, was put off.
  void PutOff(const std::string& tenant, absl::Duration lost,
              absl::Duration now);

 private:
  struct Tenant {
    // When, and how much, in the last minute.
    std::deque<std::pair<absl::Duration, absl::Duration>> losses;
    absl::Duration sum;
    // Since the last one beyond the limit, or as costly as any of them: when
    // the first was put off, and what the dearest would have cost.
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
