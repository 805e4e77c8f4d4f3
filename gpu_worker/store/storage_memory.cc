#include "gpu_worker/store/storage_memory.h"

#include "common/base/status_macros.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/device/operator_library.h"

namespace djinn::worker {

absl::StatusOr<std::shared_ptr<Buffer>> StorageMemory::Allocate(
    Storage* storage, uint64_t bytes, const Buffer* prefix) {
  QuotaChange change(quota_, &storage->quota);
  DJINN_RETURN_IF_ERROR(change.To(bytes, storage->quota.own_class()));
  absl::StatusOr<std::shared_ptr<Buffer>> buffer =
      prefix == nullptr ? memory_->Allocate(tenant_, bytes)
                        : memory_->Clone(tenant_, *prefix, bytes);
  if (buffer.ok()) change.Keep();
  return buffer;
}

absl::Status StorageMemory::Install(const std::string& bytes,
                                    Storage* storage) {
  if (storage->generator) {
    DJINN_RETURN_IF_ERROR(
        memory_->device()->operators()->CheckGenerator(bytes));
  }
  DJINN_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> buffer,
                         Allocate(storage, bytes.size()));
  DJINN_RETURN_IF_ERROR(memory_->device()->Write(buffer.get(), 0, bytes));
  if (storage->generator) storage->quota.MoveTo(StorageClass::kGenerator);
  storage->buffer = std::move(buffer);
  storage->size_bytes = bytes.size();
  storage->size_known = true;
  storage->poison = nullptr;
  return absl::OkStatus();
}

absl::Status StorageMemory::Seed(uint64_t seed, Storage* storage) {
  storage->generator = true;
  OperatorLibrary* const operators = memory_->device()->operators();
  DJINN_ASSIGN_OR_RETURN(const uint64_t bytes, operators->GeneratorBytes());
  QuotaChange change(quota_, &storage->quota);
  DJINN_RETURN_IF_ERROR(change.To(bytes, StorageClass::kGenerator));
  absl::StatusOr<Reservation> reservation =
      memory_->Reserve(MemoryClass::kStorages, tenant_, bytes);
  absl::StatusOr<std::shared_ptr<Buffer>> state =
      reservation.ok() ? operators->SeedGenerator(seed) : reservation.status();
  if (!state.ok()) return state.status();
  change.Keep();
  storage->buffer = DeviceMemory::Track(
      *std::move(state),
      std::make_shared<Reservation>(*std::move(reservation)));
  storage->size_bytes = bytes;
  storage->poison = nullptr;
  return absl::OkStatus();
}

}  // namespace djinn::worker
