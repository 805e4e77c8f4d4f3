// Tests turns that yield, over random traces, with the queue that decides to
// which. Every run ends and yields at most so often and for so long. Tenants
// get their shares, however often other sessions return, and all time is
// charged to some session.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/metrics/tenant_labels.h"
#include "gpu_worker/executor/preemption.h"
#include "gpu_worker/leases/yielded.h"
#include "gtest/gtest.h"
#include "scheduler/fairness/fair_queue.h"

namespace djinn::worker {
namespace {

using scheduler::FairQueue;

constexpr int kTraces = 10'000;
// The outermost turns of a trace, and the most turns in all.
constexpr int kTurns = 12;
constexpr int kMostTurns = 100'000;
// The time to choose a turn that preempts, and to end any turn.
constexpr absl::Duration kBetween = absl::Milliseconds(1);

double Seconds(absl::Duration time) { return absl::ToDoubleSeconds(time); }

class Trace {
 public:
  explicit Trace(uint64_t seed)
      : random_(seed),
        preemption_(
            &clock_, &labels_,
            {.take = [this](
                         const Preemption::Step& step, absl::Duration used,
                         absl::Duration end) { return Take(step, used, end); },
             .serve =
                 [this] {
                   const uint64_t key = *std::exchange(chosen_, {});
                   Serve(key);
                   Session& session = sessions_[key];
                   return Preemptor{TenantOf(session).name, absl::StrCat(key)};
                 }}) {
    preemption_.Settle(preemption_.OwnTime());
    const int tenants = 1 + Draw(3);
    for (int i = 0; i < tenants; ++i) {
      tenants_.push_back(
          {.name = absl::StrCat("tenant", i), .weight = (1 + Draw(16)) / 4.0});
      // Each tenant has one long run of low priority, and sessions that return
      // at once.
      Join(i, 0, /*most_nodes=*/100, /*keen=*/true);
      for (int k = 1 + Draw(5); k > 0; --k) {
        Join(i, Draw(FairQueue::kPriorities), 1 + Draw(3), Draw(4) != 0);
      }
    }
  }

  void Run() {
    const absl::Duration start = clock_.Monotonic();
    for (int turn = 0; turn < kTurns && !queue_.empty(); ++turn) {
      NoteShares();
      Note(queue_.Next());
      Serve(queue_.Take());
      if (testing::Test::HasFailure()) return;
      ASSERT_EQ(depth_, 0);
      ASSERT_EQ(begun_, ended_);
    }
    ASSERT_EQ(charged_ + between_, clock_.Monotonic() - start);
    NoteShares();
  }

  int most_times() const { return most_times_; }
  int most_depth() const { return most_depth_; }
  bool short_preempted_by() const { return short_preempted_by_; }

 private:
  struct Tenant {
    std::string name;
    double weight = 1;
    int waiting = 0;
    // Device seconds over weight, in sum and for the longest turn.
    double share = 0;
    double longest = 0;
  };
  struct Session {
    size_t tenant = 0;
    int most_nodes = 1;
    bool keen = false;
    bool waits = false;
    Yielded yielded;
  };
  struct Window {
    double least = 0;
    double most = 0;
    bool open = false;
  };

  int Draw(int below) {
    return static_cast<int>(random_() % static_cast<uint64_t>(below));
  }
  Tenant& TenantOf(const Session& session) { return tenants_[session.tenant]; }

  void Join(int tenant, int priority, int most_nodes, bool keen) {
    const uint64_t key = sessions_.size();
    Session& session = sessions_.emplace_back();
    session.tenant = static_cast<size_t>(tenant);
    session.most_nodes = most_nodes;
    session.keen = keen;
    queue_.Join(key, TenantOf(session).name, TenantOf(session).weight,
                priority);
    Arrive(key);
  }

  FairQueue::Work DrawWork(const Session& session) {
    const FairQueue::Pace pace = DrawPace(session);
    return {.deadline = Draw(2) == 0 ? absl::InfiniteDuration()
                                     : clock_.Monotonic() +
                                           absl::Milliseconds(Draw(2000)),
            .pace = pace};
  }
  // Draws kShort for a session whose steps have few nodes and kLong for other
  // sessions, unless the pace is unknown.
  FairQueue::Pace DrawPace(const Session& session) {
    using Pace = FairQueue::Pace;
    if (Draw(3) == 0) return Pace::kUnknown;
    return session.most_nodes > 3 ? Pace::kLong : Pace::kShort;
  }

  void Arrive(uint64_t key) {
    // Has no effect on a session that waits or is in service.
    if (sessions_[key].waits || serving_.contains(key)) return;
    queue_.MakeRunnable(key, DrawWork(sessions_[key]));
    SetWaits(key, true);
    preemption_.NoteArrival();
  }

  void SetWaits(uint64_t key, bool waits) {
    sessions_[key].waits = waits;
    TenantOf(sessions_[key]).waiting += waits ? 1 : -1;
  }

  // Asks as the worker does.
  FairQueue::Preemption Take(const Preemption::Step& step, absl::Duration used,
                             absl::Duration end) {
    queue_.Charge(step.key, used);
    const FairQueue::Preemption asked = queue_.MayPreempt({&step.key, 1}, end);
    if (FairQueue::Yields(asked)) {
      NoteWaiting();
      short_preempted_by_ |= asked == FairQueue::Preemption::kShort;
      chosen_ = queue_.TakePreempting(asked);
      began_[*chosen_] = clock_.Monotonic();
      PassBetween();
    }
    return asked;
  }

  // Passes time between turns. It belongs to the turn that is next, or goes on.
  void PassBetween() {
    clock_.Advance(kBetween);
    between_ += kBetween;
  }

