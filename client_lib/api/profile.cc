#include "djinn/profile.h"

#include <memory>
#include <utility>

#include "client_lib/capture/device/process_session.h"
#include "client_lib/session/profile/profile_recorder.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "djinn/connect.h"

namespace djinn {
namespace {

// The session's counters when the open profile began, and the last profile's
// hit rate.
struct HitRate {
  Mutex mu;
  Statistics before ABSL_GUARDED_BY(mu);
  bool open ABSL_GUARDED_BY(mu) = false;
  double last ABSL_GUARDED_BY(mu) = 0;
};

HitRate& ProcessHitRate() {
  static HitRate* const rate = new HitRate;
  return *rate;
}

double HitRateSince(const Statistics& before, const Statistics& now) {
  // A session that was opened in between starts at zero.
  const Statistics from = now.runs < before.runs ? Statistics() : before;
  const uint64_t runs = now.runs - from.runs;
  if (runs == 0) return 0;
  const uint64_t misses = (now.graphs_defined - from.graphs_defined) -
                          (now.plan_cache_hits - from.plan_cache_hits);
  return 1 - static_cast<double>(misses) / static_cast<double>(runs);
}

}  // namespace

ProfileScope::ProfileScope() {
  status_ = ProfileRecorder::Global().Begin();
  open_ = status_.ok();
  if (!open_) return;
  const Statistics now = GetStatistics();
  HitRate& rate = ProcessHitRate();
  MutexLock lock(&rate.mu);
  rate.before = now;
  rate.open = true;
}

ProfileScope::~ProfileScope() {
  if (open_) (void)Finish();
}

absl::StatusOr<Profile> ProfileScope::Finish() {
  DJINN_RETURN_IF_ERROR(status_);
  status_ = MakeError(absl::StatusCode::kFailedPrecondition, "PROFILE_ENDED",
                      "the profile has already been finished");
  open_ = false;
  ProfileRecorder& recorder = ProfileRecorder::Global();
  recorder.Stop();
  const std::shared_ptr<Session> session = capture::CurrentSession();
  const absl::Status finished =
      session == nullptr ? absl::OkStatus() : session->FinishProfile();
  const Statistics now = GetStatistics();
  Profile profile = recorder.End();
  HitRate& rate = ProcessHitRate();
  MutexLock lock(&rate.mu);
  rate.open = false;
  rate.last = HitRateSince(rate.before, now);
  profile.statistics.cache_hit_rate = rate.last;
  DJINN_RETURN_IF_ERROR(finished);
  return profile;
}

ProfileStatistics GetProfileStatistics() {
  const Statistics now = GetStatistics();
  ProfileStatistics statistics = ProfileRecorder::Global().statistics();
  HitRate& rate = ProcessHitRate();
  MutexLock lock(&rate.mu);
  statistics.cache_hit_rate =
      rate.open ? HitRateSince(rate.before, now) : rate.last;
  return statistics;
}

}  // namespace djinn
