// Copies between virtual devices when one of them loses its worker.
//
// The source keeps what it offered as a storage of its own
// (client_lib/session/transfer/kept_copy.h). A destination that loses its
// worker asks the source for another offer of each copy that its lineage keeps.
// If the source loses its worker while the destination's worker is about to
// fetch a value, or that worker says that it did not get it, the destination
// leaves its worker, too, and recovers. So a fetch has one source from its
// beginning to its end, and workers need not know of losses.
#include "client_lib/session/device/replica/copies.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "client_lib/session/device/replica/replica.h"
#include "client_lib/session/device/replica/replica_state.h"
#include "client_lib/session/device/replica/seen_values.h"
#include "client_lib/session/model/fork_guard.h"
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
// Time that a source may take to find a worker, or its worker to execute an
// offer, beyond what a device has for its own recovery.
constexpr absl::Duration kSourcePatience = absl::Minutes(1);
// The interval at which a source is asked again that is looking for a worker,
// or whose worker has not executed an offer.
constexpr absl::Duration kLook = absl::Milliseconds(100);

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
  // KeptCopy::losses.
  uint64_t losses = 0;
  // The lost worker did not get the value.
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
      DJINN_ASSIGN_OR_RETURN(offered,
                             fetch.copy->OfferAgain(/*recovers=*/true));
    }
    if (offered.has_value() &&
        (!fetch.failed || offered->losses != fetch.losses ||
         view.executed >= offered->work)) {
      return *std::move(offered);
    }
    if (end.passed()) {
      return MakeError(absl::StatusCode::kUnavailable, "PULL_FAILED",
                       "the device that the value was copied from did not "
                       "offer it again in time");
    }
    {
      MutexLock lock(&r.connection.mu);
      if (!r.connection.end.wanted()) return absl::CancelledError("given up");
      MutexLock answers_lock(&r.answers.mu);
      // The program's waits go on.
      r.answers.NoteReplayed();
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

UploadOfCopy UploadOf(const State& r, const StorageVersion& at) {
  const Lineage::Value value = r.connection.lineage->Find(at.storage_id);
  const Node* const node = value.producer;
  if (node == nullptr || value.version != at.version || !node->executed ||
      node->anchor || !node->error.ok() || node->payload == nullptr) {
    return {};
  }
  const KeptMessage& kept = *KeptOf(*node);
  if (kept.request == nullptr) return {};
  const v1::Install& install = kept.request->ordered().install();
  // The next worker may not have what the client has not.
  const bool has_bytes =
      install.has_transfer()
          ? kept.extras().source.any()
          : install.has_content() || install.has_inline_value();
  if (!has_bytes) return {};
  return {kept.request, kept.extras().source};
}

void Release(State& r, RemoteStorage* storage) {
  if (IsForkedChild() || !r.sender.dead.Add(storage)) return;
  r.sender.free_due.store(true, std::memory_order_relaxed);
  r.sender.wakeup.Set();
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

// If an offer of the copy will be sent where the program made it, returns its
// number among the pieces of work: 0 in the replay, or that of a queued offer.
// Work that follows it may wait for the device that fetches the copy.
std::optional<uint64_t> PlaceForOffer(State& r, const RemoteStorage& copy)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu) {
  const RecoveryState& recovery = r.connection.recovery;
  if (recovery.offers == RecoveryState::Offers::kReplayed &&
      r.connection.lineage->IsLive(copy.id())) {
    return 0;
  }
  std::optional<uint64_t> place;
  uint64_t number = r.queue.popped();
  r.queue.Visit([&](const Work& work) {
    ++number;
    if (work.storage.get() == &copy &&
        std::holds_alternative<OfferWork>(work.action)) {
      place = number;
    }
  });
  return place;
}

}  // namespace

absl::StatusOr<std::optional<OfferedCopy>> OfferAgain(State& r,
                                                      RemoteStorage* storage,
                                                      bool recovers) {
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
            c.recovery.offers == Offers::kNone ||
            (c.recovery.offers == Offers::kReplayed && !recovers)) {
          return;
        }
        auto spare = c.recovery.spare_offers.extract(storage->id());
        if (!spare.empty()) offer.ticket = std::move(spare.mapped());
        offered = Describe(r, size, &offer);
        if (!spare.empty()) return;
        if (const auto place = PlaceForOffer(r, *storage)) {
          const auto kept = c.recovery.kept_copies.find(storage->id());
          c.recovery.asked_offers[storage->id()] = {
              offer.ticket,
              kept == c.recovery.kept_copies.end() ? 0 : kept->second->load()};
          offered->work = *place;
          return;
        }
        push();
        offered->work = r.queue.popped() + 1;
      }));
  DJINN_RETURN_IF_ERROR(failed);
  if (offered.has_value()) r.sender.wakeup.Set();
  return offered;
}