  void Serve(uint64_t key) {
    ASSERT_LT(++begun_, kMostTurns);
    Session& session = sessions_[key];
    ASSERT_TRUE(session.waits);
    SetWaits(key, false);
    serving_.insert(key);
    most_depth_ = std::max(most_depth_, ++depth_);
    Preemption::Step step;
    step.key = key;
    step.tenant = &TenantOf(session).name;
    step.yielded = &session.yielded;
    preemption_.Begin(&step);
    // The pace turns out to be another one.
    queue_.SetPace(key, DrawPace(session));
    const int nodes = 1 + Draw(session.most_nodes);
    absl::Duration own = std::exchange(between_, {});
    for (int node = 0; node < nodes; ++node) {
      const absl::Duration took = absl::Milliseconds(1 + Draw(300));
      clock_.Advance(took);
      own += took;
      if (Draw(3) == 0) {
        Arrive(static_cast<uint64_t>(Draw(static_cast<int>(sessions_.size()))));
      }
      if (node + 1 == nodes || !preemption_.wanted()) continue;
      Yield(&step, &own);
      if (testing::Test::HasFailure()) return;
    }
    ASSERT_EQ(preemption_.OwnTime() - step.start, own);
    preemption_.Settle(step.start + own);
    charged_ += own;
    PassBetween();
    preemption_.End(&step);
    most_times_ = std::max(most_times_, step.rule.times());
    --depth_;
    ++ended_;
    serving_.erase(key);
    Tenant& tenant = TenantOf(session);
    tenant.share += Seconds(own) / tenant.weight;
    tenant.longest = std::max(tenant.longest, Seconds(own) / tenant.weight);
    longest_turn_ = std::max(longest_turn_, clock_.Monotonic() - began_[key]);
    std::optional<FairQueue::Work> more;
    if (session.keen) more = DrawWork(session);
    queue_.Done(key, own, more);
    if (more.has_value()) {
      SetWaits(key, true);
      preemption_.NoteArrival();
    }
  }

  void Yield(Preemption::Step* step, absl::Duration* own) {
    const absl::Duration before = clock_.Monotonic();
    const int times = step->rule.times();
    // Measures only the turns that preempt now.
    const absl::Duration outer_longest = std::exchange(longest_turn_, {});
    preemption_.Yield(absl::Milliseconds(Draw(3000)));
    const absl::Duration away = clock_.Monotonic() - before;
    ASSERT_LE(step->rule.times(), times + 1);
    ASSERT_EQ(step->rule.times() == times, away == absl::ZeroDuration());
    ASSERT_LE(step->rule.times(), Preemption::Rule::kMost);
    // No turn begins after that time; the turn under way completes.
    ASSERT_LE(away, Preemption::Rule::kLongest + longest_turn_);
    // The step is charged for its own time alone.
    *own += std::exchange(between_, {});
    ASSERT_EQ(preemption_.OwnTime() - step->start, *own);
    longest_turn_ = std::max(longest_turn_, outer_longest);
  }

  // Notes the moment before a decision for the session.
  void Note(uint64_t key) {
    began_[key] = clock_.Monotonic();
    NoteWaiting();
  }
  void NoteWaiting() {
    for (size_t a = 0; a < tenants_.size(); ++a) {
      for (size_t b = 0; b < a; ++b) {
        if (tenants_[a].waiting == 0 || tenants_[b].waiting == 0) {
          windows_[a][b].open = false;
        }
      }
    }
  }

  // Checks the tenants' shares between turns, when shares equal use: the bound
  // of fair_queue.h, with as many steps in service at a time as turns were ever
  // nested.
  void NoteShares() {
    for (size_t a = 0; a < tenants_.size(); ++a) {
      for (size_t b = 0; b < a; ++b) {
        if (tenants_[a].waiting == 0 || tenants_[b].waiting == 0) continue;
        const double apart = tenants_[a].share - tenants_[b].share;
        Window& window = windows_[a][b];
        if (!window.open) window = {apart, apart, true};
        window.least = std::min(window.least, apart);
        window.most = std::max(window.most, apart);
        const double bound = (2 * std::max(most_depth_, 1) - 1) *
                             (tenants_[a].longest + tenants_[b].longest);
        ASSERT_LE(window.most - window.least, bound + 1e-9);
      }
    }
  }

  std::mt19937_64 random_;
  FakeClock clock_;
  TenantLabels labels_;
  FairQueue queue_;
  Preemption preemption_;
  std::vector<Tenant> tenants_;
  std::deque<Session> sessions_;
  std::set<uint64_t> serving_;
  std::map<uint64_t, absl::Duration> began_;
  std::optional<uint64_t> chosen_;
  Window windows_[3][3];
  absl::Duration longest_turn_;
  // The time of all turns that are over, and the time since the last one was
  // settled.
  absl::Duration charged_;
  absl::Duration between_;
  int depth_ = 0, most_depth_ = 0, most_times_ = 0;
  int begun_ = 0, ended_ = 0;
  bool short_preempted_by_ = false;
};

TEST(PreemptionPropertyTest, EveryRunEndsAndNoSessionStarves) {
  int most_times = 0;
  int most_depth = 0;
  int short_ones = 0;
  for (uint64_t seed = 1; seed <= kTraces; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Trace trace(seed);
    trace.Run();
    if (testing::Test::HasFailure()) return;
    most_times = std::max(most_times, trace.most_times());
    most_depth = std::max(most_depth, trace.most_depth());
    short_ones += trace.short_preempted_by();
  }
  // The traces reach the bounds.
  EXPECT_EQ(most_times, Preemption::Rule::kMost);
  EXPECT_GE(most_depth, 4);
  EXPECT_GT(short_ones, kTraces / 10);
}

}  // namespace
}  // namespace djinn::worker
