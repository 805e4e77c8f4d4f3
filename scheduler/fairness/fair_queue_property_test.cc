// Checks the bound that fair_queue.h proves, and work conservation, over random
// traces. Tenants have random weights and sessions, which join, wait, idle,
// change their priority and pace, and leave at random, on one or several
// devices, where steps may yield.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "scheduler/fairness/fair_queue.h"

namespace djinn::scheduler {
namespace {

constexpr int kTraces = 100'000;
constexpr int kSteps = 60;
constexpr int kMaxTenants = 4;

double Seconds(absl::Duration time) { return absl::ToDoubleSeconds(time); }

// One trace, with a model of a correct queue.
class Trace {
 public:
  explicit Trace(uint64_t seed)
      : random_(seed), devices_(Draw(4) == 0 ? 3 : 1) {
    const int count = 2 + Draw(kMaxTenants - 1);
    for (int i = 0; i < count; ++i) {
      tenants_.push_back({.weight = (1 + Draw(40)) / 4.0,
                          // Some tenants never idle, others mostly do.
                          .keenness = i < 2 ? 100 : 1 + Draw(100),
                          .longest_ms = 1 + Draw(50)});
      const int sessions = 1 + Draw(Draw(3) == 0 ? 16 : 3);
      for (int k = 0; k < devices_ + sessions; ++k) Join(i);
    }
  }

  void Run() {
    for (int step = 0; step < kSteps && !testing::Test::HasFailure(); ++step) {
      const bool full = running_.size() >= static_cast<size_t>(devices_);
      if (!full && waiting_ > 0) {
        Take();
      } else if (!running_.empty() && (!yields_ || !Preempt())) {
        Finish();
      }
      if (Draw(8) == 0) Arrive(Draw(static_cast<int>(sessions_.size())));
      if (Draw(30) == 0) Replace(Draw(static_cast<int>(sessions_.size())));
    }
  }

  // Returns whether a short step preempted a long one.
  bool short_preempted_by() const { return short_preempted_by_; }
  size_t most_running() const { return most_running_; }

 private:
  struct Member {
    int tenant = 0;
    uint64_t key = 0;
    bool waits = false;
    bool runs = false;
    bool again = false;
    absl::Duration expected;
  };
  struct Party {
    double weight = 1;
    int keenness = 100;
    int longest_ms = 1;
    int waiting = 0;
    // Device-seconds divided by weight.
    double share = 0;
  };
  // Range of the difference between two tenants' shares since both began to
  // wait.
  struct Window {
    double least = 0;
    double most = 0;
    bool open = false;
  };

  int Draw(int below) {
    return static_cast<int>(random_() % static_cast<uint64_t>(below));
  }
  absl::Duration DrawTime(int tenant) {
    return absl::Microseconds(1 + Draw(1000 * tenants_[tenant].longest_ms));
  }
  FairQueue::Work DrawWork(Member* member) {
    member->expected =
        Draw(2) == 0 ? absl::ZeroDuration() : DrawTime(member->tenant);
    return {.deadline = Draw(2) == 0 ? absl::InfiniteDuration()
                                     : absl::Milliseconds(Draw(100)),
            .expected = member->expected,
            .pace = DrawPace()};
  }

  FairQueue::Pace DrawPace() { return static_cast<FairQueue::Pace>(Draw(3)); }

  void Join(int tenant) {
    Member member{.tenant = tenant, .key = next_key_++};
    queue_.Join(member.key, absl::StrCat("tenant", tenant),
                tenants_[tenant].weight, Draw(FairQueue::kPriorities));
    sessions_.push_back(member);
    Arrive(static_cast<int>(sessions_.size()) - 1);
  }

  void Arrive(int index) {
    Member& member = sessions_[index];
    const FairQueue::Work work = DrawWork(&member);
    queue_.MakeRunnable(member.key, work);
    if (member.runs) {
      member.again = true;
    } else if (!member.waits) {
      SetWaits(&member, true);
    }
  }

