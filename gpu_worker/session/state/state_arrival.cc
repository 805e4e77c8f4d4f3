#include "gpu_worker/session/state/state_arrival.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/hash/hash.h"
#include "gpu_worker/pull/offer_table.h"
#include "gpu_worker/pull/peer_call.h"
#include "gpu_worker/store/content_cache.h"
#include "gpu_worker/store/content_store.h"
#include "gpu_worker/store/device_memory.h"

namespace djinn::worker {

StateArrival::StateArrival(const SessionEnvironment* environment,
                           std::string tenant, Into into, v1::Pull source)
    : environment_(*environment),
      tenant_(std::move(tenant)),
      into_(into),
      source_(std::move(source)) {}

StateArrival::Next StateArrival::Begin() {
  if (source_.size_bytes() == 0) {
    state_.emplace();
    return Place();
  }
  v1::Pull pull = source_;
  pull.set_ticket(OfferTable::StateTicket(pull.ticket()));
  // The client announces the size of the list.
  DJINN_ASSIGN_OR_RETURN(list_, into_.quota->Reserve(pull.size_bytes()));
  return pull;
}

StateArrival::Next StateArrival::Take(std::shared_ptr<Buffer> buffer,
                                      Reservation* reservation) {
  if (reservation != nullptr) moved_bytes_ += buffer->size_bytes();
  DJINN_RETURN_IF_ERROR(state_.has_value()
                            ? TakeValue(std::move(buffer), reservation)
                            : TakeList(std::move(buffer)));
  return Place();
}

absl::Status StateArrival::TakeList(std::shared_ptr<Buffer> buffer) {
  DJINN_ASSIGN_OR_RETURN(
      const SharedBytes list,
      environment_.memory->device()->HostBytes(std::move(buffer)));
  if (!state_.emplace().ParseFromArray(list.bytes.data(),
                                       static_cast<int>(list.bytes.size()))) {
    return BrokenByPeer("a list of storages that is none");
  }
  list_.Release();
  for (const v1::ErrorDetail& error : state_->errors()) {
    errors_.push_back(std::make_shared<v1::ErrorDetail>(error));
  }
  return absl::OkStatus();
}

absl::Status StateArrival::TakeValue(std::shared_ptr<Buffer> buffer,
                                     Reservation* reservation) {
  const v1::StorageState& state = state_->storages(next_++);
  Storage* const storage = into_.storages->Find(state.storage());
  if (!state.has_content()) {
    if (reservation != nullptr) reservation->MoveTo(MemoryClass::kStorages);
    storage->buffer = std::move(buffer);
    return absl::OkStatus();
  }
  DJINN_ASSIGN_OR_RETURN(const SharedBytes bytes,
                         environment_.memory->device()->HostBytes(buffer));
  const ContentHash hash = HashContent(bytes.bytes.data(), bytes.bytes.size());
  if (!(hash ==
        ContentHash{state.content().hash_high(), state.content().hash_low()})) {
    return MakeError(absl::StatusCode::kDataLoss, "CONTENT_MISMATCH",
                     absl::StrCat("the bytes of storage ", state.storage(),
                                  " do not have the hash they were sent with"));
  }
  if (reservation != nullptr) reservation->MoveTo(MemoryClass::kContents);
  storage->buffer =
      environment_.contents->Insert(tenant_, hash, std::move(buffer),
                                    environment_.clock->Monotonic() - started_);
  // A full cache does not keep the buffer, which then is the storage's own.
  if (IsSoleOwner(storage->buffer)) {
    storage->quota.MoveTo(StorageClass::kOwn);
  } else if (environment_.store != nullptr) {
    environment_.store->Keep(tenant_, hash, state.size_bytes(),
                             /*found=*/false);
  }
  return absl::OkStatus();
}

StateArrival::Next StateArrival::Place() {
  for (; next_ < state_->storages_size(); ++next_) {
    const v1::StorageState& state = state_->storages(next_);
    DJINN_ASSIGN_OR_RETURN(const bool fetched, PlaceStorage(state));
    if (!fetched) continue;
    v1::Pull pull = source_;
    pull.set_ticket(state.ticket());
    pull.set_size_bytes(state.size_bytes());
    started_ = environment_.clock->Monotonic();
    return pull;
  }
  DJINN_RETURN_IF_ERROR(PlaceModels());
  return std::nullopt;
}

absl::Status StateArrival::PlaceModels() {
  for (const v1::ModelState& model : state_->models()) {
    if (!into_.models->Adopt(model)) {
      return BrokenByPeer(absl::StrCat("model ", model.model_id(), " of ",
                                       state_->models_size()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> StateArrival::PlaceStorage(const v1::StorageState& state) {
  if (state.storage() == 0 || state.version() == 0 ||
      into_.storages->Used(state.storage())) {
    return BrokenByPeer(absl::StrCat("storage ", state.storage(),
                                     " at version ", state.version()));
  }
  Storage* const storage = into_.storages->Create(state.storage());
  storage->version = state.version();
  storage->size_bytes = state.size_bytes();
  storage->size_known = !state.size_unknown();
  storage->generator = state.generator();
  // Sets the class before the bytes are charged.
  if (state.cache()) storage->quota.MoveTo(StorageClass::kCache);
  // A generator's state must be in the list, where it is checked.
  if (storage->generator && !state.has_inline_value() && !state.has_error()) {
    return BrokenByPeer(absl::StrCat("a generator, storage ", state.storage(),
                                     ", whose state is not in the list"));
  }
  switch (state.value_case()) {
    case v1::StorageState::kError:
      if (state.error() >= errors_.size()) {
        return BrokenByPeer("a root error that it did not name");
      }
      storage->poison = errors_[state.error()];
      return false;
    case v1::StorageState::kInlineValue:
      DJINN_RETURN_IF_ERROR(
          into_.memory->Install(state.inline_value(), storage));
      return false;
    case v1::StorageState::kTicket:
      return PlaceOffered(state, storage);
    case v1::StorageState::kSameAs: {
      const Storage* const other = into_.storages->Find(state.same_as());
      if (other == nullptr || other == storage || other->buffer == nullptr) {
        return BrokenByPeer(absl::StrCat("storage ", state.storage(),
                                         " shares with ", state.same_as()));
      }
      // A cache counts as one, whatever it shares its bytes with.
      const StorageClass storage_class =
          other->quota.storage_class() == StorageClass::kContent
              ? StorageClass::kContent
              : storage->quota.own_class();
      DJINN_RETURN_IF_ERROR(into_.quota->Resize(
          &storage->quota, other->buffer->size_bytes(), storage_class));
      storage->buffer = other->buffer;
      storage->size_bytes = other->buffer->size_bytes();
      return false;
    }
    case v1::StorageState::VALUE_NOT_SET:
      return false;
  }
  return false;
}

absl::StatusOr<bool> StateArrival::PlaceOffered(const v1::StorageState& state,
                                                Storage* storage) {
  if (state.size_bytes() == 0) {
    return BrokenByPeer(absl::StrCat("an offer of storage ", state.storage(),
                                     " without bytes"));
  }
  DJINN_RETURN_IF_ERROR(into_.quota->Resize(&storage->quota, state.size_bytes(),
                                            state.has_content()
                                                ? StorageClass::kContent
                                                : storage->quota.own_class()));
  if (state.has_content()) {
    storage->buffer = environment_.contents->Find(
        tenant_, {state.content().hash_high(), state.content().hash_low()},
        state.size_bytes());
  }
  if (storage->buffer != nullptr) {
    held_bytes_ += state.size_bytes();
    return false;
  }
  return true;
}

}  // namespace djinn::worker
