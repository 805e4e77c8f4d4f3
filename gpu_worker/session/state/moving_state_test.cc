#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/random.h"
#include "gpu_worker/device/fake/fake_device.h"
#include "gpu_worker/session/state/state_arrival.h"
#include "gpu_worker/session/state/state_offer.h"
#include "gpu_worker/store/content_cache.h"
#include "gpu_worker/store/device_memory.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

// A session's state on one worker.
struct Part {
  explicit Part(uint64_t session_bytes = 8 << 20)
      : quota({.all = session_bytes}) {
    environment.clock = &clock;
    environment.random = &random;
    environment.memory = &memory;
    environment.contents = &contents;
  }

  // Creates a storage with these bytes.
  Storage* Put(uint64_t id, const std::string& bytes) {
    Storage* const storage = storages.Create(id);
    storage->version = 10 * id;
    EXPECT_TRUE(storage_memory.Install(bytes, storage).ok());
    return storage;
  }
  std::string Value(uint64_t id) {
    const Storage* const storage = storages.Find(id);
    if (storage == nullptr || storage->buffer == nullptr) return "none";
    return std::string(device.HostBytes(storage->buffer)->bytes);
  }

  FakeClock clock;
  FakeRandomSource random;
  FakeDevice device{64 << 20};
  Ledger ledger{16 << 20};
  DeviceMemory memory{&device, &ledger};
  ContentCache contents{100, &clock};
  SessionEnvironment environment;
  TenantAccount account;
  SessionQuota quota;
  StorageTable storages;
  Models models{&account};
  StorageMemory storage_memory{&memory, &quota, "red"};
};

