#include "gpu_worker/pull/offer_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace djinn::worker {

absl::Status OfferTable::Unknown() {
  return MakeError(absl::StatusCode::kNotFound, "OFFER_UNKNOWN",
                   "nothing is offered under this ticket");
}

void OfferTable::Make(const Calls& calls) {
  for (const auto& call : calls) call();
}

void OfferTable::ForgetIfEmpty(const std::string& session_id) {
  const auto found = sessions_.find(session_id);
  if (found == sessions_.end()) return;
  const Offers& offers = found->second;
  if (offers.open.empty() && offers.waiting.empty() && offers.used.empty()) {
    sessions_.erase(found);
  }
}

absl::Status OfferTable::Add(const std::string& session_id, const void* owner,
                             const std::string& ticket,
                             std::shared_ptr<OfferedBytes> bytes) {
  Calls calls;
  {
    MutexLock lock(&mu_);
    Offers& offers = sessions_[session_id];
    if (offers.used.contains(ticket) || offers.open.contains(ticket)) {
      return MakeError(absl::StatusCode::kInvalidArgument, "PROTOCOL_VIOLATION",
                       "an offer under a ticket that was used");
    }
    if (offers.open.size() >= options_.max_offers) {
      return MakeError(
          absl::StatusCode::kResourceExhausted, "TOO_MANY_OFFERS",
          absl::StrCat("the session offers ", offers.open.size(),
                       " values that nobody has fetched, its limit is ",
                       options_.max_offers));
    }
    bytes->rank.number = ++last_number_;
    Offer offer{owner, std::move(bytes), absl::OkStatus(),
                clock_->Monotonic() + options_.offer_timeout};
    for (auto it = offers.waiting.begin(); it != offers.waiting.end(); ++it) {
      if (it->request.ticket() != ticket) continue;
      const Waiting waiting = std::move(*it);
      offers.waiting.erase(it);
      Settle(options_, std::move(offer), waiting.request, waiting.claimant,
             &offers, &calls);
      break;
    }
    if (calls.empty()) offers.open.emplace(ticket, std::move(offer));
  }
  Make(calls);
  return absl::OkStatus();
}

bool OfferTable::Withdraw(const std::string& session_id,
                          const std::string& ticket, const absl::Status& why) {
  std::shared_ptr<const OfferedBytes> bytes;  // Released without the lock.
  MutexLock lock(&mu_);
  const auto found = sessions_.find(session_id);
  if (found == sessions_.end()) return false;
  const auto offer = found->second.open.find(ticket);
  if (offer == found->second.open.end()) return false;
  bytes = std::move(offer->second.bytes);
  offer->second.refusal = why;
  return true;
}

bool OfferTable::Pending(const std::string& session_id,
                         const void* owner) const {
  MutexLock lock(&mu_);
  const auto found = sessions_.find(session_id);
  if (found == sessions_.end()) return false;
  for (const auto& [ticket, offer] : found->second.open) {
    if (offer.owner == owner && offer.refusal.ok()) return true;
  }
  return false;
}

void OfferTable::Leave(const std::string& session_id, const void* owner) {
  std::vector<Offer> gone;  // Released without the lock.
  MutexLock lock(&mu_);
  const auto found = sessions_.find(session_id);
  if (found == sessions_.end()) return;
  auto& open = found->second.open;
  absl::erase_if(open, [&](auto& entry) {
    if (entry.second.owner != owner) return false;
    gone.push_back(std::move(entry.second));
    return true;
  });
  if (open.empty()) {
    found->second.used.clear();
    found->second.used_order.clear();
  }
  ForgetIfEmpty(session_id);
}

void OfferTable::Settle(const Options& options, Offer offer,
                        const v1::PullRequest& request,
                        std::shared_ptr<OfferClaimant> claimant, Offers* offers,
                        Calls* calls) {
  offers->used.insert(request.ticket());
  offers->used_order.push_back(request.ticket());
  if (offers->used.size() > options.max_used_tickets) {
    offers->used.erase(offers->used_order.front());
    offers->used_order.pop_front();
  }
  absl::Status refusal = std::move(offer.refusal);
  // A poisoned value has no size.
  if (refusal.ok() && offer.bytes->poison == nullptr &&
      request.size_bytes() != offer.bytes->size_bytes) {
    refusal = MakeError(
        absl::StatusCode::kInvalidArgument, "SIZE_MISMATCH",
        absl::StrCat(request.size_bytes(), " bytes were asked for, the offer ",
                     "has ", offer.bytes->size_bytes));
  }
  calls->push_back([claimant = std::move(claimant),
                    bytes = std::move(offer.bytes),
                    refusal = std::move(refusal)]() mutable {
    if (refusal.ok()) {
      claimant->Give(std::move(bytes));
    } else {
      claimant->Refuse(std::move(refusal));
    }
  });
}

