#include "gpu_worker/session/state/state_offer.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/hash/hash.h"
#include "djinn/v1/session_state.pb.h"
#include "gpu_worker/store/content_cache.h"
#include "gpu_worker/store/device_memory.h"

namespace djinn::worker {
namespace {

// Largest size of a value that is put into the list itself, because a call for
// it alone would cost more (session_state.proto); and the most bytes of such
// values.
constexpr uint64_t kInlineBytes = 8192;
constexpr uint64_t kMaxInlined = 4 << 20;

absl::StatusOr<v1::SessionState> DescribeStorages(
    const SessionEnvironment& environment, const std::string& tenant,
    const StorageTable& storages, MakeOffer offer) {
  v1::SessionState list;
  const absl::flat_hash_map<const Buffer*, ContentHash> names =
      environment.contents->Names(tenant);
  // first storage that has it
  absl::flat_hash_map<const Buffer*, uint64_t> first;
  absl::flat_hash_map<const v1::ErrorDetail*, uint32_t> errors;
  uint64_t inlined = 0;
  for (const uint64_t id : storages.ids()) {
    const Storage& storage = *storages.Find(id);
    v1::StorageState& state = *list.add_storages();
    state.set_storage(id);
    state.set_version(storage.version);
    state.set_size_bytes(storage.size_bytes);
    state.set_size_unknown(!storage.size_known);
    state.set_generator(storage.generator);
    state.set_cache(storage.quota.storage_class() == StorageClass::kCache);
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
          environment.memory->device()->HostBytes(storage.buffer));
      state.set_inline_value(value.bytes.data(), value.bytes.size());
      inlined += bytes;
      continue;
    }
    if (name != names.end()) {
      state.mutable_content()->set_hash_high(name->second.high);
      state.mutable_content()->set_hash_low(name->second.low);
    }
    state.set_ticket(environment.random->Bytes(OfferTable::kTicketBytes));
    auto offered = std::make_shared<OfferedBytes>();
    offered->buffer = storage.buffer;
    offered->size_bytes = bytes;
    DJINN_RETURN_IF_ERROR(offer(state.ticket(), std::move(offered)));
  }
  return list;
}

}  // namespace

absl::StatusOr<uint64_t> OfferState(const SessionEnvironment& environment,
                                    const std::string& tenant,
                                    const StorageTable& storages,
                                    const Models& models,
                                    const std::string& ticket,
                                    MakeOffer offer) {
  DJINN_ASSIGN_OR_RETURN(
      v1::SessionState state,
      DescribeStorages(environment, tenant, storages, offer));
  models.Describe(&state);
  const std::string bytes = state.SerializeAsString();
  // An empty list need not be fetched.
  if (bytes.empty()) return 0;
  DeviceMemory* const memory = environment.memory;
  DJINN_ASSIGN_OR_RETURN(
      Reservation reservation,
      memory->Reserve(MemoryClass::kTransfers, tenant, bytes.size()));
  DJINN_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> buffer,
                         memory->device()->AllocateUnset(bytes.size()));
  DJINN_RETURN_IF_ERROR(memory->device()->Write(buffer.get(), 0, bytes));
  auto offered = std::make_shared<OfferedBytes>();
  offered->size_bytes = bytes.size();
  offered->buffer = DeviceMemory::Track(
      std::move(buffer), std::make_shared<Reservation>(std::move(reservation)));
  DJINN_RETURN_IF_ERROR(offer(ticket, std::move(offered)));
  return bytes.size();
}

}  // namespace djinn::worker
