#include "gpu_worker/session/state/offers.h"

#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "gpu_worker/device/fake/fake_device.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

class OffersTest : public testing::Test {
 protected:
  // Offers the storage's present bytes.
  std::shared_ptr<OfferedBytes> Offer(uint64_t storage) {
    auto bytes = std::make_shared<OfferedBytes>();
    bytes->buffer = storages_.Find(storage)->buffer;
    bytes->size_bytes = kBytes;
    offers_.Pin(storage, ticket_, bytes);
    EXPECT_TRUE(offers_.Add(ticket_, bytes).ok());
    return bytes;
  }
  void Put(uint64_t id) {
    Storage* const storage = storages_.Create(id);
    storage->buffer = *device_.Allocate(kBytes);
    storage->quota = *quota_.Reserve(kBytes);
  }

  static constexpr uint64_t kBytes = 100;
  const std::string ticket_ = std::string(OfferTable::kTicketBytes, 't');
  FakeClock clock_;
  FakeDevice device_{1 << 20};
  OfferTable table_{OfferTable::Options(), &clock_};
  SessionQuota quota_{{.all = 2 * kBytes}};
  StorageTable storages_;
  Offers offers_{&table_, &quota_, "s1"};
};

TEST_F(OffersTest, BytesCountOnceWhileAStorageHasThem) {
  Put(1);
  Offer(1);
  EXPECT_TRUE(offers_.Pending());
  offers_.Account(storages_);
  EXPECT_EQ(quota_.used(), kBytes);
  // The storage is freed, or written to.
  storages_.Remove(1);
  EXPECT_EQ(quota_.used(), 0u);
  offers_.Account(storages_);
  EXPECT_EQ(quota_.used(), kBytes);
  // No reference to the bytes is left.
  offers_.Withdraw();
  EXPECT_FALSE(offers_.Pending());
  offers_.ForgetFetched();
  EXPECT_EQ(quota_.used(), 0u);
  EXPECT_FALSE(offers_.pins());
}

TEST_F(OffersTest, OfferBeyondTheQuotaIsWithdrawn) {
  Put(1);
  Offer(1);
  storages_.Remove(1);
  Put(2);
  Put(3);
  offers_.Account(storages_);
  EXPECT_FALSE(offers_.Pending());
}

TEST_F(OffersTest, BytesOnTheirWayAreRecalled) {
  Put(1);
  const std::shared_ptr<OfferedBytes> sent = Offer(1);
  offers_.Withdraw();
  storages_.Remove(1);
  Put(2);
  Put(3);
  offers_.Account(storages_);
  EXPECT_TRUE(sent->recalled);
}

TEST_F(OffersTest, OnlyTicketsThatClientsChooseAreTaken) {
  EXPECT_TRUE(Offers::CheckTicket("offers", ticket_).ok());
  EXPECT_EQ(
      Offers::CheckTicket("offers", OfferTable::StateTicket(ticket_)).message(),
      "offers under a ticket of 17 bytes, not 16");
}

}  // namespace
}  // namespace djinn::worker
