// What sessions of this worker offer to other workers, and who waits for it.
//
// An offer is the bytes that a storage had at one moment, under a ticket that
// the client chose. Who presents the ticket and the session's id gets them,
// once. Whoever asks before the offer's turn came waits while the session has
// work here, and `claim_timeout` longer, but not beyond `offer_timeout`; an
// offer that nobody asks for goes after that, or with its session.
//
// Bounded per session: offers, claims that wait, tickets remembered as used.
// Tickets are secrets and never part of an error.
//
// Thread-safe. Claimants are called without the lock.
#ifndef GPU_WORKER_PULL_OFFER_TABLE_H_
#define GPU_WORKER_PULL_OFFER_TABLE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "djinn/v1/execution.pb.h"
#include "djinn/v1/types.pb.h"
#include "gpu_worker/device/device.h"
#include "scheduler/placement/stages/transfer_order.h"

namespace djinn::worker {

// Held by the offer, and then by whoever sends the bytes. The session that
// offered them pays for them as long as somebody holds it.
struct OfferedBytes {
  // Null when the value is poisoned.
  std::shared_ptr<Buffer> buffer;
  uint64_t size_bytes = 0;
  std::shared_ptr<const v1::ErrorDetail> poison;
  // Among the session's offers; the number is the table's: later ones have
  // higher ones.
  scheduler::TransferRank rank;
  // The session cannot pay for them any more: whoever sends them stops.
  mutable std::atomic<bool> recalled{false};
};

// Somebody who asks for an offer. Gets one of Give() and Refuse(), once, unless
// it was abandoned; maybe at once, within Claim().
class OfferClaimant {
 public:
  virtual ~OfferClaimant() = default;
  // The offer's turn has not come.
  virtual void StillWaiting() = 0;
  virtual void Give(std::shared_ptr<const OfferedBytes> bytes) = 0;
  virtual void Refuse(absl::Status why) = 0;
};

class OfferTable {
 public:
  // 128 random bits.
  static constexpr size_t kTicketBytes = 16;
  // Under which the state of a session that leaves is offered: its client's
  // ticket and a mark. Whoever takes a state trusts it, and under the ticket of
  // a value there is never one.
  static std::string StateTicket(const std::string& ticket) {
    return ticket + 's';
  }
  static bool IsTicket(const std::string& ticket) {
    return ticket.size() == kTicketBytes || ticket.size() == kTicketBytes + 1;
  }

  struct Options {
    absl::Duration offer_timeout = absl::Minutes(10);
    absl::Duration claim_timeout = absl::Seconds(30);
    // Of one session.
    size_t max_offers = 65536;
    size_t max_claims = 256;
    size_t max_used_tickets = 4096;
  };
  // What a session does here.
  enum class Activity { kGone, kIdle, kBusy };

  // The same for whoever has no ticket, one of another session, or a used one.
  static absl::Status Unknown();

  OfferTable(Options options, Clock* clock)
      : options_(options), clock_(clock) {}

  // `owner` is the session's part on this worker, by its address. Errors:
  // InvalidArgument (PROTOCOL_VIOLATION) for a ticket that was used,
  // ResourceExhausted (TOO_MANY_OFFERS).
  absl::Status Add(const std::string& session_id, const void* owner,
                   const std::string& ticket,
                   std::shared_ptr<OfferedBytes> bytes);
  // Lets go of the bytes of an offer that nobody has taken: who asks for it
  // learns why. False when it is not there.
  bool Withdraw(const std::string& session_id, const std::string& ticket,
                const absl::Status& why);
  // Whether `owner` offers something that nobody has taken.
  bool Pending(const std::string& session_id, const void* owner) const;
  // Forgets what `owner` offered.
  void Leave(const std::string& session_id, const void* owner);

  // Errors as Execution.Pull's. The session is known to be here.
  void Claim(const v1::PullRequest& request,
             std::shared_ptr<OfferClaimant> claimant);
  // It is not called any more once this returns, but by calls that began
  // before. Without effect when it does not wait.
  void Abandon(const OfferClaimant* claimant);

  // Expires offers and claims, forgets what expired long ago, and tells those
  // who wait to go on.
  void CheckDeadlines(
      const std::function<Activity(const std::string&)>& activity);
  // Refuses all who wait.
  void Shutdown(const absl::Status& why);

  size_t offers() const;

 private:
  struct Offer {
    const void* owner;
    std::shared_ptr<const OfferedBytes> bytes;
    // Not OK: withdrawn.
    absl::Status refusal;
    absl::Duration expires;
  };
  struct Waiting {
    v1::PullRequest request;
    std::shared_ptr<OfferClaimant> claimant;
    // When the session's rest ends its patience, and when nothing helps.
    absl::Duration expires;
    absl::Duration ends;
    absl::Duration next_word;
  };
  struct Offers {
    absl::flat_hash_map<std::string, Offer> open;  // by ticket
    std::vector<Waiting> waiting;
    // Tickets taken, the oldest of which are forgotten.
    std::deque<std::string> used_order;
    absl::flat_hash_set<std::string> used;
  };
  using Calls = std::vector<std::function<void()>>;

  static void Make(const Calls& calls);
  // Gives the offer to the claimant, or says why not; the ticket is used.
  static void Settle(const Options& options, Offer offer,
                     const v1::PullRequest& request,
                     std::shared_ptr<OfferClaimant> claimant, Offers* offers,
                     Calls* calls);
  void ForgetIfEmpty(const std::string& session_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  Clock* const clock_;
  mutable Mutex mu_;
  // By session id.
  std::map<std::string, Offers> sessions_ ABSL_GUARDED_BY(mu_);
  uint64_t last_number_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status stop_reason_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_PULL_OFFER_TABLE_H_
