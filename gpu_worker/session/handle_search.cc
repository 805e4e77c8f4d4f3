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
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/content_proof.h"
#include "gpu_worker/session/session.h"
#include "gpu_worker/session/violation.h"

namespace djinn::worker {
namespace {

// What even a slow client computes and a slow disk reads, besides the time that
// any answer may take.
constexpr double kBytesPerSecond = 64 << 20;

ContentHash HashOf(const v1::Transfer& transfer) {
  return {transfer.hash_high(), transfer.hash_low()};
}

}  // namespace

void Session::KeepOnDisk(const ContentHash& hash, uint64_t size_bytes,
                         bool found) {
  if (environment_.store == nullptr) return;
  environment_.store->Keep(tenant_, hash, size_bytes, found);
}

bool Session::Park(std::unique_ptr<Searching> searching) {
  const absl::Duration now = environment_.clock->Monotonic();
  searching->started = now;
  searching->deadline =
      now + environment_.transfer_idle_timeout +
      absl::Seconds(static_cast<double>(searching->transfer.size_bytes()) /
                    kBytesPerSecond);
  MutexLock lock(&mu_);
  if (dropped_ || cancelling_) return false;
  if (searching->challenge != nullptr) {
    challenged_.Insert(searching->transfer.transfer_id());
  }
  if (searching->awaits_hash()) {
    unhashed_.Insert(searching->transfer.transfer_id());
  }
  searching_ = std::move(searching);
  return true;
}

bool Session::AskForHash(const Searching& search) {
  const v1::Transfer& transfer = search.transfer;
  const uint64_t bytes = transfer.size_bytes();
  ContentStore* const store = environment_.store;
  const bool asks =
      transfer.sample() == 0 || environment_.contents->Shares(tenant_) ||
      (store != nullptr && store->HasOfSize(tenant_, bytes)) ||
      environment_.contents->MayHave(tenant_, bytes, transfer.sample());
  if (!asks) return false;
  v1::ControlResponse response;
  response.set_completed_sequence(search.sequence - 1);
  v1::TransferDecision* const decision = response.mutable_transfer();
  decision->set_transfer_id(transfer.transfer_id());
  decision->set_hash(true);
  if (Park(std::make_unique<Searching>(search))) {
    outbox_.Push(std::move(response));
  }
  return true;
}

void Session::FinishHash(Searching* searching) {
  Storage* const storage = storages_.Find(searching->storage);
  if (!searching->hash_said) {
    // It may come with the bytes.
    return DecideTransfer(searching->sequence, searching->storage, storage,
                          searching->birth, searching->transfer, nullptr);
  }
  searching->transfer.set_hash_follows(false);
  InstallTransfer(searching->sequence, searching->storage, storage,
                  searching->birth, searching->transfer);
}

bool Session::StartLoad(const Searching& search) {
  ContentStore* const store = environment_.store;
  const ContentHash hash = HashOf(search.transfer);
  const uint64_t bytes = search.transfer.size_bytes();
  if (store == nullptr || !store->Has(tenant_, hash, bytes)) return false;
  DeviceMemory* const memory = environment_.memory;
  absl::StatusOr<Reservation> reservation =
      memory->Reserve(MemoryClass::kTransfers, tenant_, bytes);
  if (!reservation.ok()) return false;
  absl::StatusOr<std::shared_ptr<Buffer>> buffer =
      memory->device()->AllocateUnset(bytes);
  if (!buffer.ok()) return false;
  auto searching = std::make_unique<Searching>(search);
  searching->reservation =
      std::make_shared<Reservation>(*std::move(reservation));
  searching->buffer =
      DeviceMemory::Track(*std::move(buffer), searching->reservation);
  searching->load =
      store->Load(tenant_, hash, searching->buffer, callbacks_.runnable);
  if (searching->load == nullptr) return false;
  Park(std::move(searching));
  return true;
}

std::shared_ptr<Buffer> Session::FinishLoad(Searching* searching) {
  if (!searching->load->ok()) {
    // It may still be written to; the reservation goes with it.
    searching->buffer = nullptr;
    searching->reservation = nullptr;
    return nullptr;
  }
  searching->reservation->MoveTo(MemoryClass::kContents);
  std::shared_ptr<Buffer> buffer = environment_.contents->Insert(
      tenant_, HashOf(searching->transfer), std::move(searching->buffer),
      environment_.clock->Monotonic() - searching->started,
      searching->transfer.sample());
  environment_.contents_changed();
  return buffer;
}

bool Session::AskForProof(const Searching& search) {
  ContentCache* const contents = environment_.contents;
  const v1::Transfer& transfer = search.transfer;
  if (!transfer.provable() || !contents->Shares(tenant_)) return false;
  auto searching = std::make_unique<Searching>(search);
  searching->challenge = environment_.proofs->Issue(
      tenant_, transfer.size_bytes(),
      contents->FindShared(tenant_, HashOf(transfer), transfer.size_bytes()),
      callbacks_.runnable, callbacks_.charge);
  if (searching->challenge == nullptr) return false;
  v1::ControlResponse response;
  response.set_completed_sequence(search.sequence - 1);
  v1::TransferDecision* const decision = response.mutable_transfer();
  decision->set_transfer_id(transfer.transfer_id());
  decision->mutable_prove()->set_key(searching->challenge->key());
  if (Park(std::move(searching))) outbox_.Push(std::move(response));
  return true;
}

void Session::ReceiveProof(v1::TransferProof proof) {
  std::shared_ptr<ContentChallenge> challenge;
  absl::Status violation;
  {
    MutexLock lock(&mu_);
    if (failed_ || dropped_ || cancelling_) return;
    if (!challenged_.Contains(proof.transfer_id())) {
      violation =
          Violation(absl::StrCat("a proof for transfer ", proof.transfer_id(),
                                 ", which nobody asked for"));
    } else if (proof.mac().size() != kContentMacBytes) {
      violation =
          Violation(absl::StrCat("a proof of ", proof.mac().size(),
                                 " bytes for transfer ", proof.transfer_id()));
    } else if (searching_ != nullptr &&
               searching_->transfer.transfer_id() == proof.transfer_id()) {
      challenge = searching_->challenge;
    }
  }
  if (!violation.ok()) return Fail(std::move(violation));
  // Otherwise it came too late, or twice.
  if (challenge != nullptr) {
    challenge->Answer(std::move(*proof.mutable_mac()));
  }
}

std::shared_ptr<Buffer> Session::FinishProof(Searching* searching) {
  const std::shared_ptr<Buffer> held = searching->challenge->Take();
  searching->challenge = nullptr;
  if (held == nullptr) return nullptr;
  const ContentHash hash = HashOf(searching->transfer);
  environment_.proofs->CountProven();
  environment_.contents->Adopt(tenant_, hash, held);
  KeepOnDisk(hash, held->size_bytes(), /*found=*/false);
  environment_.contents_changed();
  return held;
}

void Session::FinishSearch(Searching* searching) {
  if (searching->awaits_hash()) return FinishHash(searching);
  std::shared_ptr<Buffer> held;
  if (searching->load == nullptr) {
    held = FinishProof(searching);
  } else {
    held = FinishLoad(searching);
    searching->load = nullptr;
    // Somebody else may have what the disk has not.
    if (held == nullptr && AskForProof(*searching)) return;
  }
  DecideTransfer(searching->sequence, searching->storage,
                 storages_.Find(searching->storage), searching->birth,
                 searching->transfer, std::move(held));
}

}  // namespace djinn::worker
