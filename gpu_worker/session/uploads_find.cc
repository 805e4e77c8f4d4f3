// What may take the place of an upload: the tenant's own bytes, from memory or
// from disk, and another tenant's, once the client has proved that it has them.
//
// A client that hashes the bytes while it sends them says a sample of them
// beforehand. Where the tenant has nothing like that, the bytes are asked for
// at once, otherwise the hash.
//
// Every upload of a tenant that shares contents, and that the tenant does not
// have here, is asked for a proof: whether there is anything to prove, only a
// right one tells. For the same reason others' contents are not looked for on
// disk, which takes its time.
#include <memory>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "common/clock.h"
#include "common/transport/stream.h"
#include "gpu_worker/cache/content_cache.h"
#include "gpu_worker/cache/content_proofs.h"
#include "gpu_worker/cache/content_store.h"
#include "gpu_worker/memory/device_memory.h"
#include "gpu_worker/session/uploads.h"

namespace djinn::worker {
namespace {

// What even a slow client computes and a slow disk reads, besides the time that
// any answer may take.
constexpr double kBytesPerSecond = 64 << 20;

ContentHash HashOf(const v1::Transfer& transfer) {
  return {transfer.hash_high(), transfer.hash_low()};
}

}  // namespace

bool Uploads::Search::settled() const {
  return load != nullptr        ? load->settled()
         : challenge != nullptr ? challenge->settled()
                                : hash.has_value() || hash_late;
}

void Uploads::KeepOnDisk(const ContentHash& hash, uint64_t bytes, bool found) {
  if (environment_.store == nullptr) return;
  environment_.store->Keep(tenant_, hash, bytes, found);
}

bool Uploads::TakesUnasked() const {
  return !environment_.contents->Shares(tenant_);
}

void Uploads::SayHeld(v1::WorkerHello* hello) const {
  if (!TakesUnasked()) return;
  v1::HeldContents* const held = hello->mutable_held();
  absl::flat_hash_set<uint64_t> sizes;
  for (const ContentCache::Look& look :
       environment_.contents->Looks(tenant_, kMaxContentBytes)) {
    if (look.sample != 0) {
      held->add_samples(look.sample);
    } else {
      sizes.insert(look.size_bytes);
    }
  }
  if (environment_.store != nullptr) {
    for (const uint64_t size_bytes : environment_.store->Sizes(tenant_)) {
      if (size_bytes <= kMaxContentBytes) sizes.insert(size_bytes);
    }
  }
  held->mutable_sizes()->Add(sizes.begin(), sizes.end());
}

void Uploads::Await(std::unique_ptr<Search> search) {
  search->id = transfer_.transfer_id();
  search->started = environment_.clock->Monotonic();
  search->deadline = search->started + environment_.transfer_idle_timeout +
                     absl::Seconds(static_cast<double>(transfer_.size_bytes()) /
                                   kBytesPerSecond);
  MutexLock lock(&mu_);
  if (search->challenge != nullptr) challenged_.Insert(search->id);
  if (search->awaits_hash()) unhashed_.Insert(search->id);
  search_ = std::move(search);
}

Uploads::Found Uploads::Find(const v1::Transfer& transfer, bool fits) {
  transfer_ = transfer;
  return Look(fits);
}

Uploads::Found Uploads::Look(bool fits) {
  if (transfer_.hash_follows()) {
    return fits && HashMayHelp() ? AskForHash() : Found();
  }
  Found found;
  found.held = environment_.contents->Find(tenant_, HashOf(transfer_),
                                           transfer_.size_bytes());
  if (found.held != nullptr) {
    KeepOnDisk(HashOf(transfer_), transfer_.size_bytes(), /*found=*/true);
  } else if (fits) {
    found.waits = StartLoad();
    if (!found.waits) return AskForProof();
  }
  return found;
}

Uploads::Found Uploads::GoOn(bool fits) {
  std::unique_ptr<Search> search;
  {
    MutexLock lock(&mu_);
    search = std::move(search_);
  }
  Found found;
  if (search->awaits_hash()) {
    // It may come with the bytes.
    if (!search->hash.has_value()) return found;
    transfer_.set_hash_follows(false);
    transfer_.set_hash_high(search->hash->high);
    transfer_.set_hash_low(search->hash->low);
    return Look(fits);
  }
  if (search->challenge != nullptr) {
    found.held = FinishProof(search.get());
    return found;
  }
  found.held = FinishLoad(search.get());
  // Somebody else may have what the disk has not.
  return found.held == nullptr ? AskForProof() : found;
}

bool Uploads::HashMayHelp() const {
  const uint64_t bytes = transfer_.size_bytes();
  ContentStore* const store = environment_.store;
  return transfer_.sample() == 0 || environment_.contents->Shares(tenant_) ||
         (store != nullptr && store->HasOfSize(tenant_, bytes)) ||
         environment_.contents->MayHave(tenant_, bytes, transfer_.sample());
}

Uploads::Found Uploads::AskForHash() {
  Found found;
  found.waits = true;
  found.question.emplace().set_hash(true);
  Await(std::make_unique<Search>());
  return found;
}

bool Uploads::StartLoad() {
  ContentStore* const store = environment_.store;
  const ContentHash hash = HashOf(transfer_);
  const uint64_t bytes = transfer_.size_bytes();
  if (store == nullptr || !store->Has(tenant_, hash, bytes)) return false;
  DeviceMemory* const memory = environment_.memory;
  absl::StatusOr<Reservation> reservation =
      memory->Reserve(MemoryClass::kTransfers, tenant_, bytes);
  if (!reservation.ok()) return false;
  absl::StatusOr<std::shared_ptr<Buffer>> buffer =
      memory->device()->AllocateUnset(bytes);
  if (!buffer.ok()) return false;
  auto search = std::make_unique<Search>();
  search->reservation = std::make_shared<Reservation>(*std::move(reservation));
  search->buffer = DeviceMemory::Track(*std::move(buffer), search->reservation);
  search->load = store->Load(tenant_, hash, search->buffer, callbacks_.settled);
  if (search->load == nullptr) return false;
  Await(std::move(search));
  return true;
}

std::shared_ptr<Buffer> Uploads::FinishLoad(Search* search) {
  // It may still be written to; the reservation goes with it.
  if (!search->load->ok()) return nullptr;
  search->reservation->MoveTo(MemoryClass::kContents);
  std::shared_ptr<Buffer> buffer = environment_.contents->Insert(
      tenant_, HashOf(transfer_), std::move(search->buffer),
      environment_.clock->Monotonic() - search->started, transfer_.sample());
  environment_.contents_changed();
  return buffer;
}

Uploads::Found Uploads::AskForProof() {
  ContentCache* const contents = environment_.contents;
  Found found;
  if (!transfer_.provable() || !contents->Shares(tenant_)) return found;
  auto search = std::make_unique<Search>();
  search->challenge = environment_.proofs->Issue(
      tenant_, transfer_.size_bytes(),
      contents->FindShared(tenant_, HashOf(transfer_), transfer_.size_bytes()),
      callbacks_.settled, callbacks_.charge);
  if (search->challenge == nullptr) return found;
  found.waits = true;
  found.question.emplace().mutable_prove()->set_key(search->challenge->key());
  Await(std::move(search));
  return found;
}

std::shared_ptr<Buffer> Uploads::FinishProof(Search* search) {
  std::shared_ptr<Buffer> held = search->challenge->Take();
  search->challenge = nullptr;
  if (held == nullptr) return nullptr;
  const ContentHash hash = HashOf(transfer_);
  environment_.proofs->CountProven();
  environment_.contents->Adopt(tenant_, hash, held);
  KeepOnDisk(hash, transfer_.size_bytes(), /*found=*/false);
  environment_.contents_changed();
  return held;
}

}  // namespace djinn::worker
