#include "scheduler/placement/reservation.h"

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "gtest/gtest.h"
#include "scheduler/placement/placement.h"

namespace djinn::scheduler {
namespace {

using Ticket = WaitQueue::Ticket;

constexpr absl::Duration kPatience = absl::Seconds(5);

WorkerFacts Worker(const std::string& id, uint64_t available,
                   uint64_t memory = 100) {
  WorkerFacts facts;
  facts.id = id;
  facts.memory_bytes = memory;
  facts.available_bytes = available;
  return facts;
}

Request For(uint64_t bytes) {
  Request request;
  request.asked_bytes = bytes;
  return request;
}

class ReservationTest : public testing::Test {
 protected:
  // Reviews the reservation for the waiting requests, in the order of their
  // tickets.
  void Review() {
    std::vector<Ticket> order;
    for (const auto& [ticket, bytes] : waiting_) order.push_back(ticket);
    reservation_.Review(
        order,
        [&](Ticket ticket) -> std::optional<Reservation::Waiter> {
          if (!waiting_.contains(ticket)) return std::nullopt;
          return Reservation::Waiter{urgency_, absl::ZeroDuration()};
        },
        [&](Ticket ticket) {
          Request request = Applied(ticket, urgency_, waiting_.at(ticket));
          request.required = required_;
          return request;
        },
        fleet_, now_);
  }
  Request Applied(Ticket ticket, int urgency, uint64_t bytes) {
    Request request = For(bytes);
    reservation_.Apply(ticket, urgency, &request);
    return request;
  }
  Decision Decide(const Request& request) {
    return Place(request, fleet_, **FindPolicy(kDefaultPolicy), factors_,
                 &random_);
  }

