// Copies between virtual devices when one of them loses its worker.
//
// The source keeps what it offered as a storage of its own
// (client_lib/session/transfer/kept_copy.h). A destination that loses its
// worker asks the source for another offer of each copy that its lineage keeps.
// If the source loses its worker while the destination's worker is about to
// fetch a value, or that worker says that it did not get it, the destination
// leaves its worker, too, and recovers. So a fetch has one source from its
// beginning to its end, and workers need not know of losses.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/algorithm/container.h"
#include "client_lib/session/device/replica/replica.h"
#include "client_lib/session/device/replica/replica_state.h"
#include "client_lib/session/model/links.h"
#include "common/base/error.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"

namespace djinn::replica {
namespace {

using Node = Lineage::Node;

// The size of tickets that workers accept.
constexpr size_t kTicketBytes = 16;
// How often the destination recovers because its worker did not get a value
// that the source's worker offered.
constexpr int kMostFailures = 3;
// The interval at which a source is asked again that is looking for a worker,
// or whose worker has not executed an offer.
constexpr absl::Duration kLook = absl::Milliseconds(100);

KeptMessage* KeptOf(const Node& node) {
  return static_cast<KeptMessage*>(node.payload.get());
}

// Returns whether the message fetches a copy that can be offered again.
bool Fetches(const Node& node) {
  return node.payload != nullptr && KeptOf(node)->extras().copy != nullptr;
}

absl::Status SourceLost(absl::string_view what) {
  return MakeError(absl::StatusCode::kUnavailable, kSourceLost, what);
}

// A kept message that fetches a copy. The node is held.
struct Fetch {
  Node* node = nullptr;
  std::shared_ptr<KeptCopy> copy;
  // Of the last offer: see CopySource::View, and whether the lost worker did
  // not get the value.
  uint64_t losses = 0;
  bool failed = false;
};

// Returns what another worker must fetch.
std::vector<Fetch> HoldFetches(State& r)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu) {
  std::vector<Fetch> fetches;
  if (r.connection.lineage == nullptr) return fetches;
  for (Node& node : r.connection.lineage->nodes()) {
    if (!Fetches(node)) continue;
    Lineage::Hold(&node);
    const std::shared_ptr<KeptCopy>& copy = KeptOf(node)->extras().copy;
    fetches.push_back({&node, copy, copy->losses, copy->failures > 0});
  }
  return fetches;
}

// Asks the source for an offer until it has a worker. If the lost worker did
// not get the value, also waits until the source's worker has executed the
// offer, or the source notices a loss. A worker that is gone, which the source
// does not know yet, never executes it.
absl::StatusOr<OfferedCopy> AwaitOffer(State& r, const Fetch& fetch,
                                       const Deadline& end) {
  std::optional<OfferedCopy> offered;
  for (;;) {
    const uint64_t seen = r.context->source_losses.news();
    const CopySource::View view = fetch.copy->Look();
    if (!offered.has_value() || offered->losses != view.losses) {
      DJINN_ASSIGN_OR_RETURN(offered, fetch.copy->OfferAgain());
    }
    if (offered.has_value() &&
        (!fetch.failed || offered->losses != fetch.losses ||
         view.executed >= offered->work)) {
      return *std::move(offered);
    }
    if (end.passed()) {
      return SourceLost("the device that the copy comes from has no worker");
    }
    {
      MutexLock lock(&r.connection.mu);
      if (!r.connection.end.wanted()) return absl::CancelledError("given up");
    }
    r.context->source_losses.Await(
        seen, Deadline(std::min(kLook, end.left()), r.context->options.clock));
  }
}

}  // namespace

OfferWork NewOffer(State& r) {
  OfferWork offer;
  offer.ticket = r.context->options.random->Bytes(kTicketBytes);
  return offer;
}