absl::Status FetchAgain(State& r) {
  ConnectionState& c = r.connection;
  std::vector<Fetch> fetches;
  {
    MutexLock lock(&c.mu);
    fetches = HoldFetches(r);
  }
  // All sources look for workers at the same time.
  const Deadline end(kSourcePatience + r.context->options.connect_timeout,
                     r.context->options.clock);
  std::vector<absl::StatusOr<OfferedCopy>> offers;
  for (const Fetch& fetch : fetches) {
    offers.push_back(AwaitOffer(r, fetch, end));
  }
  // A source may have lost its worker while another one was waited for.
  for (bool stale = true; stale && !end.passed();) {
    stale = false;
    for (size_t i = 0; i < fetches.size(); ++i) {
      if (!offers[i].ok() ||
          fetches[i].copy->Look().losses == offers[i]->losses) {
        continue;
      }
      offers[i] = AwaitOffer(r, fetches[i], end);
      stale = true;
    }
  }
  absl::Status status;
  // Causes, and the root errors made of them. Copies that fail for one cause
  // have one root error.
  std::vector<std::pair<absl::Status, absl::Status>> roots;
  MutexLock lock(&c.mu);
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
    } else if (absl::IsCancelled(offers[i].status())) {
      status.Update(offers[i].status());
    } else {
      const absl::Status& cause = offers[i].status();
      const auto root =
          std::find_if(roots.begin(), roots.end(),
                       [&](const auto& known) { return known.first == cause; });
      if (root != roots.end()) {
        TaintByRootError(r, node, root->second);
      } else {
        TaintByRootError(r, node, cause);
        roots.emplace_back(cause, node->error);
      }
    }
  }
  for (const Fetch& fetch : fetches) c.lineage->Release(fetch.node);
  return status;
}

void CheckOffer(State& r, uint64_t storage, OfferWork* offer) {
  RecoveryState& recovery = r.connection.recovery;
  if (auto asked = recovery.asked_offers.extract(storage); !asked.empty()) {
    offer->ticket = std::move(asked.mapped().ticket);
    return;
  }
  if (offer->losses == recovery.workers_lost) return;
  const auto kept = recovery.kept_copies.find(storage);
  offer->withdrawn = recovery.replayed_offers.contains(storage) ||
                     kept == recovery.kept_copies.end() ||
                     kept->second->load(std::memory_order_acquire) == 0;
  if (offer->withdrawn) return;
  offer->ticket = NewOffer(r).ticket;
  recovery.spare_offers[storage] = offer->ticket;
}

void WithdrawOffers(State& r) {
  RecoveryState& recovery = r.connection.recovery;
  ++recovery.workers_lost;
  recovery.offers = RecoveryState::Offers::kNone;
  recovery.asked_offers.clear();
  recovery.spare_offers.clear();
  recovery.replayed_offers.clear();
  for (const Node& node : r.connection.lineage->nodes()) {
    if (Fetches(node) && node.error.ok()) {
      KeptOf(node)->extras().copy->SetNeeded(1 + recovery.workers_lost);
    }
  }
}

namespace {

// Makes the next worker get the fetched bytes from an upload, so that the
// source need not keep them. `node` may be null.
void UploadInstead(const v1::SessionLimits& limits, Node* node) {
  if (node == nullptr || node->payload == nullptr) return;
  KeptMessage& kept = *KeptOf(*node);
  KeptMessage::Extras& extras = kept.mutable_extras();
  if (extras.copy == nullptr) return;
  const std::shared_ptr<KeptCopy> copy = extras.copy;
  const v1::Install& fetch = kept.request->ordered().install();
  auto upload = std::make_shared<v1::ControlRequest>();
  v1::Install* const install = upload->mutable_ordered()->mutable_install();
  *install = copy->upload.request->ordered().install();
  install->set_storage(fetch.storage());
  install->set_base_version(fetch.base_version());
  // The two workers may have other limits. The replay sends small contents
  // inline.
  if (install->has_inline_value()) {
    std::string bytes = std::move(*install->mutable_inline_value());
    install->set_content(std::move(bytes));
  }
  if (install->content().size() > limits.max_outstanding_bytes() / 2) return;
  extras.copy = nullptr;
  kept.request = std::move(upload);
  extras.source = copy->upload.source;
}

}  // namespace

void NoteFetched(State& r, uint64_t sequence) {
  // The lost worker's last answers may arrive after its loss, when the next
  // worker already needs every copy.
  if (r.connection.recovery.due) return;
  auto& fetches = r.connection.recovery.fetches;
  while (!fetches.empty() && fetches.front().first <= sequence) {
    KeptCopy& fetched = *fetches.front().second;
    fetched.SetNeeded(0);
    // A fetch that failed has left the worker (TakeLostCopy()).
    fetched.failures = 0;
    if (fetched.upload.request != nullptr) {
      UploadInstead(r.connection.limits,
                    r.connection.lineage->FindPending(fetches.front().first));
    }
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
  for (size_t i = 0; i < fetches.size(); ++i) {
    Node* const node = fetches[i].node;
    KeptCopy& copy = *fetches[i].copy;
    // A value that must not be shown is not fetched.
    if (!node->error.ok()) continue;
    stale |= copy.needed()->load() > 0 && views[i].losses != copy.losses;
    // A value of an earlier worker is right, whatever the next one computes.
    if (views[i].losses == copy.losses && !views[i].error.ok()) {
      TaintByRootError(r, node, views[i].error);
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
  if (c.lineage == nullptr) return false;
  // The device has left this worker, and fetches the value again.
  if (c.recovery.due) return c.stream.broken;
  // After a resume, the worker may say first that it executed the message.
  const auto node =
      absl::c_find_if(c.lineage->nodes(), [&](const Node& candidate) {
        return candidate.sequence == error.sequence();
      });
  if (node == c.lineage->nodes().end() ||
      (Fetches(*node) &&
       ++KeptOf(*node)->extras().copy->failures > kMostFailures)) {
    return false;
  }
  LeaveForSource(r);
  return c.recovery.due;
}

}  // namespace djinn::replica
