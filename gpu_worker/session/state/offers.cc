#include "gpu_worker/session/state/offers.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "gpu_worker/session/base/violation.h"

namespace djinn::worker {

absl::Status Offers::CheckTicket(absl::string_view what,
                                 const std::string& ticket) {
  if (ticket.size() == OfferTable::kTicketBytes) return absl::OkStatus();
  return Violation(absl::StrCat(what, " under a ticket of ", ticket.size(),
                                " bytes, not ", OfferTable::kTicketBytes));
}

void Offers::Pin(uint64_t storage, const std::string& ticket,
                 const std::shared_ptr<OfferedBytes>& bytes) {
  if (pinned_.size() >= prune_at_) {
    ForgetFetched();
    prune_at_ = std::max(kMinPinned, 2 * pinned_.size());
  }
  pinned_.push_back({storage, ticket, bytes, {}});
}

bool Offers::IsPinned(uint64_t storage) const {
  return absl::c_any_of(pinned_, [&](const Pinned& pinned) {
    return pinned.storage == storage && !pinned.bytes.expired();
  });
}

void Offers::WithdrawOf(uint64_t storage) {
  for (const Pinned& pinned : pinned_) {
    if (pinned.storage != storage) continue;
    table_.Withdraw(
        session_id_, pinned.ticket,
        MakeError(absl::StatusCode::kFailedPrecondition, "OFFER_REPLACED",
                  "the copy was offered under another ticket"));
  }
}

void Offers::Clear() {
  Withdraw();
  pinned_.clear();
}

void Offers::ForgetFetched() {
  std::erase_if(pinned_, [](const Pinned& p) { return p.bytes.expired(); });
}

void Offers::Account(const StorageTable& storages) {
  ForgetFetched();
  for (Pinned& pinned : pinned_) {
    if (pinned.share.bytes() > 0) continue;
    const std::shared_ptr<const OfferedBytes> bytes = pinned.bytes.lock();
    if (bytes == nullptr) continue;
    const Storage* const storage = storages.Find(pinned.storage);
    // Bytes that the storage still has count once.
    if (storage != nullptr && storage->buffer == bytes->buffer) continue;
    absl::StatusOr<QuotaShare> share = quota_.Reserve(bytes->size_bytes);
    if (share.ok()) {
      pinned.share = *std::move(share);
    } else if (!table_.Withdraw(session_id_, pinned.ticket, share.status())) {
      // The offer was claimed already, so its sender must stop.
      bytes->recalled = true;
    }
  }
}

}  // namespace djinn::worker