  // Replaces one session of the tenant by another.
  void Replace(int index) {
    const Member member = sessions_[index];
    if (member.runs) return;
    if (member.waits) SetWaits(&sessions_[index], false);
    queue_.Leave(member.key);
    sessions_.erase(sessions_.begin() + index);
    Join(member.tenant);
  }

  void SetWaits(Member* member, bool waits) {
    member->waits = waits;
    waiting_ += waits ? 1 : -1;
    tenants_[member->tenant].waiting += waits ? 1 : -1;
    // With several steps in service, a tenant that begins to wait starts at V
    // again.
    if (devices_ > 1 || yields_) CloseWindows();
  }

  Member& Find(uint64_t key) {
    return *std::find_if(
        sessions_.begin(), sessions_.end(),
        [key](const Member& member) { return member.key == key; });
  }

  void CloseWindows() {
    for (size_t a = 0; a < tenants_.size(); ++a) {
      for (size_t b = 0; b < a; ++b) {
        if (tenants_[a].waiting == 0 || tenants_[b].waiting == 0) {
          windows_[a][b].open = false;
        }
      }
    }
  }

  void Take() {
    // Work conservation: a waiting session is found.
    ASSERT_FALSE(queue_.empty());
    CloseWindows();
    NoteShares();
    Serve(queue_.Take());
  }
  void Serve(uint64_t key) {
    Member& member = Find(key);
    ASSERT_TRUE(member.waits);
    ASSERT_FALSE(member.runs);
    member.runs = true;
    running_.push_back(key);
    most_running_ = std::max(most_running_, running_.size());
    queue_.SetPace(key, DrawPace());
    SetWaits(&member, false);
    ASSERT_EQ(queue_.empty(), waiting_ == 0);
  }

  // Makes the step that was taken last yield, if it may.
  bool Preempt() {
    const uint64_t key = running_.back();
    if (Draw(2) == 0) queue_.Charge(key, DrawTime(Find(key).tenant));
    const FairQueue::Preemption asked =
        queue_.MayPreempt({&key, 1}, absl::Milliseconds(Draw(100)));
    if (!FairQueue::Yields(asked)) return false;
    CloseWindows();
    short_preempted_by_ |= asked == FairQueue::Preemption::kShort;
    Serve(queue_.TakePreempting(asked));
    return true;
  }

  void Finish() {
    const size_t which = Draw(static_cast<int>(running_.size()));
    const uint64_t key = running_[which];
    running_.erase(running_.begin() + static_cast<ptrdiff_t>(which));
    Member& member = Find(key);
    Party& tenant = tenants_[member.tenant];
    const absl::Duration used = DrawTime(member.tenant);
    tenant.share += Seconds(used) / tenant.weight;
    member.runs = false;
    const bool again = std::exchange(member.again, false);
    std::optional<FairQueue::Work> more;
    if (Draw(100) < tenant.keenness) more = DrawWork(&member);
    queue_.Done(key, used, more);
    if (more.has_value() || again) SetWaits(&member, true);
    ASSERT_EQ(queue_.empty(), waiting_ == 0);
  }

  // Runs between steps, when shares equal the time used.
  void NoteShares() {
    if (!running_.empty()) return;
    for (size_t a = 0; a < tenants_.size(); ++a) {
      for (size_t b = 0; b < a; ++b) {
        if (tenants_[a].waiting == 0 || tenants_[b].waiting == 0) continue;
        const double apart = tenants_[a].share - tenants_[b].share;
        Window& window = windows_[a][b];
        if (!window.open) window = {apart, apart, true};
        window.least = std::min(window.least, apart);
        window.most = std::max(window.most, apart);
        const auto longest = [](const Party& tenant) {
          return tenant.longest_ms * 1e-3 / tenant.weight;
        };
        const double bound = (2 * static_cast<double>(most_running_) - 1) *
                             (longest(tenants_[a]) + longest(tenants_[b]));
        ASSERT_LE(window.most - window.least, bound + 1e-9);
      }
    }
  }

