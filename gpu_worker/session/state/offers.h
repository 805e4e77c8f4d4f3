// A session's offers to other workers, and its quota for them. The bytes of an
// offer count for the session until the last reference to them is released,
// even if the storage has other bytes by then.
//
// Not thread-safe: the thread that executes the session owns it.
#ifndef GPU_WORKER_SESSION_STATE_OFFERS_H_
#define GPU_WORKER_SESSION_STATE_OFFERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "gpu_worker/pull/offer_table.h"
#include "gpu_worker/store/quota.h"
#include "gpu_worker/store/storage_table.h"

namespace djinn::worker {

class Offers {
 public:
  // Both pointers must outlive this.
  Offers(OfferTable* table, SessionQuota* quota, std::string session_id)
      : table_(*table), quota_(*quota), session_id_(std::move(session_id)) {}
  ~Offers() { Clear(); }
  Offers(const Offers&) = delete;
  Offers& operator=(const Offers&) = delete;

  // Returns a violation of the protocol unless the ticket is one that clients
  // choose.
  static absl::Status CheckTicket(absl::string_view what,
                                  const std::string& ticket);

  // Adds an offer; returns the errors of OfferTable::Add().
  absl::Status Add(const std::string& ticket,
                   std::shared_ptr<OfferedBytes> bytes) {
    return table_.Add(session_id_, this, ticket, std::move(bytes));
  }
  // Accounts for the storage's present bytes until the last reference to them
  // is released.
  void Pin(uint64_t storage, const std::string& ticket,
           const std::shared_ptr<OfferedBytes>& bytes);
  // Returns whether an offer waits to be fetched.
  bool Pending() const { return table_.Pending(session_id_, this); }
  // Returns whether bytes that the storage had wait to be fetched, or are being
  // fetched.
  bool IsPinned(uint64_t storage) const;
  // Withdraws the storage's offers that nobody has claimed.
  void WithdrawOf(uint64_t storage);
  // Withdraws all offers.
  void Withdraw() { table_.Leave(session_id_, this); }
  void Clear();

  // Returns whether there are pinned bytes to account for.
  bool pins() const { return !pinned_.empty(); }
  // Stops counting offers that were fetched.
  void ForgetFetched();
  // Counts pinned bytes that their storage no longer has. Withdraws offers that
  // have no room in the quota.
  void Account(const StorageTable& storages);

 private:
  struct Pinned {
    uint64_t storage = 0;
    std::string ticket;
    std::weak_ptr<const OfferedBytes> bytes;
    // The share of the quota for these bytes, once the storage has other bytes.
    QuotaShare share;
  };
  // Pin() looks for fetched offers first when there are this many.
  static constexpr size_t kMinPinned = 64;

  OfferTable& table_;
  SessionQuota& quota_;
  const std::string session_id_;
  std::vector<Pinned> pinned_;
  size_t prune_at_ = kMinPinned;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_STATE_OFFERS_H_
