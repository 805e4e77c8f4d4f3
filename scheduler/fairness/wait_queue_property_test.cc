// Looks for counterexamples to the bounds of wait_queue.h in random traces.
// Tenants of different weights come, wait, give up, have turns, and use what
// they got, in three classes, while earlier use is forgotten.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "scheduler/fairness/wait_queue.h"

namespace djinn::scheduler {
namespace {

using Ticket = WaitQueue::Ticket;

constexpr int kTraces = 100'000;
constexpr int kSteps = 30;
constexpr int kMaxTenants = 4;
constexpr int kClasses = 3;
// Bounds the error of sums in another order.
constexpr double kRounding = 1e-9;

std::string NameOf(int tenant) { return std::string(1, 'a' + tenant); }

// One trace, with a model of a correct queue. The model scales charges to the
// begin of the trace, where later ones count more. Values therefore change only
// by charges.
class Trace {
 public:
  explicit Trace(uint64_t seed) : random_(seed) {
    const int count = 2 + Draw(kMaxTenants - 1);
    const bool unlike = Draw(4) == 0;
    for (int i = 0; i < count; ++i) {
      tenants_.push_back({.weight = (1 + Draw(40)) / 4.0,
                          .precedence = unlike ? Draw(2) : 0,
                          // Some tenants always wait, others mostly do not.
                          .keen = i < 2 ? Draw(3) > 0 : Draw(4) == 0});
      line_.SetWeight(NameOf(i), tenants_[i].weight);
    }
  }

  void Run() {
    for (int step = 0; step < kSteps && !testing::Test::HasFailure(); ++step) {
      for (int i = 0; i < Count(); ++i) {
        if (tenants_[i].keen && tenants_[i].waiting[0] == 0) Join(i, 0);
      }
      Pass();
      const int what = Draw(10);
      if (what < 4) {
        ServeFirst(1 + static_cast<size_t>(Draw(4)));
      } else if (what < 6) {
        Use(Draw(Count()), (1 + Draw(1000)) / 250.0);
      } else if (what < 8 || waiters_.empty()) {
        Join(Draw(Count()), std::max(0, Draw(kClasses + 3) - 3));
      } else if (what < 9) {
        Leave();
      } else {
        Change();
      }
    }
    // Every request has a turn in the end.
    while (!waiters_.empty() && !testing::Test::HasFailure()) ServeFirst(1);
    EXPECT_TRUE(line_.empty());
  }

  // Return how often a tenant was nearly as far ahead of another one as it may
  // be, and how often it had as many turns before it as it may have.
  int close_calls() const { return close_calls_; }
  int last_turns() const { return last_turns_; }

 private:
  struct Waiter {
    int tenant = 0;
    int urgency = 0;
    absl::Duration due;
    bool returns = false;
  };
  // State since the other tenant did not wait at a turn of this one.
  struct Ahead {
    // Least lead, scaled to the begin of the trace.
    double least = 0;
    // Charges since its last turn, including that turn.
    double since_turn = 0;
  };
  // State of a tenant that waits for its turn in a class.
  struct Wait {
    // For each other tenant: how much less it had used than this one when the
    // wait began, and its turns since then.
    double behind[kMaxTenants] = {};
    int turns[kMaxTenants] = {};
    // This tenant's charges since the wait began, in units of that time.
    double used = 0;
    double worth = 1;
  };
  struct Party {
    double weight = 1;
    int precedence = 0;
    bool keen = false;
    int waiting[kClasses] = {};
    double charged = 0;
    Ahead ahead[kMaxTenants];
    Wait waits[kClasses];
  };

  int Draw(int below) {
    return static_cast<int>(random_() % static_cast<uint64_t>(below));
  }
  int Count() const { return static_cast<int>(tenants_.size()); }
  double Lead(const Party& a, const Party& b) const {
    return a.charged / a.weight - b.charged / b.weight;
  }
  std::vector<double> PrecedenceOf(const std::string& tenant) const {
    return {static_cast<double>(tenants_[tenant[0] - 'a'].precedence)};
  }

  void Pass() {
    constexpr absl::Duration kLongest[] = {absl::ZeroDuration(),
                                           absl::Seconds(1), absl::Minutes(1),
                                           absl::Minutes(10), absl::Hours(1)};
    // Long pauses are rare.
    now_ += kLongest[std::min(Draw(5), 1 + Draw(4))] * Draw(1000) / 1000;
    worth_ = std::exp2(absl::FDivDuration(now_, WaitQueue::kHalfLife));
  }