  Fleet fleet_;
  semantics::CostFactors factors_;
  Randomness random_;
  Reservation reservation_{kPatience};
  std::map<Ticket, uint64_t> waiting_;
  std::vector<std::string> required_;
  int urgency_ = 2;
  absl::Duration now_ = kPatience;
};

TEST_F(ReservationTest, LongWaitReservesTheRoomiestWorker) {
  fleet_.Put(Worker("small", 40, 50));
  fleet_.Put(Worker("a", 20));
  fleet_.Put(Worker("b", 30));
  fleet_.Put(Worker("c", 30));
  waiting_ = {{1, 80}, {2, 70}};
  now_ = kPatience - absl::Nanoseconds(1);
  Review();
  EXPECT_EQ(reservation_.ticket(), 0u);
  EXPECT_EQ(reservation_.worker_id(), "");
  now_ = kPatience;
  Review();
  EXPECT_EQ(reservation_.ticket(), 1u);
  EXPECT_EQ(reservation_.worker_id(), "b");
}

TEST_F(ReservationTest, ReservedWorkerIsOnlyForAHigherPriority) {
  fleet_.Put(Worker("a", 30));
  waiting_ = {{1, 80}};
  Review();
  // Requests that do not wait, or are behind in the queue.
  for (const Ticket other : {0, 2}) {
    const Decision held = Decide(Applied(other, urgency_, 10));
    EXPECT_EQ(held.worker_id, "");
    EXPECT_EQ(ErrorReason(held.obstacle), "WAITS_IN_LINE");
    EXPECT_EQ(held.obstacle.message(),
              "worker a, which has the memory, is kept for the first in line");
    EXPECT_EQ(held.considered[0].dropped_by, "kept");
    EXPECT_EQ(held.considered[0].drop_reason, "is kept for the first in line");
  }
  EXPECT_EQ(Decide(Applied(2, urgency_ + 1, 10)).worker_id, "a");
  // A request that would not fit anyway is told NO_CAPACITY.
  EXPECT_EQ(ErrorReason(Decide(Applied(2, urgency_, 40)).obstacle),
            "NO_CAPACITY");
  const Decision first = Decide(Applied(1, urgency_, 80));
  EXPECT_EQ(ErrorReason(first.obstacle), "NO_CAPACITY");
  EXPECT_EQ(first.unblocked_by,
            "50 B more on a, which is kept for it as the first in line");
  // Other requests are placed on other workers.
  fleet_.Put(Worker("b", 10));
  EXPECT_EQ(Decide(Applied(2, urgency_, 10)).worker_id, "b");
  fleet_.Put(Worker("a", 80));
  EXPECT_EQ(Decide(Applied(1, urgency_, 80)).worker_id, "a");
}

TEST_F(ReservationTest, ReclaimedRoomIsReservedForItsRequest) {
  fleet_.Put(Worker("a", 30));
  fleet_.Put(Worker("b", 20));
  waiting_ = {{1, 80}, {2, 50}};
  Review();
  EXPECT_EQ(reservation_.worker_id(), "a");
  reservation_.Keep(2, "b");
  // No other request gets the worker, whatever its class.
  EXPECT_EQ(Decide(Applied(3, urgency_ + 1, 15)).worker_id, "a");
  fleet_.Put(Worker("a", 0));
  const Decision held = Decide(Applied(3, urgency_ + 1, 15));
  EXPECT_EQ(ErrorReason(held.obstacle), "WAITS_IN_LINE");
  EXPECT_EQ(held.considered[0].drop_reason,
            "is kept for whom others gave up room there");
  EXPECT_EQ(Decide(Applied(2, urgency_, 50)).unblocked_by,
            "30 B more on b, which is kept for it since others gave up room "
            "there");
  fleet_.Put(Worker("b", 60));
  EXPECT_EQ(Decide(Applied(2, urgency_, 50)).worker_id, "b");
  // The first request's reservation is never on a worker that is kept for
  // another one.
  fleet_.Remove("a");
  Review();
  EXPECT_EQ(reservation_.ticket(), 0u);
  EXPECT_TRUE(reservation_.Lift(2));
  EXPECT_FALSE(reservation_.Lift(2));
  Review();
  EXPECT_EQ(reservation_.worker_id(), "b");
  // Room that is kept for the first request itself replaces its reservation.
  fleet_.Put(Worker("c", 10));
  reservation_.Keep(1, "c");
  EXPECT_EQ(reservation_.ticket(), 0u);
  EXPECT_EQ(Decide(Applied(3, urgency_, 15)).worker_id, "b");
  // The reservation ends with the worker.
  WorkerFacts cordoned = Worker("c", 90);
  cordoned.cordoned = true;
  fleet_.Put(cordoned);
  waiting_.clear();
  Review();
  EXPECT_FALSE(reservation_.Lift(1));
}

// However many workers there are, the request looks at the one reserved for it.
TEST_F(ReservationTest, RequestConsidersItsReservedWorker) {
  for (int i = 0; i < 2000; ++i) {
    fleet_.Put(Worker("w" + std::to_string(i), i == 1234 ? 50 : 30));
  }
  waiting_ = {{1, 80}};
  Review();
  EXPECT_EQ(reservation_.worker_id(), "w1234");
  fleet_.Put(Worker("w1234", 90));
  EXPECT_EQ(Decide(Applied(1, urgency_, 80)).worker_id, "w1234");
}

TEST_F(ReservationTest, ItEndsWithWhomItIsFor) {
  fleet_.Put(Worker("a", 30));
  waiting_ = {{1, 80}, {2, 70}};
  Review();
  EXPECT_FALSE(reservation_.Lift(0));
  EXPECT_FALSE(reservation_.Lift(2));
  EXPECT_EQ(reservation_.ticket(), 1u);
  EXPECT_TRUE(reservation_.Lift(1));
  EXPECT_FALSE(reservation_.Lift(1));
  EXPECT_EQ(Decide(Applied(0, urgency_, 10)).worker_id, "a");
  // The request waits for something else, such as quota.
  Review();
  EXPECT_EQ(reservation_.ticket(), 1u);
  waiting_.erase(1);
  Review();
  EXPECT_EQ(reservation_.ticket(), 2u);
  waiting_.clear();
  Review();
  EXPECT_EQ(reservation_.ticket(), 0u);
}

TEST_F(ReservationTest, UnfitReservationIsReplaced) {
  fleet_.Put(Worker("a", 30));
  fleet_.Put(Worker("b", 20));
  fleet_.Put(Worker("c", 10));
  waiting_ = {{1, 80}};
  Review();
  EXPECT_EQ(reservation_.worker_id(), "a");
  // The reservation stays although another worker has more room now.
  fleet_.Put(Worker("b", 70));
  Review();
  EXPECT_EQ(reservation_.worker_id(), "a");
  fleet_.Remove("a");
  Review();
  EXPECT_EQ(reservation_.worker_id(), "b");
  WorkerFacts cordoned = Worker("b", 70);
  cordoned.cordoned = true;
  fleet_.Put(cordoned);
  Review();
  EXPECT_EQ(reservation_.worker_id(), "c");
  fleet_.Put(Worker("c", 10, 40));
  Review();
  EXPECT_EQ(reservation_.ticket(), 0u);
}

TEST_F(ReservationTest, WhereNothingIsFitForTheFirstTheNextIsConsidered) {
  WorkerFacts gpu = Worker("gpu", 10, 60);
  gpu.device = "cuda";
  fleet_.Put(gpu);
  fleet_.Put(Worker("cpu", 30));
  required_ = {"cuda"};
  waiting_ = {{1, 80}, {2, 50}};
  Review();
  EXPECT_EQ(reservation_.ticket(), 2u);
  EXPECT_EQ(reservation_.worker_id(), "gpu");
}

// Plays a wait queue of a cluster whose leases end after a while.
class World {
 public:
  World(uint64_t seed, absl::Duration patience)
      : random_(seed), reservation_(patience) {
    const size_t workers = 1 + Draw(&random_, 4);
    for (size_t i = 0; i < workers; ++i) {
      fleet_.Put(Worker("w" + std::to_string(i), 100));
    }
  }

