#include "gpu_worker/core/housekeeping.h"

#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/log/log.h"

namespace djinn::worker {
namespace {

// The device keeps memory that no session needs for at least this long.
constexpr absl::Duration kTidyingInterval = absl::Seconds(10);

}  // namespace

Housekeeping::Housekeeping(Options options, Device* device, Clock* clock,
                           LeaseKeeper* leases, StreamTable* streams,
                           OfferTable* offers, MemoryRelief* relief,
                           DeviceWatch* watch)
    : options_(std::move(options)),
      device_(*device),
      clock_(*clock),
      leases_(*leases),
      streams_(*streams),
      offers_(*offers),
      relief_(*relief),
      watch_(*watch) {}

void Housekeeping::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Housekeeping::Finish() {
  if (thread_.joinable()) {
    thread_.join();
  } else {
    Run();
  }
}

void Housekeeping::Run() {
  do {
    KeepHouse();
  } while (streams_.AwaitWork(options_.interval));
}

void Housekeeping::KeepHouse() {
  while (streams_.CloseAndReap()) {
  }
  ExpireLeases();
  if (streams_.CheckDeadlines()) options_.changed();
  offers_.CheckDeadlines(
      [this](const std::string& session_id) { return ActivityOf(session_id); });
  relief_.KeepHouse();
  CheckDevice();
}

OfferTable::Activity Housekeeping::ActivityOf(
    const std::string& session_id) const {
  if (!leases_.HasSession(session_id)) return OfferTable::Activity::kGone;
  return streams_.Busy(session_id) ? OfferTable::Activity::kBusy
                                   : OfferTable::Activity::kIdle;
}

void Housekeeping::ExpireLeases() {
  const std::vector<std::string> expired = leases_.EndExpired();
  for (const std::string& lease_id : expired) {
    log::Warning("lease expired", {{"lease", lease_id}});
    streams_.EndLease(
        lease_id, MakeError(absl::StatusCode::kAborted, "LEASE_EXPIRED",
                            "the coordinator did not renew the lease in time"));
  }
  if (!expired.empty()) options_.changed();
}

void Housekeeping::CheckDevice() {
  const absl::Duration now = clock_.Monotonic();
  if (now >= next_tidying_) {
    next_tidying_ = now + kTidyingInterval;
    device_.ReleaseUnusedMemory();
  }
  watch_.Measure();
  if (reported_broken_) return;
  const absl::Status health = device_.Health();
  if (health.ok()) return;
  reported_broken_ = true;
  if (options_.device_broken) options_.device_broken(health);
}

}  // namespace djinn::worker