  std::mt19937_64 random_;
  const int devices_;
  const bool yields_ = Draw(2) == 0;
  FairQueue queue_;
  std::vector<Party> tenants_;
  std::vector<Member> sessions_;
  std::vector<uint64_t> running_;
  Window windows_[kMaxTenants + 1][kMaxTenants + 1];
  uint64_t next_key_ = 1;
  int waiting_ = 0;
  size_t most_running_ = 1;
  bool short_preempted_by_ = false;
};

TEST(FairQueuePropertyTest, TheBoundHoldsAndNoDeviceIdlesWhileAnybodyWaits) {
  int short_ones = 0;
  size_t most_running = 0;
  for (uint64_t seed = 1; seed <= kTraces; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Trace trace(seed);
    trace.Run();
    if (testing::Test::HasFailure()) return;
    short_ones += trace.short_preempted_by();
    most_running = std::max(most_running, trace.most_running());
  }
  EXPECT_GT(short_ones, kTraces / 10);
  EXPECT_GT(most_running, 3u);
}

// Tenants 0 and 1 share batches. Tenant 2 never does, which is known in advance
// or found out. All tenants wait all the time.
void CheckBatch(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto draw = [&](int below) {
    return static_cast<int>(random() % static_cast<uint64_t>(below));
  };
  const bool known = draw(2) == 0;
  constexpr int kTenants = 3;
  FairQueue queue;
  std::vector<int> tenant_of;
  double weight[kTenants], share[kTenants] = {}, longest[kTenants] = {};
  for (int tenant = 0; tenant < kTenants; ++tenant) {
    weight[tenant] = (1 + draw(16)) / 4.0;
    // One session more than a turn takes.
    for (int i = 2 + draw(4); i > 0; --i) {
      const uint64_t key = tenant_of.size();
      tenant_of.push_back(tenant);
      queue.Join(key, absl::StrCat("tenant", tenant), weight[tenant], 1);
      queue.MakeRunnable(key, {});
    }
  }
  const int longest_ms[kTenants] = {1 + draw(50), 1 + draw(50), 1 + draw(50)};
  double least[2] = {}, most[2] = {};
  for (int step = 0; step < kSteps; ++step) {
    std::vector<uint64_t> keys = {queue.Take()};
    if (tenant_of[keys[0]] != 2) {
      FairQueue::Batch batch = queue.FindBatch(
          keys[0], [&](uint64_t key) { return !known || tenant_of[key] != 2; },
          static_cast<size_t>(draw(8)));
      ASSERT_TRUE(batch.contested || !known);
      for (const auto& member : batch.members) {
        if (tenant_of[member.key] == 2 || (member.ahead && batch.contested)) {
          batch.contested = true;
        } else {
          keys.push_back(member.key);
        }
      }
      for (size_t i = 1; i < keys.size(); ++i) {
        ASSERT_TRUE(queue.TakeBeside(keys[i], batch.contested));
      }
    }
    double turn[kTenants] = {};
    for (const uint64_t key : keys) {
      const int tenant = tenant_of[key];
      const absl::Duration used =
          absl::Microseconds(1 + draw(1000 * longest_ms[tenant]));
      turn[tenant] += Seconds(used) / weight[tenant];
      queue.Done(key, used, FairQueue::Work());
    }
    for (int tenant = 0; tenant < kTenants; ++tenant) {
      share[tenant] += turn[tenant];
      longest[tenant] = std::max(longest[tenant], turn[tenant]);
    }
    for (int a = 0; a < 2; ++a) {
      const double apart = share[a] - share[2];
      least[a] = std::min(least[a], apart);
      most[a] = std::max(most[a], apart);
      ASSERT_LE(most[a] - least[a], 2 * longest[a] + longest[2] + 1e-9);
    }
  }
}

TEST(FairQueuePropertyTest, BatchIsNotAtTheExpenseOfWhoWaits) {
  for (uint64_t seed = 1; seed <= kTraces / 4; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    CheckBatch(seed);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace djinn::scheduler