class MovingStateTest : public testing::Test {
 protected:
  // Offers all that the session on the first worker holds; returns the size of
  // the list.
  uint64_t Leave() {
    const absl::StatusOr<uint64_t> bytes = OfferState(
        from_.environment, "red", from_.storages, from_.models,
        OfferTable::StateTicket(ticket_),
        [this](const std::string& ticket, std::shared_ptr<OfferedBytes> value) {
          offers_[ticket] = std::move(value);
          return absl::OkStatus();
        });
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    return *bytes;
  }
  // Offers a list that no correct worker would send.
  uint64_t Offer(const std::string& list) {
    auto offered = std::make_shared<OfferedBytes>();
    offered->buffer = *from_.memory.Allocate("red", list.size());
    EXPECT_TRUE(from_.device.Write(offered->buffer.get(), 0, list).ok());
    offers_[OfferTable::StateTicket(ticket_)] = std::move(offered);
    return list.size();
  }
  uint64_t Offer(const v1::SessionState& state) {
    return Offer(state.SerializeAsString());
  }
  // Has the other worker's session fetch it.
  absl::Status Enter(uint64_t list_bytes, Part* to) {
    v1::Pull source;
    source.set_worker_id("w0");
    source.set_ticket(ticket_);
    source.set_size_bytes(list_bytes);
    StateArrival arrival(&to->environment, "red",
                         StateArrival::Into{&to->storages, &to->models,
                                            &to->quota, &to->storage_memory},
                         source);
    StateArrival::Next next = arrival.Begin();
    while (next.ok() && next->has_value()) {
      const v1::Pull& pull = **next;
      EXPECT_EQ(pull.worker_id(), "w0");
      const std::string bytes(
          from_.device.HostBytes(offers_.at(pull.ticket())->buffer)->bytes);
      EXPECT_EQ(bytes.size(), pull.size_bytes());
      auto reservation = std::make_shared<Reservation>(
          *to->memory.Reserve(MemoryClass::kTransfers, "red", bytes.size()));
      std::shared_ptr<Buffer> buffer = DeviceMemory::Track(
          *to->device.AllocateUnset(bytes.size()), reservation);
      EXPECT_TRUE(to->device.Write(buffer.get(), 0, bytes).ok());
      ++fetched_;
      next = arrival.Take(std::move(buffer), reservation.get());
    }
    moved_bytes_ = arrival.moved_bytes();
    held_bytes_ = arrival.held_bytes();
    return next.status();
  }
  static v1::StorageState* Add(uint64_t id, v1::SessionState* state) {
    v1::StorageState* const storage = state->add_storages();
    storage->set_storage(id);
    storage->set_version(1);
    return storage;
  }
  void ExpectBroken(const v1::SessionState& state) {
    Part to;
    const absl::Status broken = Enter(Offer(state), &to);
    EXPECT_EQ(broken.code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(ErrorReason(broken), "PROTOCOL_VIOLATION") << broken;
  }

  const std::string ticket_ = std::string(OfferTable::kTicketBytes, 't');
  const std::string large_ = std::string(100'000, 'l');
  Part from_;
  std::map<std::string, std::shared_ptr<OfferedBytes>> offers_;
  // Counted by the last arrival.
  uint64_t moved_bytes_ = 0;
  uint64_t held_bytes_ = 0;
  // Fetches, the list's included.
  int fetched_ = 0;
};

TEST_F(MovingStateTest, EmptyStateHasNoList) {
  EXPECT_EQ(Leave(), 0u);
  Part to;
  EXPECT_TRUE(Enter(0, &to).ok());
  EXPECT_EQ(fetched_, 0);
}

TEST_F(MovingStateTest, AllArrivesAsItWas) {
  from_.Put(1, "small");
  Storage* const shared = from_.Put(2, large_);
  Storage* const sharing = from_.storages.Create(3);
  sharing->version = 4;
  sharing->buffer = shared->buffer;
  auto error = std::make_shared<v1::ErrorDetail>();
  error->set_error_id(77);
  for (const uint64_t id : {5, 6}) {
    Storage* const poisoned = from_.storages.Create(id);
    poisoned->version = 1;
    poisoned->poison = error;
  }
  Storage* const unset = from_.storages.Create(8);
  unset->version = 9;
  unset->size_bytes = 1000;
  ASSERT_TRUE(from_.models.Register(3, "net", 50).ok());

  Part to;
  ASSERT_TRUE(Enter(Leave(), &to).ok());
  EXPECT_EQ(to.Value(1), "small");
  EXPECT_EQ(to.storages.Find(1)->version, 10u);
  EXPECT_TRUE(to.Value(2) == large_);
  EXPECT_EQ(to.storages.Find(3)->buffer, to.storages.Find(2)->buffer);
  ASSERT_NE(to.storages.Find(5)->poison, nullptr);
  EXPECT_EQ(to.storages.Find(5)->poison->error_id(), 77u);
  EXPECT_EQ(to.storages.Find(5)->poison, to.storages.Find(6)->poison);
  EXPECT_EQ(to.Value(8), "none");
  EXPECT_EQ(to.storages.Find(8)->size_bytes, 1000u);
  v1::SessionUse use;
  to.models.Report(&use);
  EXPECT_EQ(use.model_bytes(), 50u);
  // Fetches the list, and the one large value.
  EXPECT_EQ(fetched_, 2);
  EXPECT_GT(moved_bytes_, large_.size());
  EXPECT_EQ(held_bytes_, 0u);
}

TEST_F(MovingStateTest, ACacheStaysOne) {
  from_.Put(1, "small");
  from_.Put(2, large_);
  from_.Put(3, "other");
  for (const uint64_t id : {1, 2}) {
    from_.storages.Find(id)->quota.MoveTo(StorageClass::kCache);
  }
  Part to;
  // The rest has room for the list, but not for the caches.
  to.quota.SetLimits({.all = 1 << 20, .storages = 1000, .caches = 1 << 20});
  ASSERT_TRUE(Enter(Leave(), &to).ok());
  EXPECT_EQ(to.quota.used(StorageClass::kCache).count, 2u);
  EXPECT_EQ(to.quota.used(StorageClass::kCache).bytes, 5 + large_.size());
  EXPECT_EQ(to.quota.used(StorageClass::kOwn).bytes, 5u);
  Part full;
  full.quota.SetLimits({.all = 1 << 20, .caches = 10});
  EXPECT_EQ(ErrorReason(Enter(Leave(), &full)), "SESSION_MEMORY");
}

TEST_F(MovingStateTest, AGeneratorGoesOnWhereItWas) {
  Storage* const generator = from_.storages.Create(1);
  generator->version = 1;
  ASSERT_TRUE(from_.storage_memory.Seed(42, generator).ok());
  Part to;
  ASSERT_TRUE(Enter(Leave(), &to).ok());
  EXPECT_TRUE(to.storages.Find(1)->generator);
  EXPECT_EQ(to.Value(1), from_.Value(1));
}

TEST_F(MovingStateTest, ContentsThatAreHereAreNotFetched) {
  const ContentHash hash = HashContent(large_.data(), large_.size());
  Storage* const storage = from_.Put(1, large_);
  storage->buffer =
      from_.contents.Insert("red", hash, storage->buffer, absl::Seconds(1));
  Part to;
  const std::shared_ptr<Buffer> here =
      *to.memory.Allocate("red", large_.size());
  EXPECT_TRUE(to.device.Write(here.get(), 0, large_).ok());
  to.contents.Insert("red", hash, here, absl::Seconds(1));
  ASSERT_TRUE(Enter(Leave(), &to).ok());
  EXPECT_EQ(to.storages.Find(1)->buffer, here);
  EXPECT_EQ(fetched_, 1);
  EXPECT_EQ(held_bytes_, large_.size());
}

TEST_F(MovingStateTest, AContentIsWhatItSaysOrRefused) {
  Storage* const storage = from_.Put(1, large_);
  storage->buffer =
      from_.contents.Insert("red", {1, 2}, storage->buffer, absl::Seconds(1));
  Part to;
  EXPECT_EQ(ErrorReason(Enter(Leave(), &to)), "CONTENT_MISMATCH");
}

TEST_F(MovingStateTest, TheQuotaHoldsForWhatArrives) {
  from_.Put(1, large_);
  const uint64_t list_bytes = Leave();
  Part no_value(list_bytes);
  EXPECT_EQ(ErrorReason(Enter(list_bytes, &no_value)), "SESSION_MEMORY");
  EXPECT_EQ(fetched_, 1);
  Part no_list(list_bytes - 1);
  EXPECT_EQ(ErrorReason(Enter(list_bytes, &no_list)), "SESSION_MEMORY");
  EXPECT_EQ(fetched_, 1);
}

TEST_F(MovingStateTest, AWorkerThatListsWhatCannotBeIsNotBelieved) {
  {
    Part to;
    EXPECT_EQ(ErrorReason(Enter(Offer(std::string(9, '\xff')), &to)),
              "PROTOCOL_VIOLATION");
  }
  v1::SessionState state;
  Add(0, &state);
  ExpectBroken(state);
  state.Clear();
  Add(1, &state);
  Add(1, &state);
  ExpectBroken(state);
  state.Clear();
  Add(1, &state)->set_generator(true);
  ExpectBroken(state);
  state.Clear();
  Add(1, &state)->set_error(0);
  ExpectBroken(state);
  state.Clear();
  Add(1, &state)->set_same_as(1);
  ExpectBroken(state);
  state.Clear();
  Add(1, &state)->set_ticket("no bytes");
  ExpectBroken(state);
  state.Clear();
  state.add_models();
  ExpectBroken(state);
}

}  // namespace
}  // namespace djinn::worker