  void Join(int tenant, int urgency) {
    const absl::Duration due = Draw(2) == 0 ? absl::InfiniteDuration()
                                            : now_ + absl::Seconds(Draw(100));
    const bool returns = Draw(4) == 0;
    Add(line_.Join({NameOf(tenant), urgency, due, returns}, now_),
        {tenant, urgency, due, returns});
  }
  void Add(Ticket ticket, Waiter waiter) {
    waiters_.emplace(ticket, waiter);
    Party& party = tenants_[waiter.tenant];
    if (++party.waiting[waiter.urgency] == 1) {
      BeginWait(waiter.tenant, waiter.urgency);
    }
  }
  void BeginWait(int tenant, int urgency) {
    Wait wait{.worth = worth_};
    for (int other = 0; other < Count(); ++other) {
      wait.behind[other] =
          std::max(0., Lead(tenants_[tenant], tenants_[other])) / wait.worth;
    }
    tenants_[tenant].waits[urgency] = wait;
  }
  void Erase(Ticket ticket) {
    const Waiter waiter = waiters_.at(ticket);
    waiters_.erase(ticket);
    --tenants_[waiter.tenant].waiting[waiter.urgency];
  }
  Ticket DrawTicket() {
    return std::next(waiters_.begin(), Draw(static_cast<int>(waiters_.size())))
        ->first;
  }
  void Leave() {
    const Ticket ticket = DrawTicket();
    line_.Leave(ticket, now_);
    Erase(ticket);
  }
  void Change() {
    const Ticket ticket = DrawTicket();
    Waiter waiter = waiters_.at(ticket);
    Erase(ticket);
    waiter.urgency = Draw(kClasses);
    waiter.due = now_ + absl::Seconds(Draw(100));
    line_.Change(ticket, waiter.urgency, waiter.due);
    Add(ticket, waiter);
  }

  void Use(int tenant, double device_seconds) {
    line_.Charge(NameOf(tenant), device_seconds, now_);
    Charge(tenant, device_seconds);
    CheckAhead();
  }
  void Charge(int tenant, double device_seconds) {
    Party& party = tenants_[tenant];
    // A turn counts as use in the other classes where the tenant waits.
    for (Wait& wait : party.waits) {
      wait.used += device_seconds * worth_ / wait.worth;
    }
    party.charged += device_seconds * worth_;
    for (Ahead& ahead : party.ahead) ahead.since_turn += device_seconds;
  }

  // Gives the first `most` requests a turn, at one time.
  void ServeFirst(size_t most) {
    const std::vector<Ticket> front = line_.Front(
        most, now_,
        [this](const std::string& tenant) { return PrecedenceOf(tenant); });
    ASSERT_EQ(front.size(), std::min(most, waiters_.size()));
    for (const Ticket ticket : front) Serve(ticket);
  }
  void Serve(Ticket ticket) {
    ASSERT_TRUE(waiters_.contains(ticket));
    const Waiter served = waiters_.at(ticket);
    Party& party = tenants_[served.tenant];
    for (const auto& [other, waiter] : waiters_) {
      ASSERT_LE(waiter.urgency, served.urgency);
      if (waiter.urgency < served.urgency) continue;
      ASSERT_GE(tenants_[waiter.tenant].precedence, party.precedence);
      if (waiter.tenant != served.tenant) continue;
      ASSERT_GE(served.returns, waiter.returns);
      if (waiter.returns != served.returns) continue;
      ASSERT_LE(std::tie(served.due, ticket), std::tie(waiter.due, other));
    }
    bool waited[kMaxTenants] = {};
    for (int other = 0; other < Count(); ++other) {
      waited[other] = other != served.tenant &&
                      tenants_[other].precedence == party.precedence &&
                      tenants_[other].waiting[served.urgency] > 0;
      if (waited[other]) CheckTurns(served.tenant, other, served.urgency);
    }
    line_.Serve(ticket, now_);
    line_.Charge(NameOf(served.tenant), WaitQueue::kTurn, now_);
    Erase(ticket);
    for (int other = 0; other < Count(); ++other) {
      if (waited[other]) party.ahead[other].since_turn = 0;
    }
    Charge(served.tenant, WaitQueue::kTurn);
    for (int other = 0; other < Count(); ++other) {
      if (waited[other]) continue;
      party.ahead[other] = {std::max(0., Lead(party, tenants_[other])), 0};
    }
    CheckAhead();
    BeginWait(served.tenant, served.urgency);
  }

  // Checks that the other tenant does not starve while this one has turns.
  void CheckTurns(int tenant, int other, int urgency) {
    Wait& wait = tenants_[other].waits[urgency];
    const double most =
        1 + tenants_[tenant].weight *
                (wait.behind[tenant] + wait.used / tenants_[other].weight) /
                WaitQueue::kTurn;
    ++wait.turns[tenant];
    ASSERT_LE(wait.turns[tenant], most + kRounding * most);
    last_turns_ += wait.turns[tenant] > 1 && wait.turns[tenant] + 1 > most;
  }