  void Step() {
    now_ += absl::Seconds(1);
    while (!ends_.empty() && ends_.begin()->first <= now_) {
      Free(ends_.begin()->second);
      ends_.erase(ends_.begin());
    }
    // Small requests come all the time, and a large one now and then.
    for (int i = 0; i < 4; ++i) Ask(1 + Draw(&random_, 30));
    if (Draw(&random_, 10) == 0) Ask(70 + Draw(&random_, 31));
    Retry();
    ExpectSound();
  }
  void Drain() {
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      Leave((it++)->first);
    }
    Retry();
  }

  const Reservation& reservation() const { return reservation_; }
  size_t large_placed() const { return large_placed_; }
  size_t large_refused() const { return large_refused_; }
  size_t placed_meanwhile() const { return placed_meanwhile_; }
  size_t reservations() const { return reservations_; }

 private:
  static constexpr absl::Duration kTimeout = absl::Seconds(30);
  static constexpr uint64_t kLarge = 70;
  struct Asked {
    uint64_t bytes = 0;
    absl::Duration since;
    int urgency = 0;
    bool waits_for_room = false;
  };

  void Ask(uint64_t bytes) {
    const int urgency = static_cast<int>(Draw(&random_, 8) == 0);
    const Ticket ticket = line_.Join({"red", urgency}, now_);
    waiting_[ticket] = {bytes, now_, urgency};
    TryPlace(ticket);
  }
  Request RequestOf(Ticket ticket) {
    Request request = For(waiting_.at(ticket).bytes);
    reservation_.Apply(ticket, waiting_.at(ticket).urgency, &request);
    return request;
  }
  void TryPlace(Ticket ticket) {
    Asked& asked = waiting_.at(ticket);
    const Ticket kept_for = reservation_.ticket();
    const Decision decision =
        Place(RequestOf(ticket), fleet_, **FindPolicy(kDefaultPolicy), factors_,
              &random_);
    asked.waits_for_room = ErrorReason(decision.obstacle) == "NO_CAPACITY";
    if (decision.worker_id.empty()) {
      // A request is only kept from the reserved worker.
      for (const Fleet::Member* const member : fleet_.all()) {
        EXPECT_TRUE(member->facts.available_bytes < asked.bytes ||
                    member->facts.id == reservation_.worker_id());
      }
      return;
    }
    if (kept_for != 0 && kept_for != ticket) {
      ++placed_meanwhile_;
      EXPECT_TRUE(decision.worker_id != reservation_.worker_id() ||
                  asked.urgency > waiting_.at(kept_for).urgency);
    }
    large_placed_ += asked.bytes >= kLarge;
    fleet_.Update(decision.worker_id, [&](WorkerFacts* facts) {
      facts->available_bytes -= asked.bytes;
    });
    ends_.emplace(now_ + absl::Seconds(1 + Draw(&random_, 10)),
                  Lease{decision.worker_id, asked.bytes});
    Leave(ticket);
  }
  void Leave(Ticket ticket) {
    reservation_.Lift(ticket);
    line_.Leave(ticket, now_);
    waiting_.erase(ticket);
  }
  struct Lease {
    std::string worker_id;
    uint64_t bytes = 0;
  };
  void Free(const Lease& lease) {
    fleet_.Update(lease.worker_id, [&](WorkerFacts* facts) {
      facts->available_bytes += lease.bytes;
    });
  }
  void Retry() {
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      const auto [ticket, asked] = *it++;
      if (now_ - asked.since < kTimeout) continue;
      large_refused_ += asked.bytes >= kLarge;
      Leave(ticket);
    }
    const std::vector<Ticket> tried = line_.Try(
        now_, [](const std::string&) { return std::vector<double>(); },
        [&](Ticket ticket) {
          if (waiting_.contains(ticket)) TryPlace(ticket);
          return !waiting_.contains(ticket);
        });
    const Ticket before = reservation_.ticket();
    reservation_.Review(
        tried,
        [&](Ticket ticket) -> std::optional<Reservation::Waiter> {
          const auto found = waiting_.find(ticket);
          if (found == waiting_.end() || !found->second.waits_for_room) {
            return std::nullopt;
          }
          return Reservation::Waiter{found->second.urgency,
                                     found->second.since};
        },
        [&](Ticket ticket) { return RequestOf(ticket); }, fleet_, now_);
    reservations_ +=
        reservation_.ticket() != 0 && reservation_.ticket() != before;
  }
  // At most one worker is reserved, for a request that waits.
  void ExpectSound() {
    const Ticket kept_for = reservation_.ticket();
    EXPECT_EQ(kept_for == 0, reservation_.worker_id().empty());
    if (kept_for == 0) return;
    EXPECT_NE(fleet_.Find(reservation_.worker_id()), nullptr);
    const auto found = waiting_.find(kept_for);
    ASSERT_NE(found, waiting_.end());
    EXPECT_LE(now_ - found->second.since, kTimeout);
  }

