// What a session offers to its parts on other workers, and what it pays for
// that: the bytes of an offer are the session's until nobody holds them, though
// its storage may have others by then.
//
// Not thread-safe: belongs to whoever executes the session.
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
#include "gpu_worker/store/ledger.h"
#include "gpu_worker/store/storage_table.h"

namespace djinn::worker {

class Offers {
 public:
  // Both outlive it.
  Offers(OfferTable* table, SessionQuota* quota, std::string session_id)
      : table_(*table), quota_(*quota), session_id_(std::move(session_id)) {}
  ~Offers() { Clear(); }
  Offers(const Offers&) = delete;
  Offers& operator=(const Offers&) = delete;

  // A violation of the protocol unless the ticket is one that clients choose.
  static absl::Status CheckTicket(absl::string_view what,
                                  const std::string& ticket);

  // Errors as OfferTable::Add().
  absl::Status Add(const std::string& ticket,
                   std::shared_ptr<OfferedBytes> bytes) {
    return table_.Add(session_id_, this, ticket, std::move(bytes));
  }
  // Looks after what the storage has at the moment until nobody holds it.
  void Pin(uint64_t storage, const std::string& ticket,
           const std::shared_ptr<OfferedBytes>& bytes);
  // Whether something waits to be fetched.
  bool Pending() const { return table_.Pending(session_id_, this); }
  // Offers nothing any more.
  void Withdraw() { table_.Leave(session_id_, this); }
  void Clear();

  // Whether there is anything to look after.
  bool pins() const { return !pinned_.empty(); }
  // Counts those no longer that were fetched.
  void ForgetFetched();
  // Counts what no storage has any more. What has no room is offered no more.
  void Account(const StorageTable& storages);

 private:
  struct Pinned {
    uint64_t storage = 0;
    std::string ticket;
    std::weak_ptr<const OfferedBytes> bytes;
    // What the bytes take once the storage has others.
    QuotaShare share;
  };
  // Looks for those that were fetched when there are so many.
  static constexpr size_t kMinPinned = 64;

  OfferTable& table_;
  SessionQuota& quota_;
  const std::string session_id_;
  std::vector<Pinned> pinned_;
  size_t prune_at_ = kMinPinned;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_STATE_OFFERS_H_
