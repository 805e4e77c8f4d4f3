// Holds what sessions of this worker offer to other workers, and the claims
// that wait for it.
//
// An offer is the bytes that a storage had at one moment, under a ticket that
// the client chose. The first caller that presents the ticket and the session's
// id gets the bytes. A claim that arrives before its offer waits while the
// session has work here, and `claim_timeout` longer, but not beyond
// `offer_timeout`. An offer that is never claimed ends after `offer_timeout`,
// or with its session.
//
// Offers, waiting claims and remembered tickets are bounded per session.
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
#include "djinn/v1/pull.pb.h"
#include "djinn/v1/types.pb.h"
#include "gpu_worker/device/device.h"
#include "scheduler/placement/stages/transfer_order.h"

namespace djinn::worker {

// The offered bytes, held by the offer and then by the sender. They are charged
// to the session that offered them as long as a reference is held.
struct OfferedBytes {
  // Null when the value is poisoned.
  std::shared_ptr<Buffer> buffer;
  uint64_t size_bytes = 0;
  std::shared_ptr<const v1::ErrorDetail> poison;
  // The rank among the session's offers. The table assigns its number: later
  // offers have higher ones.
  scheduler::TransferRank rank;
  // Set when the session's quota cannot hold the bytes any more: the sender
  // must stop.
  mutable std::atomic<bool> recalled{false};
};

// A caller that claims an offer. The table calls either Give() or Refuse(),
// once, unless the claim was abandoned; maybe at once, within Claim().
class OfferClaimant {
 public:
  virtual ~OfferClaimant() = default;
  // The offer is not there yet.
  virtual void StillWaiting() = 0;
  virtual void Give(std::shared_ptr<const OfferedBytes> bytes) = 0;
  virtual void Refuse(absl::Status why) = 0;
};

class OfferTable {
 public:
  // 128 random bits.
  static constexpr size_t kTicketBytes = 16;
  // Returns the ticket under which the state of a migrating session is offered:
  // the client's ticket with a mark. A worker trusts the state that it takes
  // over, so the ticket of a value must never lead to a state.
  static std::string StateTicket(const std::string& ticket) {
    return ticket + 's';
  }
  static bool IsTicket(const std::string& ticket) {
    return ticket.size() == kTicketBytes || ticket.size() == kTicketBytes + 1;
  }

  struct Options {
    absl::Duration offer_timeout = absl::Minutes(10);
    absl::Duration claim_timeout = absl::Seconds(30);
    // Limits per session.
    size_t max_offers = 65536;
    size_t max_claims = 256;
    size_t max_used_tickets = 4096;
  };
  // Whether the worker has the session, and whether the session has work.
  enum class Activity { kGone, kIdle, kBusy };

  // Returns the error for a caller without a ticket, with another session's
  // ticket, or with a used ticket. All three get the same error.
  static absl::Status Unknown();

  OfferTable(Options options, Clock* clock)
      : options_(options), clock_(clock) {}

  // Adds an offer. `owner` is the address of the session on this worker.
  // Errors: InvalidArgument (PROTOCOL_VIOLATION) for a ticket that was used,
  // ResourceExhausted (TOO_MANY_OFFERS).
  absl::Status Add(const std::string& session_id, const void* owner,
                   const std::string& ticket,
                   std::shared_ptr<OfferedBytes> bytes);
  // Releases the bytes of an unclaimed offer; a later claim is refused with
  // `why`. Returns false when there is no such offer.
  bool Withdraw(const std::string& session_id, const std::string& ticket,
                const absl::Status& why);
  // Returns whether `owner` has an offer that is unclaimed.
  bool Pending(const std::string& session_id, const void* owner) const;
  // Forgets the offers of `owner`.
  void Leave(const std::string& session_id, const void* owner);

  // Claims an offer of a session that this worker is known to have. Refuses
  // with the errors of Execution.Pull.
  void Claim(const v1::PullRequest& request,
             std::shared_ptr<OfferClaimant> claimant);
  // Forgets a claim that waits; without effect when it does not wait. Once this
  // returns, the claimant is called only by calls that began before.
  void Abandon(const OfferClaimant* claimant);

  // Expires offers and claims, forgets offers that expired long ago, and calls
  // StillWaiting() on the claimants that wait.
  void CheckDeadlines(
      const std::function<Activity(const std::string&)>& activity);
  // Refuses all claims that wait, and later ones.
  void Shutdown(const absl::Status& why);

  size_t offers() const;

 private:
  struct Offer {
    const void* owner;
    std::shared_ptr<const OfferedBytes> bytes;
    // An error when the offer was withdrawn or has expired.
    absl::Status refusal;
    absl::Duration expires;
  };
  struct Waiting {
    v1::PullRequest request;
    std::shared_ptr<OfferClaimant> claimant;
    // When the claim ends if the session stays idle, and when it ends in any
    // case.
    absl::Duration expires;
    absl::Duration ends;
    absl::Duration next_word;
  };
  struct Offers {
    absl::flat_hash_map<std::string, Offer> open;  // by ticket
    std::vector<Waiting> waiting;
    // Used tickets, of which the oldest are forgotten.
    std::deque<std::string> used_order;
    absl::flat_hash_set<std::string> used;
  };
  using Calls = std::vector<std::function<void()>>;

  static void Make(const Calls& calls);
  // Marks the ticket as used, and adds the call that gives the offer to the
  // claimant or refuses it.
  static void Settle(const Options& options, Offer offer,
                     const v1::PullRequest& request,
                     std::shared_ptr<OfferClaimant> claimant, Offers* offers,
                     Calls* calls);
  void ForgetIfEmpty(const std::string& session_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  Clock* const clock_;
  mutable Mutex mu_;
  // The offers by session id.
  std::map<std::string, Offers> sessions_ ABSL_GUARDED_BY(mu_);
  uint64_t last_number_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status stop_reason_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_PULL_OFFER_TABLE_H_