OfferedCopy Describe(const State& r, uint64_t size_bytes, OfferWork* offer) {
  const ConnectionState& c = r.connection;
  offer->losses = c.recovery.workers_lost;
  OfferedCopy offered;
  offered.losses = offer->losses;
  offered.pull.set_worker_id(c.lease.worker_id());
  offered.pull.set_worker_incarnation(c.lease.worker_incarnation());
  offered.pull.set_ticket(offer->ticket);
  offered.pull.set_size_bytes(size_bytes);
  return offered;
}

CopySource::View LookAt(State& r, const RemoteStorage& storage) {
  const ConnectionState& c = r.connection;
  MutexLock lock(&c.mu);
  CopySource::View view;
  view.losses = c.recovery.workers_lost;
  view.executed = c.works_done;
  if (c.lineage != nullptr) {
    const Node* const node = c.lineage->Find(storage.id()).producer;
    if (node != nullptr) view.error = node->error;
  }
  return view;
}

namespace {

// Returns whether an offer of the copy will be sent where the program made it:
// in the replay, or in the place of a queued one that was withdrawn. What
// follows there may wait for those who fetch the copy.
bool HasPlaceForOffer(State& r, const RemoteStorage& copy)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu) {
  const RecoveryState& recovery = r.connection.recovery;
  if (recovery.offers == RecoveryState::Offers::kReplayed &&
      r.connection.lineage->IsLive(copy.id())) {
    return true;
  }
  bool queued = false;
  r.queue.Visit([&](const Work& work) {
    queued |= work.storage.get() == &copy &&
              std::holds_alternative<OfferWork>(work.action);
  });
  return queued;
}

}  // namespace

absl::StatusOr<std::optional<OfferedCopy>> OfferAgain(State& r,
                                                      RemoteStorage* storage) {
  const CopySource::View view = LookAt(r, *storage);
  DJINN_RETURN_IF_ERROR(view.error);
  ConnectionState& c = r.connection;
  OfferWork offer = NewOffer(r);
  std::optional<OfferedCopy> offered;
  absl::Status failed;
  const uint64_t size = storage->size_bytes();
  DJINN_RETURN_IF_ERROR(r.recorder.OfferAgain(
      storage, &offer, [&](absl::FunctionRef<void()> push) {
        MutexLock lock(&c.mu);
        if (!c.end.usable()) {
          failed = c.end.Reason();
          return;
        }
        using Offers = RecoveryState::Offers;
        if (!c.welcomed || c.migration.current != nullptr ||
            c.recovery.offers == Offers::kNone) {
          return;
        }
        auto spare = c.recovery.spare_offers.extract(storage->id());
        if (!spare.empty()) offer.ticket = std::move(spare.mapped());
        offered = Describe(r, size, &offer);
        if (!spare.empty()) return;
        if (HasPlaceForOffer(r, *storage)) {
          c.recovery.asked_offers[storage->id()] = offer.ticket;
          return;
        }
        push();
        offered->work = r.queue.pushed();
      }));
  DJINN_RETURN_IF_ERROR(failed);
  if (offered.has_value()) r.sender.wakeup.Set();
  return offered;
}

absl::Status FetchAgain(State& r, const Deadline& end) {
  ConnectionState& c = r.connection;
  std::vector<Fetch> fetches;
  {
    MutexLock lock(&c.mu);
    fetches = HoldFetches(r);
  }
  std::vector<absl::StatusOr<OfferedCopy>> offers;
  for (const Fetch& fetch : fetches) {
    offers.push_back(AwaitOffer(r, fetch, end));
  }
  absl::Status status;
  MutexLock lock(&c.mu);
  // Another thread made the device forget its messages.
  if (c.lineage == nullptr) return absl::CancelledError("it keeps nothing");
  for (size_t i = 0; i < fetches.size(); ++i) {
    Node* const node = fetches[i].node;
    if (offers[i].ok()) {
      KeptCopy& copy = *fetches[i].copy;
      if (copy.losses != offers[i]->losses) copy.failures = 0;
      copy.losses = offers[i]->losses;
      auto request =
          std::make_shared<v1::ControlRequest>(*KeptOf(*node)->request);
      *request->mutable_ordered()->mutable_install()->mutable_pull() =
          std::move(offers[i]->pull);
      KeptOf(*node)->request = std::move(request);
    } else if (ErrorReason(offers[i].status()) == kSourceLost ||
               absl::IsCancelled(offers[i].status())) {
      // The next attempt asks again.
      status.Update(offers[i].status());
    } else {
      c.lineage->Taint(node, offers[i].status());
    }
  }
  for (const Fetch& fetch : fetches) c.lineage->Release(fetch.node);
  return status;
}