  // Checks that no tenant is further ahead than it may be.
  void CheckAhead() {
    for (int a = 0; a < Count(); ++a) {
      for (int b = 0; b < Count(); ++b) {
        if (a == b) continue;
        Ahead& ahead = tenants_[a].ahead[b];
        const double lead = Lead(tenants_[a], tenants_[b]);
        const double turn = ahead.since_turn / tenants_[a].weight;
        const double bound = turn + ahead.least / worth_;
        ASSERT_LE(lead / worth_, bound + kRounding * (1 + bound));
        close_calls_ += ahead.least == 0 && lead > 0.9 * turn * worth_;
        ahead.least = std::min(ahead.least, std::max(0., lead));
      }
    }
  }

  std::mt19937_64 random_;
  WaitQueue line_;
  absl::Duration now_;
  // Factor by which a charge counts that comes now.
  double worth_ = 1;
  std::vector<Party> tenants_;
  std::map<Ticket, Waiter> waiters_;
  int close_calls_ = 0;
  int last_turns_ = 0;
};

TEST(WaitQueuePropertyTest, NoTenantIsTooFarAheadAndNoneStarves) {
  int64_t close_calls = 0, last_turns = 0;
  for (uint64_t seed = 1; seed <= kTraces; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Trace trace(seed);
    trace.Run();
    if (testing::Test::HasFailure()) return;
    close_calls += trace.close_calls();
    last_turns += trace.last_turns();
  }
  EXPECT_GT(close_calls, kTraces);
  EXPECT_GT(last_turns, kTraces / 10);
}

std::vector<double> Equal(const std::string&) { return {}; }

// Checks that a tenant that always waits gets turns in proportion to its
// weight, in whatever order they come.
void CheckWeights(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto draw = [&](int below) {
    return static_cast<int>(random() % static_cast<uint64_t>(below));
  };
  constexpr int kTenants = 3;
  WaitQueue line;
  std::map<Ticket, int> tenant_of;
  absl::Duration now;
  double weight[kTenants], had[kTenants] = {};
  const auto join = [&](int tenant) {
    tenant_of[line.Join({NameOf(tenant)}, now)] = tenant;
  };
  for (int tenant = 0; tenant < kTenants; ++tenant) {
    weight[tenant] = (1 + draw(16)) / 4.0;
    line.SetWeight(NameOf(tenant), weight[tenant]);
    join(tenant);
  }
  for (int turn = 0; turn < 400; ++turn) {
    const absl::Duration pause = absl::Milliseconds(draw(2000));
    now += pause;
    for (double& one : had) {
      one *= std::exp2(-absl::FDivDuration(pause, WaitQueue::kHalfLife));
    }
    const Ticket ticket = line.Front(1, now, Equal).front();
    const int tenant = tenant_of.at(ticket);
    line.Serve(ticket, now);
    line.Charge(NameOf(tenant), WaitQueue::kTurn, now);
    had[tenant] += WaitQueue::kTurn;
    join(tenant);
    for (int a = 0; a < kTenants; ++a) {
      for (int b = 0; b < kTenants; ++b) {
        ASSERT_LE(had[a] / weight[a] - had[b] / weight[b],
                  WaitQueue::kTurn / weight[a] + kRounding);
      }
    }
  }
}

TEST(WaitQueuePropertyTest, WeightsAreHonoured) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    CheckWeights(seed);
    if (testing::Test::HasFailure()) return;
  }
}

// Returns how many turns "idle" has before "busy", which waits.
int TurnsBeforeOther(WaitQueue line, absl::Duration now) {
  constexpr int kMany = 1000;
  const Ticket busy = line.Join({"busy"}, now);
  for (int i = 0; i < kMany; ++i) line.Join({"idle"}, now);
  const std::vector<Ticket> front = line.Front(kMany, now, Equal);
  return static_cast<int>(std::find(front.begin(), front.end(), busy) -
                          front.begin());
}

TEST(WaitQueuePropertyTest, IdleTenantIsAheadByNoMoreThanANewOne) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 1000; ++trial) {
    const auto draw = [&](int below) {
      return static_cast<int>(random() % static_cast<uint64_t>(below));
    };
    WaitQueue line;
    const double weight = (1 + draw(16)) / 4.0;
    line.SetWeight("idle", weight);
    WaitQueue without = line;
    absl::Duration now;
    double busy_had = 0;
    const int idle_since = draw(40);
    for (int i = 0; i < 40; ++i) {
      const absl::Duration pause = absl::Seconds(draw(900));
      now += pause;
      const double used = draw(1000) / 50.0;
      line.Charge("busy", used, now);
      without.Charge("busy", used, now);
      if (i < idle_since) line.Charge("idle", draw(1000) / 50.0, now);
      busy_had = used + busy_had * std::exp2(-absl::FDivDuration(
                                       pause, WaitQueue::kHalfLife));
    }
    const int turns = TurnsBeforeOther(line, now);
    EXPECT_LE(turns, TurnsBeforeOther(without, now));
    EXPECT_LE(turns, 1 + weight * busy_had / WaitQueue::kTurn);
  }
}

}  // namespace
}  // namespace djinn::scheduler