  Randomness random_;
  Fleet fleet_;
  semantics::CostFactors factors_;
  WaitQueue line_;
  Reservation reservation_;
  std::map<Ticket, Asked> waiting_;
  std::multimap<absl::Duration, Lease> ends_;
  absl::Duration now_;
  size_t large_placed_ = 0;
  size_t large_refused_ = 0;
  size_t placed_meanwhile_ = 0;
  size_t reservations_ = 0;
};

TEST(ReservationPropertyTest, ItIsAlwaysLiftedAndTheOthersGoOn) {
  size_t reservations = 0, placed_meanwhile = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    World world(seed, kPatience);
    for (int i = 0; i < 300; ++i) world.Step();
    world.Drain();
    EXPECT_EQ(world.reservation().ticket(), 0u);
    EXPECT_EQ(world.reservation().worker_id(), "");
    reservations += world.reservations();
    placed_meanwhile += world.placed_meanwhile();
  }
  EXPECT_GT(reservations, 300u);
  EXPECT_GT(placed_meanwhile, 3000u);
}

TEST(ReservationPropertyTest, TheLargeDoNotStarve) {
  size_t placed = 0, refused = 0, placed_without = 0, refused_without = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    World with(seed, kPatience), without(seed, absl::InfiniteDuration());
    for (int i = 0; i < 300; ++i) {
      with.Step();
      without.Step();
    }
    placed += with.large_placed();
    refused += with.large_refused();
    placed_without += without.large_placed();
    refused_without += without.large_refused();
    EXPECT_EQ(without.reservations(), 0u);
  }
  std::printf(
      "large ones placed: %zu, refused: %zu; with nothing kept: %zu, "
      "%zu\n",
      placed, refused, placed_without, refused_without);
  EXPECT_GT(placed, 2 * placed_without);
}

}  // namespace
}  // namespace djinn::scheduler
