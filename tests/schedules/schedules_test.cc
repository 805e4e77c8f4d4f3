// Plays random schedules; see schedule.h. After a failure it prints the seed,
// which reproduces the schedule, and the shortest schedule that still fails.
//
//   schedules_test --seed=1234 --schedules=1 [--faults] [--losses] [--spans]
//
// A failure that depends on timing is looked for with --repeats. With --log and
// DJINN_DEBUG=execution, the log has every message.
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_join.h"
#include "common/base/random.h"
#include "common/log/log.h"
#include "tests/schedules/player.h"
#include "tests/schedules/schedule.h"
#include "tests/schedules/watchdog.h"

ABSL_FLAG(uint64_t, seed, 0, "of the first schedule; 0: a random one");
ABSL_FLAG(bool, faults, false,
          "whether connections break and workers, leases and sessions end");
ABSL_FLAG(bool, losses, false,
          "whether workers are lost, and sessions recover from that");
ABSL_FLAG(bool, spans, false, "whether devices span workers");
ABSL_FLAG(int, schedules, 1000, "how many to play, with consecutive seeds");
ABSL_FLAG(bool, repeats, false,
          "whether to play the first one again and again");
ABSL_FLAG(bool, log, false, "whether to write what the parts log");

namespace djinn::schedules {
namespace {

// Longer than any wait inside a schedule.
constexpr absl::Duration kPatience = absl::Seconds(200);
// The number of attempts to reproduce a failure, which may depend on timing.
constexpr int kAttempts = 5;

std::vector<std::string> Play(const Schedule& schedule, Watchdog* watchdog,
                              uint64_t* resumes = nullptr,
                              uint64_t* recoveries = nullptr,
                              uint64_t* checkpoints = nullptr,
                              uint64_t* copies = nullptr) {
  watchdog->Progress(ToText(schedule));
  Player player(schedule);
  std::vector<std::string> complaints = player.Play();
  if (resumes != nullptr) *resumes += player.resumes();
  if (recoveries != nullptr) *recoveries += player.recoveries();
  if (checkpoints != nullptr) *checkpoints += player.checkpoints();
  if (copies != nullptr) *copies += player.copies();
  return complaints;
}

bool Fails(const Schedule& schedule, Watchdog* watchdog) {
  for (int i = 0; i < kAttempts; ++i) {
    if (!Play(schedule, watchdog).empty()) return true;
  }
  return false;
}

// Removes steps as long as the schedule still fails.
Schedule Shrink(Schedule schedule, Watchdog* watchdog) {
  const bool tight = schedule.setup.memory == Memory::kTight;
  for (size_t i = schedule.steps.size(); i-- > 0;) {
    // Keeps the step, because without it the schedule would need more memory
    // than there is.
    if (tight && schedule.steps[i].action == Action::kDrop) continue;
    Schedule shorter = schedule;
    shorter.steps.erase(shorter.steps.begin() + i);
    if (Fails(shorter, watchdog)) schedule = std::move(shorter);
  }
  return schedule;
}

int Main() {
  uint64_t seed = absl::GetFlag(FLAGS_seed);
  if (seed == 0) seed = RandomSource::Real()->NonZero64() >> 32;
  const int count = absl::GetFlag(FLAGS_schedules);
  const Faults faults = absl::GetFlag(FLAGS_losses)   ? Faults::kLosses
                        : absl::GetFlag(FLAGS_faults) ? Faults::kSome
                                                      : Faults::kNone;
  std::cout << count << " schedules from --seed=" << seed << std::endl;
  Watchdog watchdog(kPatience);
  uint64_t resumes = 0;
  uint64_t recoveries = 0;
  uint64_t checkpoints = 0;
  uint64_t copies = 0;
  for (int i = 0; i < count; ++i) {
    const Schedule schedule =
        DrawSchedule(absl::GetFlag(FLAGS_repeats) ? seed : seed + i, faults,
                     absl::GetFlag(FLAGS_spans));
    const std::vector<std::string> complaints =
        Play(schedule, &watchdog, &resumes, &recoveries, &checkpoints, &copies);
    if (complaints.empty()) continue;
    std::cout << "FAILED after " << i << " schedules:\n"
              << ToText(schedule) << absl::StrJoin(complaints, "\n")
              << std::endl;
    const Schedule shorter = Shrink(schedule, &watchdog);
    std::cout << "shortest found:\n"
              << ToText(shorter)
              << absl::StrJoin(Play(shorter, &watchdog), "\n") << std::endl;
    return 1;
  }
  std::cout << "all passed; " << resumes << " connections were taken up again, "
            << recoveries << " lost workers recovered from, " << checkpoints
            << " checkpoints made, " << copies
            << " values copied between workers" << std::endl;
  if (faults == Faults::kLosses && count >= 100 && recoveries == 0) {
    std::cout << "FAILED: no device recovered" << std::endl;
    return 1;
  }
  if (absl::GetFlag(FLAGS_spans) && count >= 100 && copies == 0) {
    std::cout << "FAILED: no device used two workers" << std::endl;
    return 1;
  }
  if (faults == Faults::kLosses && count >= 100 && checkpoints == 0) {
    std::cout << "FAILED: no device made a checkpoint" << std::endl;
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace djinn::schedules

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  djinn::log::Configure("", absl::GetFlag(FLAGS_log) ? djinn::log::Level::kInfo
                                                     : djinn::log::Level::kOff);
  return djinn::schedules::Main();
}
