// Tests when each of several values arrives that leave a worker by one slow
// link.
#include "gpu_worker/pull/send_order.h"

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/placement/stages/transfer_order.h"

namespace djinn::worker {
namespace {

constexpr int kBatch = 1;
constexpr int kInteractive = 2;

// Carries one chunk at a time, in the order in which they were handed to it.
// Each sender has at most one chunk there, as over a stream.
class SlowLink {
 public:
  explicit SlowLink(absl::Duration per_chunk = absl::Milliseconds(100))
      : per_chunk_(per_chunk) {}

  void Send(const std::string& name, SendUrgency urgency, int chunks) {
    senders_[name] = {order_.Begin(std::move(urgency)), chunks};
    Fill();
  }
  // Carries so many chunks, or until nothing is left to do.
  void Carry(int chunks) {
    for (int i = 0; i < chunks && !senders_.empty(); ++i) {
      Fill();
      if (queue_.empty()) {
        clock_.Advance(SendOrder::kAskAgain);
        continue;
      }
      const std::string name = queue_.front();
      queue_.pop_front();
      clock_.Advance(per_chunk_);
      ++carried_;
      Sender& sender = senders_.at(name);
      sender.queued = false;
      if (--sender.chunks > 0) continue;
      order_.End(sender.number);
      senders_.erase(name);
      arrived_[name] = carried_;
    }
    Fill();
  }
  // Returns how many chunks had been carried when the value arrived; 0 when it
  // has not.
  int arrived(const std::string& name) { return arrived_[name]; }

  FakeClock clock_;
  SendOrder order_{&clock_};

 private:
  struct Sender {
    uint64_t number = 0;
    int chunks = 0;
    bool queued = false;
  };

  void Fill() {
    for (auto& [name, sender] : senders_) {
      if (sender.queued || !order_.MaySend(sender.number)) continue;
      sender.queued = true;
      queue_.push_back(name);
    }
  }

