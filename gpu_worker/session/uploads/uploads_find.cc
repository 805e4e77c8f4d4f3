// Finds a content equal to an upload's bytes: the tenant's own, in memory or on
// disk, or another tenant's, once the client has proved that it has the same
// bytes.
//
// A tenant that shares contents is asked for a proof of every content that it
// does not have here, whether or not another tenant has it, so that only a
// right proof reveals this. For the same reason the worker does not look for
// other tenants' contents on disk, which takes time.
#include <memory>
#include <utility>

#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "gpu_worker/session/uploads/uploads.h"
#include "gpu_worker/store/content_cache.h"
#include "gpu_worker/store/content_proofs.h"
#include "gpu_worker/store/content_store.h"
#include "gpu_worker/store/device_memory.h"

namespace djinn::worker {
namespace {

// The rate at which even a slow client proves and a slow disk reads. An answer
// may take the time that follows from this rate, in addition to the usual time.
constexpr double kBytesPerSecond = 64 << 20;

ContentHash HashOf(const v1::Transfer& transfer) {
  return {transfer.hash_high(), transfer.hash_low()};
}

}  // namespace

bool Uploads::Search::settled() const {
  return load != nullptr ? load->settled() : challenge->settled();
}

void Uploads::KeepOnDisk(const ContentHash& hash, uint64_t bytes, bool found) {
  if (environment_.store == nullptr) return;
  environment_.store->Keep(tenant_, hash, bytes, found);
}

void Uploads::Await(std::unique_ptr<Search> search) {
  search->id = transfer_.transfer_id();
  search->started = environment_.clock->Monotonic();
  search->deadline = search->started + environment_.transfer_idle_timeout +
                     absl::Seconds(static_cast<double>(transfer_.size_bytes()) /
                                   kBytesPerSecond);
  MutexLock lock(&mu_);
  if (search->challenge != nullptr) challenged_.Insert(search->id);
  search_ = std::move(search);
}

Uploads::Found Uploads::Find(const v1::Transfer& transfer, bool fits) {
  transfer_ = transfer;
  const ContentHash hash = HashOf(transfer);
  Found found;
  found.held =
      environment_.contents->Find(tenant_, hash, transfer.size_bytes());
  if (found.held != nullptr) {
    KeepOnDisk(hash, transfer.size_bytes(), /*found=*/true);
  } else if (fits) {
    found.waits = StartLoad();
    if (!found.waits) return AskForProof();
  }
  return found;
}

Uploads::Found Uploads::GoOn() {
  std::unique_ptr<Search> search;
  {
    MutexLock lock(&mu_);
    search = std::move(search_);
  }
  Found found;
  if (search->challenge != nullptr) {
    found.held = FinishProof(search.get());
    return found;
  }
  found.held = FinishLoad(search.get());
  if (found.held != nullptr) return found;
  // Another tenant may have a content that the store does not.
  if (auto challenge = search->load->challenge(); challenge != nullptr) {
    auto proof = std::make_unique<Search>();
    proof->challenge = std::move(challenge);
    proof->room.reservation = std::move(search->room.reservation);
    return Ask(std::move(proof));
  }
  return AskForProof();
}

bool Uploads::StartLoad() {
  ContentStore* const store = environment_.store;
  const ContentHash hash = HashOf(transfer_);
  const uint64_t bytes = transfer_.size_bytes();
  if (store == nullptr || !store->MayHave(tenant_, hash, bytes)) return false;
  absl::StatusOr<Room> room = MakeRoom(bytes);
  if (!room.ok()) return false;
  auto search = std::make_unique<Search>();
  search->room = *std::move(room);
  search->load = store->Load({.tenant = tenant_,
                              .hash = hash,
                              .buffer = search->room.buffer,
                              .settled = callbacks_.settled,
                              .provable = transfer_.provable(),
                              .charge = callbacks_.charge});
  if (search->load == nullptr) return false;
  Await(std::move(search));
  return true;
}

std::shared_ptr<Buffer> Uploads::FinishLoad(Search* search) {
  // A load that failed may still write to the buffer, so the buffer is given
  // up.
  if (!search->load->ok()) {
    search->room.buffer = nullptr;
    return nullptr;
  }
  return Hold(search, search->load->Take());
}

std::shared_ptr<Buffer> Uploads::Hold(Search* search,
                                      std::shared_ptr<Buffer> other) {
  Room& room = search->room;
  room.reservation->MoveTo(MemoryClass::kContents);
  if (other != nullptr) {
    room.buffer = DeviceMemory::Track(std::move(other), room.reservation);
  }
  std::shared_ptr<Buffer> buffer = environment_.contents->Insert(
      tenant_, HashOf(transfer_), std::move(room.buffer),
      environment_.clock->Monotonic() - search->started);
  environment_.contents_changed();
  return buffer;
}

Uploads::Found Uploads::AskForProof() {
  ContentCache* const contents = environment_.contents;
  if (!transfer_.provable() || !contents->Shares(tenant_)) return {};
  auto search = std::make_unique<Search>();
  search->challenge = environment_.proofs->Issue(
      tenant_, transfer_.size_bytes(),
      contents->FindShared(tenant_, HashOf(transfer_), transfer_.size_bytes()),
      callbacks_.settled, callbacks_.charge);
  if (search->challenge == nullptr) return {};
  return Ask(std::move(search));
}

Uploads::Found Uploads::Ask(std::unique_ptr<Search> search) {
  Found found;
  found.waits = true;
  found.question.emplace().mutable_prove()->set_key(search->challenge->key());
  Await(std::move(search));
  return found;
}

std::shared_ptr<Buffer> Uploads::FinishProof(Search* search) {
  std::shared_ptr<Buffer> held = search->challenge->Take();
  search->challenge = nullptr;
  if (held == nullptr) return nullptr;
  // The content came from outside of this process.
  if (search->room.reservation != nullptr) {
    environment_.contents->CountFound();
    return Hold(search, std::move(held));
  }
  const ContentHash hash = HashOf(transfer_);
  environment_.proofs->CountProven();
  environment_.contents->Adopt(tenant_, hash, held);
  KeepOnDisk(hash, transfer_.size_bytes(), /*found=*/false);
  environment_.contents_changed();
  return held;
}

}  // namespace djinn::worker