void OfferTable::Claim(const v1::PullRequest& request,
                       std::shared_ptr<OfferClaimant> claimant) {
  Calls calls;
  absl::Status refused;
  {
    MutexLock lock(&mu_);
    Offers& offers = sessions_[request.session_id()];
    const auto found = offers.open.find(request.ticket());
    if (found != offers.open.end()) {
      Offer offer = std::move(found->second);
      offers.open.erase(found);
      Settle(options_, std::move(offer), request, claimant, &offers, &calls);
    } else if (stopping_) {
      refused = stop_reason_;
    } else if (offers.used.contains(request.ticket())) {
      refused = Unknown();
    } else if (offers.waiting.size() >= options_.max_claims) {
      refused = MakeError(
          absl::StatusCode::kResourceExhausted, "TOO_MANY_PULLS",
          absl::StrCat(offers.waiting.size(),
                       " pulls wait for offers of the session, at most ",
                       options_.max_claims, " may"));
    } else {
      const absl::Duration now = clock_->Monotonic();
      offers.waiting.push_back({request, claimant, now + options_.claim_timeout,
                                now + options_.offer_timeout,
                                now + options_.claim_timeout / 4});
    }
    ForgetIfEmpty(request.session_id());
  }
  Make(calls);
  if (!refused.ok()) claimant->Refuse(std::move(refused));
}

void OfferTable::Abandon(const OfferClaimant* claimant) {
  std::shared_ptr<OfferClaimant> gone;  // Released without the lock.
  MutexLock lock(&mu_);
  for (auto& [session_id, offers] : sessions_) {
    for (auto it = offers.waiting.begin(); it != offers.waiting.end(); ++it) {
      if (it->claimant.get() != claimant) continue;
      gone = std::move(it->claimant);
      offers.waiting.erase(it);
      // Copies the key, because the reference is into the entry that may be
      // removed.
      const std::string id = session_id;
      ForgetIfEmpty(id);
      return;
    }
  }
}

void OfferTable::CheckDeadlines(
    const std::function<Activity(const std::string&)>& activity) {
  // Calls `activity` without the lock.
  std::map<std::string, Activity> activities;
  std::vector<std::string> ids;
  {
    MutexLock lock(&mu_);
    for (const auto& [session_id, offers] : sessions_) {
      if (!offers.waiting.empty()) ids.push_back(session_id);
    }
  }
  for (const std::string& id : ids) activities[id] = activity(id);
  const absl::Duration now = clock_->Monotonic();
  std::vector<std::shared_ptr<OfferClaimant>> refused;
  std::vector<std::shared_ptr<OfferClaimant>> patient;
  std::vector<std::shared_ptr<const OfferedBytes>> expired;
  {
    MutexLock lock(&mu_);
    for (auto& [session_id, offers] : sessions_) {
      absl::erase_if(offers.open, [&](const auto& entry) {
        return !entry.second.refusal.ok() &&
               now >= entry.second.expires + options_.offer_timeout;
      });
      for (auto& [ticket, offer] : offers.open) {
        if (now < offer.expires || !offer.refusal.ok()) continue;
        expired.push_back(std::move(offer.bytes));
        offer.refusal = MakeError(
            absl::StatusCode::kDeadlineExceeded, "OFFER_EXPIRED",
            absl::StrCat("nobody fetched what was offered for ",
                         absl::FormatDuration(options_.offer_timeout)));
      }
      const auto asked = activities.find(session_id);
      if (asked == activities.end()) continue;
      std::erase_if(offers.waiting, [&](Waiting& waiting) {
        if (asked->second == Activity::kBusy) {
          waiting.expires =
              std::min(now + options_.claim_timeout, waiting.ends);
        }
        if (asked->second == Activity::kGone || now >= waiting.expires) {
          refused.push_back(std::move(waiting.claimant));
          return true;
        }
        if (now >= waiting.next_word) {
          waiting.next_word = now + options_.claim_timeout / 4;
          patient.push_back(waiting.claimant);
        }
        return false;
      });
    }
    for (const std::string& id : ids) ForgetIfEmpty(id);
  }
  for (const auto& claimant : refused) claimant->Refuse(Unknown());
  for (const auto& claimant : patient) claimant->StillWaiting();
}

void OfferTable::Shutdown(const absl::Status& why) {
  std::map<std::string, Offers> sessions;
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    stop_reason_ = why;
    sessions.swap(sessions_);
  }
  for (const auto& [session_id, offers] : sessions) {
    for (const Waiting& waiting : offers.waiting) waiting.claimant->Refuse(why);
  }
}

size_t OfferTable::offers() const {
  MutexLock lock(&mu_);
  size_t count = 0;
  for (const auto& [session_id, offers] : sessions_) {
    count += offers.open.size();
  }
  return count;
}

}  // namespace djinn::worker