  const absl::Duration per_chunk_;
  std::map<std::string, Sender> senders_;
  std::deque<std::string> queue_;
  std::map<std::string, int> arrived_;
  int carried_ = 0;
};

TEST(SendOrderTest, HigherPriorityArrivesFirst) {
  SlowLink link;
  link.Send("batch1", {"t", kBatch}, 100);
  link.Send("batch2", {"t", kBatch}, 100);
  link.Carry(10);
  link.Send("urgent", {"u", kInteractive}, 40);
  link.Carry(1000);
  // If the senders took turns, the value would arrive at 128. Instead each of
  // the others gets one chunk for eight of this value's, and had one under way.
  EXPECT_GE(link.arrived("urgent"), 50);
  EXPECT_LE(link.arrived("urgent"), 10 + 2 + 40 + 2 * (40 / 8));
  EXPECT_EQ(link.arrived("batch2"), 240);
  EXPECT_EQ(link.order_.senders(), 0u);
}

TEST(SendOrderTest, NothingStandsStill) {
  SlowLink link;
  link.Send("batch", {"t", kBatch}, 20);
  // Values of higher priority keep coming.
  for (int i = 0; link.arrived("batch") == 0 && i < 1000; ++i) {
    link.Send("urgent" + std::to_string(i), {"t", kInteractive}, 3);
    link.Carry(3);
  }
  EXPECT_GT(link.arrived("batch"), 20 * 4);
  EXPECT_LE(link.arrived("batch"), 20 * 9);
}

TEST(SendOrderTest, EqualsGoByTurns) {
  SlowLink link;
  link.Send("a", {"t", kInteractive}, 50);
  link.Send("b", {"u", kInteractive}, 50);
  link.Carry(1000);
  EXPECT_GE(link.arrived("a"), 99);
  EXPECT_GE(link.arrived("b"), 99);
}

TEST(SendOrderTest, AnEarlierDeadlineCountsWithinATenant) {
  SlowLink link;
  link.Send("a", {"t", kInteractive, absl::Seconds(9)}, 50);
  link.Send("z", {"t", kInteractive, absl::Seconds(3)}, 50);
  link.Send("other", {"u", kInteractive, absl::Seconds(1)}, 50);
  link.Carry(1000);
  // The other tenant's value holds no value, and no value holds it.
  EXPECT_LT(link.arrived("z"), 120);
  EXPECT_LT(link.arrived("other"), 120);
  EXPECT_EQ(link.arrived("a"), 150);
}

SendUrgency Offered(uint64_t number, const std::string& session = "s",
                    absl::Duration deadline = absl::InfiniteDuration()) {
  return {"t", kInteractive, deadline, session, {.number = number}};
}

// A value for a run that takes this much longer once the value has arrived.
SendUrgency Awaited(uint64_t number, double remaining_seconds,
                    uint64_t round = 1) {
  return {"t",
          kInteractive,
          absl::InfiniteDuration(),
          "s",
          {round, remaining_seconds, number}};
}

TEST(SendOrderTest, FirstOfferOfASessionArrivesFirst) {
  SlowLink link;
  // The fetches come in another order than the offers.
  link.Send("c", Offered(3), 40);
  link.Send("a", Offered(1), 40);
  link.Send("b", Offered(2), 40);
  link.Carry(1000);
  // If the senders took turns, all values would arrive at the end, from 118 on.
  // Instead each value that is held gets one chunk for eight of the preceding
  // ones, and had one under way.
  EXPECT_LE(link.arrived("a"), 40 + 2 * (40 / 8) + 2);
  EXPECT_LE(link.arrived("b"), 95);
  EXPECT_EQ(link.arrived("c"), 120);
}

TEST(SendOrderTest, LastOfferOfASessionProgresses) {
  SlowLink link;
  link.Send("last", Offered(1000), 20);
  for (uint64_t i = 0; link.arrived("last") == 0 && i < 1000; ++i) {
    link.Send("earlier" + std::to_string(i), Offered(i), 3);
    link.Carry(3);
  }
  // Meanwhile so many others are being sent that this one is behind those that
  // move.
  EXPECT_GT(link.arrived("last"), 20 * 4);
  EXPECT_LE(link.arrived("last"), 20 * 65);
}

TEST(SendOrderTest, MoreCriticalValueArrivesFirst) {
  SlowLink link;
  link.Send("short", Awaited(1, 0.1), 40);
  link.Send("long", Awaited(2, 0.9), 40);
  link.Send("next", Awaited(3, 0.9, /*round=*/2), 40);
  link.Carry(1000);
  EXPECT_LE(link.arrived("long"), 40 + 2 * (40 / 8) + 2);
  EXPECT_LE(link.arrived("short"), 95);
  EXPECT_EQ(link.arrived("next"), 120);
}

TEST(SendOrderTest, MoreCriticalValueArrivesSoonBehindManyOthers) {
  SlowLink link(absl::Milliseconds(10));
  // The least critical values come first, and begin at once.
  for (int i = 0; i < 15; ++i) {
    link.Send("v" + std::to_string(i), Awaited(i, i), 40);
  }
  link.Carry(5000);
  // Three more values get a share of the link, as in the test above. Each of
  // the others had one chunk under way, and another one after 64. If all had
  // that share, the value would arrive at 40 * (1 + 14 / 8) or later.
  EXPECT_LE(link.arrived("v14"), 40 + 3 * (40 / 8) + 15 + 11);
  EXPECT_EQ(link.arrived("v0"), 15 * 40);
  for (int i = 5; i < 15; ++i) {
    EXPECT_LT(link.arrived("v" + std::to_string(i)),
              link.arrived("v" + std::to_string(i - 4)));
  }
}

TEST(SendOrderTest, HeldSenderContinuesWhenThoseAheadStall) {
  FakeClock clock;
  SendOrder order(&clock);
  std::vector<uint64_t> ahead;
  for (uint64_t i = 0; i < scheduler::kTransfersAtOnce; ++i) {
    ahead.push_back(order.Begin(Offered(i)));
  }
  const uint64_t last = order.Begin(Offered(100));
  for (int chunks = 0; !order.MaySend(last); ++chunks) {
    ASSERT_LT(chunks, 64);
    ASSERT_TRUE(order.MaySend(ahead[0]));
  }
  EXPECT_FALSE(order.MaySend(last));
  clock.Advance(SendOrder::kStalled);
  for (uint64_t i = 0; i < SendOrder::kShare; ++i) {
    ASSERT_TRUE(order.MaySend(ahead[0]));
    ASSERT_FALSE(i < SendOrder::kShare - 1 && order.MaySend(last));
  }
  EXPECT_TRUE(order.MaySend(last));
}

TEST(SendOrderTest, OtherSessionsOffersAreEquals) {
  SlowLink link;
  link.Send("a", Offered(1, "s"), 50);
  link.Send("b", Offered(2, "other"), 50);
  link.Carry(1000);
  EXPECT_GE(link.arrived("a"), 99);
  EXPECT_GE(link.arrived("b"), 99);
}

TEST(SendOrderTest, ValuesNeverWaitForOneAnotherAllRound) {
  // The fetch of the earlier offer comes later, and another session's deadline
  // lies between theirs.
  for (const bool late_first : {false, true}) {
    FakeClock clock;
    SendOrder order(&clock);
    std::vector<uint64_t> senders;
    const SendUrgency late = Offered(1, "s", absl::Seconds(9));
    const SendUrgency early = Offered(2, "s", absl::Seconds(1));
    senders.push_back(order.Begin(late_first ? late : early));
    senders.push_back(order.Begin(Offered(3, "other", absl::Seconds(5))));
    senders.push_back(order.Begin(late_first ? early : late));
    std::vector<bool> may;
    for (const uint64_t sender : senders) may.push_back(order.MaySend(sender));
    EXPECT_EQ(may, late_first ? std::vector<bool>({true, false, false})
                              : std::vector<bool>({false, false, true}));
  }
}

TEST(SendOrderTest, StalledHigherPriorityHoldsNoOther) {
  FakeClock clock;
  SendOrder order(&clock);
  const uint64_t stuck = order.Begin({"t", kInteractive});
  ASSERT_TRUE(order.MaySend(stuck));
  const uint64_t batch = order.Begin({"t", kBatch});
  EXPECT_FALSE(order.MaySend(batch));
  clock.Advance(SendOrder::kStalled);
  EXPECT_TRUE(order.MaySend(batch));
  EXPECT_TRUE(order.MaySend(batch));
  // The stalled sender goes on.
  EXPECT_TRUE(order.MaySend(stuck));
  EXPECT_FALSE(order.MaySend(batch));
  order.End(stuck);
  EXPECT_TRUE(order.MaySend(batch));
}

}  // namespace
}  // namespace djinn::worker