void CheckOffer(State& r, uint64_t storage, OfferWork* offer) {
  RecoveryState& recovery = r.connection.recovery;
  if (offer->losses == recovery.workers_lost) return;
  auto asked = recovery.asked_offers.extract(storage);
  offer->withdrawn = asked.empty();
  if (!asked.empty()) offer->ticket = std::move(asked.mapped());
}

void WithdrawOffers(State& r) {
  RecoveryState& recovery = r.connection.recovery;
  ++recovery.workers_lost;
  recovery.offers = RecoveryState::Offers::kNone;
  recovery.asked_offers.clear();
  recovery.spare_offers.clear();
  for (const Node& node : r.connection.lineage->nodes()) {
    if (Fetches(node)) KeptOf(node)->extras().copy->SetNeeded(true);
  }
}

void NoteFetched(State& r, uint64_t sequence) {
  auto& fetches = r.connection.recovery.fetches;
  while (!fetches.empty() && fetches.front().first <= sequence) {
    fetches.front().second->SetNeeded(false);
    fetches.pop_front();
  }
}

void CheckSources(State& r) {
  ConnectionState& c = r.connection;
  std::vector<Fetch> fetches;
  {
    MutexLock lock(&c.mu);
    if (c.recovery.due) return;
    fetches = HoldFetches(r);
  }
  if (fetches.empty()) return;
  std::vector<CopySource::View> views;
  for (const Fetch& fetch : fetches) views.push_back(fetch.copy->Look());
  bool stale = false;
  MutexLock lock(&c.mu);
  if (c.lineage == nullptr) return;
  for (size_t i = 0; i < fetches.size(); ++i) {
    Node* const node = fetches[i].node;
    KeptCopy& copy = *fetches[i].copy;
    // A value that must not be shown is not fetched.
    if (!node->error.ok()) continue;
    stale |= copy.needed()->load() && views[i].losses != copy.losses;
    // A value of an earlier worker is right, whatever the next one computes.
    if (views[i].losses == copy.losses && !views[i].error.ok()) {
      c.lineage->Taint(node, views[i].error);
    }
  }
  for (const Fetch& fetch : fetches) c.lineage->Release(fetch.node);
  if (stale) LeaveForSource(r);
}

void LeaveForSource(State& r) {
  // A device that cannot recover goes on, and the value fails.
  if (r.connection.recovery.due || !Obstacle(r).empty()) return;
  (void)LoseWorker(r,
                   SourceLost("a device that it fetches a copy from lost its "
                              "worker"));
}

bool TakeLostCopy(State& r, const v1::ErrorDetail& error) {
  if (error.reason() != "PULL_FAILED") return false;
  ConnectionState& c = r.connection;
  MutexLock lock(&c.mu);
  if (c.lineage == nullptr || c.recovery.due) return false;
  const auto fetch = absl::c_find_if(c.recovery.fetches, [&](const auto& one) {
    return one.first == error.sequence();
  });
  if (fetch == c.recovery.fetches.end() ||
      ++fetch->second->failures > kMostFailures) {
    return false;
  }
  LeaveForSource(r);
  return c.recovery.due;
}

}  // namespace djinn::replica
