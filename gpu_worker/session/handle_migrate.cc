// Migrate: a session that leaves for another worker offers all that it holds;
// one that enters fetches that, one value after the other.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/error.h"
#include "common/status_macros.h"
#include "gpu_worker/cache/content_store.h"
#include "gpu_worker/session/session.h"
#include "gpu_worker/session/violation.h"

namespace djinn::worker {
namespace {

// Values that go into the list itself: a call of their own would cost more. As
// in session_state.proto, and how many bytes of them in all.
constexpr uint64_t kInlineBytes = 8192;
constexpr uint64_t kMaxInlined = 4 << 20;

absl::Status Broken(absl::string_view what) {
  return MakeError(absl::StatusCode::kDataLoss, "PROTOCOL_VIOLATION",
                   absl::StrCat("the other worker broke the protocol: ", what));
}

}  // namespace

absl::Status Session::HandleMigrate(uint64_t sequence,
                                    const v1::Migrate& migrate) {
  switch (migrate.step_case()) {
    case v1::Migrate::kLeave:
      return HandleLeave(sequence, migrate.leave());
    case v1::Migrate::kStay:
      return HandleStay();
    case v1::Migrate::kEnter:
      return HandleEnter(sequence, migrate.enter());
    case v1::Migrate::STEP_NOT_SET:
      break;
  }
  return Violation("a migration without a step");
}

absl::Status Session::HandleLeave(uint64_t sequence, const v1::Leave& leave) {
  DJINN_RETURN_IF_ERROR(CheckTicket("leaves", leave.ticket()));
  v1::ControlResponse response;
  v1::Left* const left = response.mutable_left();
  left->set_sequence(sequence);
  absl::StatusOr<uint64_t> bytes = MakeError(
      absl::StatusCode::kUnavailable, "OFFERS_PENDING",
      "other virtual devices have yet to fetch what this one offered them");
  if (!environment_.offers->Pending(session_id_, this)) {
    bytes = OfferState(OfferTable::StateTicket(leave.ticket()));
    leaving_ = bytes.ok();
    // What was offered before the error.
    if (!leaving_) environment_.offers->Leave(session_id_, this);
  }
  if (bytes.ok()) {
    left->set_state_bytes(*bytes);
    *left->mutable_use() = UseSoFar();
  } else {
    *left->mutable_refused() =
        *errors_.Make(bytes.status(), {.sequence = sequence});
  }
  Reply(std::move(response));
  return absl::OkStatus();
}

absl::Status Session::HandleStay() {
  if (!leaving_) return Violation("stays, and did not leave");
  leaving_ = false;
  environment_.offers->Leave(session_id_, this);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Session::OfferState(const std::string& ticket) {
  DJINN_ASSIGN_OR_RETURN(v1::SessionState state, DescribeStorages());
  models_.Describe(&state);
  const std::string bytes = state.SerializeAsString();
  // Nothing to fetch.
  if (bytes.empty()) return 0;
  DeviceMemory* const memory = environment_.memory;
  DJINN_ASSIGN_OR_RETURN(
      Reservation reservation,
      memory->Reserve(MemoryClass::kTransfers, tenant_, bytes.size()));
  DJINN_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> buffer,
                         memory->device()->AllocateUnset(bytes.size()));
  DJINN_RETURN_IF_ERROR(memory->device()->Write(buffer.get(), 0, bytes));
  auto offered = std::make_shared<OfferedBytes>();
  offered->size_bytes = bytes.size();
  offered->buffer = DeviceMemory::Track(
      std::move(buffer), std::make_shared<Reservation>(std::move(reservation)));
  DJINN_RETURN_IF_ERROR(
      environment_.offers->Add(session_id_, this, ticket, std::move(offered)));
  return bytes.size();
}

absl::StatusOr<v1::SessionState> Session::DescribeStorages() {
  v1::SessionState list;
  const absl::flat_hash_map<const Buffer*, ContentHash> names =
      environment_.contents->Names(tenant_);
  absl::flat_hash_map<const Buffer*, uint64_t> first;  // storage with it
  absl::flat_hash_map<const v1::ErrorDetail*, uint32_t> errors;
  uint64_t inlined = 0;
  for (const uint64_t id : storages_.ids()) {
    const Storage& storage = *storages_.Find(id);
    v1::StorageState& state = *list.add_storages();
    state.set_storage(id);
    state.set_version(storage.version);
    state.set_size_bytes(storage.size_bytes);
    state.set_size_unknown(!storage.size_known);
    state.set_generator(storage.generator);
    if (storage.poison != nullptr) {
      const auto [known, is_new] =
          errors.emplace(storage.poison.get(), list.errors_size());
      if (is_new) *list.add_errors() = *storage.poison;
      state.set_error(known->second);
      continue;
    }
    if (storage.buffer == nullptr) continue;
    const uint64_t bytes = storage.buffer->size_bytes();
    state.set_size_bytes(bytes);
    const auto [sharer, is_first] = first.emplace(storage.buffer.get(), id);
    if (!is_first) {
      state.set_same_as(sharer->second);
      continue;
    }
    const auto name = names.find(storage.buffer.get());
    if (storage.generator || bytes == 0 ||
        (bytes <= kInlineBytes && inlined + bytes <= kMaxInlined &&
         name == names.end())) {
      DJINN_ASSIGN_OR_RETURN(
          const SharedBytes value,
          environment_.memory->device()->HostBytes(storage.buffer));
      state.set_inline_value(value.bytes.data(), value.bytes.size());
      inlined += bytes;
      continue;
    }
    if (name != names.end()) {
      state.mutable_content()->set_hash_high(name->second.high);
      state.mutable_content()->set_hash_low(name->second.low);
    }
    state.set_ticket(environment_.random->Bytes(OfferTable::kTicketBytes));
    auto offered = std::make_shared<OfferedBytes>();
    offered->buffer = storage.buffer;
    offered->size_bytes = bytes;
    DJINN_RETURN_IF_ERROR(environment_.offers->Add(
        session_id_, this, state.ticket(), std::move(offered)));
  }
  return list;
}

absl::Status Session::HandleEnter(uint64_t sequence, const v1::Enter& enter) {
  if (sequence != 1) return Violation("enters in the middle of a session");
  const bool empty = enter.state().size_bytes() == 0;
  if (!empty)
    DJINN_RETURN_IF_ERROR(CheckTicket("enters", enter.state().ticket()));
  entering_ = std::make_unique<Entering>();
  entering_->sequence = sequence;
  entering_->source = enter.state();
  if (empty) {
    entering_->state.emplace();
    GoOnEntering(nullptr);
  } else if (const absl::Status status = FetchState(); !status.ok()) {
    EndEntering(status);
  }
  return absl::OkStatus();
}

absl::Status Session::FetchState() {
  v1::Pull pull = entering_->source;
  pull.set_ticket(OfferTable::StateTicket(pull.ticket()));
  // Its size is what the client says.
  DJINN_ASSIGN_OR_RETURN(entering_->list, quota_.Reserve(pull.size_bytes()));
  DJINN_ASSIGN_OR_RETURN(std::unique_ptr<Pulling> pulling,
                         PreparePull(entering_->sequence, pull));
  StartPull(pull, std::move(pulling));
  return absl::OkStatus();
}

void Session::GoOnEntering(Pulling* pulling) {
  if (pulling != nullptr) {
    const absl::Status taken = TakeFetched(pulling);
    if (!taken.ok()) return EndEntering(taken);
  }
  const absl::StatusOr<bool> fetching = PlaceStorages();
  if (!fetching.ok()) return EndEntering(fetching.status());
  if (!*fetching) EndEntering(PlaceModels());
}

void Session::EndEntering(const absl::Status& status) {
  v1::ControlResponse response;
  v1::Entered* const entered = response.mutable_entered();
  entered->set_sequence(entering_->sequence);
  if (status.ok()) {
    entered->set_storage_count(storages_.size());
    entered->set_moved_bytes(entering_->moved_bytes);
    entered->set_held_bytes(entering_->held_bytes);
  } else {
    storages_.Clear();
    models_.Clear();
    *entered->mutable_refused() =
        *errors_.Make(status, {.sequence = entering_->sequence});
  }
  entering_ = nullptr;
  environment_.contents_changed();
  Reply(std::move(response));
}

absl::Status Session::TakeFetched(Pulling* pulling) {
  environment_.pulls->Cancel(pulling->incoming.get());
  IncomingPull::Outcome outcome = pulling->incoming->Take();
  if (outcome.buffer == nullptr) {
    return outcome.poison.has_value()
               ? Broken("an error in the place of a value")
               : PullFailed(pulling->worker_id, outcome.failure);
  }
  TellPace(*pulling);
  const uint64_t bytes = outcome.buffer->size_bytes();
  if (pulling->reservation != nullptr) {
    entering_->moved_bytes += bytes;
    traffic_->Add(Traffic::kMigratedIn, bytes);
  }
  if (entering_->state.has_value()) {
    return PlaceFetched(std::move(outcome.buffer), pulling->reservation.get());
  }
  DJINN_ASSIGN_OR_RETURN(
      const SharedBytes list,
      environment_.memory->device()->HostBytes(std::move(outcome.buffer)));
  if (!entering_->state.emplace().ParseFromArray(
          list.bytes.data(), static_cast<int>(list.bytes.size()))) {
    return Broken("a list of storages that is none");
  }
  entering_->list.Release();
  for (const v1::ErrorDetail& error : entering_->state->errors()) {
    entering_->errors.push_back(std::make_shared<v1::ErrorDetail>(error));
  }
  return absl::OkStatus();
}

absl::Status Session::PlaceFetched(std::shared_ptr<Buffer> buffer,
                                   Reservation* reservation) {
  const v1::StorageState& state = entering_->state->storages(entering_->next++);
  Storage* const storage = storages_.Find(state.storage());
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
  storage->buffer = environment_.contents->Insert(
      tenant_, hash, std::move(buffer),
      environment_.clock->Monotonic() - entering_->started);
  // A full cache keeps nothing more.
  if (IsSoleOwner(storage->buffer)) {
    storage->quota.MoveTo(StorageClass::kOwn);
  } else if (environment_.store != nullptr) {
    environment_.store->Keep(tenant_, hash, state.size_bytes(),
                             /*found=*/false);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Session::PlaceStorages() {
  while (entering_->next < entering_->state->storages_size()) {
    DJINN_ASSIGN_OR_RETURN(
        const bool fetching,
        PlaceStorage(entering_->state->storages(entering_->next)));
    if (fetching) return true;
    ++entering_->next;
  }
  return false;
}

absl::Status Session::PlaceModels() {
  for (const v1::ModelState& model : entering_->state->models()) {
    if (!models_.Adopt(model)) {
      return Broken(absl::StrCat("model ", model.model_id(), " of ",
                                 entering_->state->models_size()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Session::PlaceStorage(const v1::StorageState& state) {
  if (state.storage() == 0 || state.version() == 0 ||
      storages_.Used(state.storage())) {
    return Broken(absl::StrCat("storage ", state.storage(), " at version ",
                               state.version()));
  }
  Storage* const storage = storages_.Create(state.storage());
  storage->version = state.version();
  storage->size_bytes = state.size_bytes();
  storage->size_known = !state.size_unknown();
  storage->generator = state.generator();
  // Where its bytes are checked.
  if (storage->generator && !state.has_inline_value() && !state.has_error()) {
    return Broken(absl::StrCat("a generator, storage ", state.storage(),
                               ", whose state is not in the list"));
  }
  switch (state.value_case()) {
    case v1::StorageState::kError:
      if (state.error() >= entering_->errors.size()) {
        return Broken("a root error that it did not name");
      }
      storage->poison = entering_->errors[state.error()];
      return false;
    case v1::StorageState::kInlineValue:
      DJINN_RETURN_IF_ERROR(InstallInline(storage, state.inline_value()));
      return false;
    case v1::StorageState::kTicket:
      return PlaceOffered(state, storage);
    case v1::StorageState::kSameAs: {
      const Storage* const other = storages_.Find(state.same_as());
      if (other == nullptr || other == storage || other->buffer == nullptr) {
        return Broken(absl::StrCat("storage ", state.storage(), " shares with ",
                                   state.same_as()));
      }
      DJINN_RETURN_IF_ERROR(quota_.Resize(&storage->quota,
                                          other->buffer->size_bytes(),
                                          other->quota.storage_class()));
      storage->buffer = other->buffer;
      storage->size_bytes = other->buffer->size_bytes();
      return false;
    }
    case v1::StorageState::VALUE_NOT_SET:
      return false;
  }
  return false;
}

absl::StatusOr<bool> Session::PlaceOffered(const v1::StorageState& state,
                                           Storage* storage) {
  if (state.size_bytes() == 0) {
    return Broken(absl::StrCat("an offer of storage ", state.storage(),
                               " without bytes"));
  }
  DJINN_RETURN_IF_ERROR(quota_.Resize(
      &storage->quota, state.size_bytes(),
      state.has_content() ? StorageClass::kContent : StorageClass::kOwn));
  if (state.has_content()) {
    storage->buffer = environment_.contents->Find(
        tenant_, {state.content().hash_high(), state.content().hash_low()},
        state.size_bytes());
  }
  if (storage->buffer != nullptr) {
    entering_->held_bytes += state.size_bytes();
    return false;
  }
  v1::Pull pull = entering_->source;
  pull.set_ticket(state.ticket());
  pull.set_size_bytes(state.size_bytes());
  DJINN_ASSIGN_OR_RETURN(std::unique_ptr<Pulling> pulling,
                         PreparePull(entering_->sequence, pull));
  entering_->started = environment_.clock->Monotonic();
  StartPull(pull, std::move(pulling));
  return true;
}

}  // namespace djinn::worker
