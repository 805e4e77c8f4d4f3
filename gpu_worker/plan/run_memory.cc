#include "gpu_worker/plan/run_memory.h"

#include <variant>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/saturating.h"
#include "common/base/status_macros.h"

namespace djinn::worker {

RootError RunMemory::CheckExtents() {
  slots_.resize(run_.bindings.size());
  for (size_t i = 0; i < run_.bindings.size(); ++i) {
    const BoundRun::Binding& binding = run_.bindings[i];
    Storage* storage = binding.existing;
    slots_[i].storage = storage;
    if (storage == nullptr) continue;
    const uint64_t required = plan_.facts().slots[i].required_bytes;
    if (required <= storage->size_bytes) continue;
    slots_[i].extents_fit = false;
    if (storage->poison != nullptr) continue;
    return context_.errors->MakePoison(
        MakeError(absl::StatusCode::kInvalidArgument, "INVALID_VIEW",
                  absl::StrCat("a view of slot ", i, " needs ", required,
                               " bytes, but storage ", binding.storage, " has ",
                               storage->size_bytes),
                  {{"slot", absl::StrCat(i)},
                   {"storage", absl::StrCat(binding.storage)}}),
        {.sequence = context_.sequence});
  }
  return nullptr;
}

void RunMemory::Bind() {
  caches_ = plan_.KindTo(context_.tenant).caches;
  buffers_.resize(slots_.size());
  temporaries_.resize(run_.final_slots.size());
  for (const uint32_t slot : run_.final_slots) {
    slots_[slot].temporary = slots_[slot].storage == nullptr;
  }
  size_t next_temporary = 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (slot.storage != nullptr) {
      buffers_[i] = std::move(slot.storage->buffer);
      QuotaShare& quota = slot.storage->quota;
      // Passes the limit if need be, because the storage exists already.
      if (quota.storage_class() == StorageClass::kOwn) {
        quota.MoveTo(ClassOf(static_cast<uint32_t>(i)));
      }
      continue;
    }
    const uint64_t id = run_.bindings[i].storage;
    if (slot.temporary) {
      context_.storages->MarkUsed(id);
      slot.storage = &temporaries_[next_temporary++];
    } else {
      slot.storage = context_.storages->Create(id);
    }
    slot.storage->size_bytes = plan_.created_bytes()[i];
    slot.extents_fit =
        plan_.facts().slots[i].required_bytes <= slot.storage->size_bytes;
  }
  ReserveRoom();
}

void RunMemory::ReserveRoom() {
  if (lifetimes_.peak_bytes == 0) return;
  // The peak counts values that outlive the run, so caches are part of it.
  uint64_t cache_bytes = 0;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (run_.bindings[i].existing == nullptr &&
        ClassOf(i) == StorageClass::kCache) {
      cache_bytes = SaturatingSum(cache_bytes, plan_.created_bytes()[i]);
    }
  }
  if (cache_bytes > lifetimes_.peak_bytes) return;  // exceeds any memory
  absl::StatusOr<QuotaShare> quota =
      context_.quota->Reserve(lifetimes_.peak_bytes - cache_bytes);
  if (!quota.ok()) return;
  absl::StatusOr<QuotaShare> caches;
  if (cache_bytes > 0) {
    caches = context_.quota->Reserve(cache_bytes, StorageClass::kCache);
    if (!caches.ok()) return;
  }
  absl::StatusOr<Reservation> memory = context_.memory->Reserve(
      MemoryClass::kStorages, context_.tenant, lifetimes_.peak_bytes);
  if (!memory.ok()) return;
  room_.quota = *std::move(quota);
  if (cache_bytes > 0) room_caches_ = *std::move(caches);
  room_.memory = *std::move(memory);
  paid_ = true;
}

void RunMemory::Unbind() {
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].temporary) continue;
    const BoundRun::Binding& binding = run_.bindings[i];
    // The storage was created, but every node that would have filled it was
    // skipped.
    if (plan_.graph().slots[i].kind == srg::Slot::Kind::kCreated &&
        buffers_[i] == nullptr && slots_[i].storage->poison == nullptr) {
      if (absl::Status status = Materialize(i); !status.ok()) {
        slots_[i].storage->poison = context_.errors->MakePoison(
            status, {.sequence = context_.sequence});
      }
    }
    if (slots_[i].in_room && buffers_[i] != nullptr) TakeFromRoom(i);
    slots_[i].storage->buffer = std::move(buffers_[i]);
    slots_[i].storage->version = binding.base_version + binding.writes;
  }
  for (const uint32_t slot : run_.final_slots) {
    if (slots_[slot].temporary) continue;
    context_.storages->Remove(run_.bindings[slot].storage);
  }
}

absl::Status RunMemory::Fill(uint32_t slot) {
  Storage* const storage = slots_[slot].storage;
  if (IsPaid(slot)) {
    DJINN_ASSIGN_OR_RETURN(
        std::shared_ptr<Buffer> buffer, WithRoom(storage->size_bytes, [&] {
          return context_.memory->device()->Allocate(storage->size_bytes);
        }));
    Own(slot, std::move(buffer), storage->size_bytes);
    return absl::OkStatus();
  }
  QuotaChange change(context_.quota, &storage->quota);
  DJINN_RETURN_IF_ERROR(change.To(storage->size_bytes, ClassOf(slot)));
  DJINN_ASSIGN_OR_RETURN(buffers_[slot], WithRoom(storage->size_bytes, [&] {
                           return context_.memory->Allocate(
                               context_.tenant, storage->size_bytes);
                         }));
  change.Keep();
  return absl::OkStatus();
}

absl::Status RunMemory::CopyForWrite(uint32_t slot) {
  QuotaShare& quota = slots_[slot].storage->quota;
  const StorageClass shared = quota.storage_class();
  if (shared != StorageClass::kOwn && shared != StorageClass::kCache) {
    DJINN_RETURN_IF_ERROR(
        context_.quota->Resize(&quota, quota.bytes(), ClassOf(slot)));
  }
  const uint64_t bytes = buffers_[slot]->size_bytes();
  absl::StatusOr<std::shared_ptr<Buffer>> copy = WithRoom(bytes, [&] {
    return context_.memory->Clone(context_.tenant, *buffers_[slot], bytes);
  });
  if (!copy.ok()) {
    quota.MoveTo(shared);
    return copy.status();
  }
  buffers_[slot] = *std::move(copy);
  if (std::exchange(slots_[slot].in_room, false)) {
    quota = TakeQuota(slot, buffers_[slot]->size_bytes());
  }
  ++context_.counters->write_copies;
  return absl::OkStatus();
}

void RunMemory::TakeFromRoom(uint32_t slot) {
  Storage* const storage = slots_[slot].storage;
  storage->quota = TakeQuota(slot, storage->size_bytes);
  buffers_[slot] = DeviceMemory::Track(
      std::move(buffers_[slot]),
      std::make_shared<Reservation>(room_.memory->Split(storage->size_bytes)));
}

absl::Status RunMemory::Reserve(const srg::Node& call) {
  rooms_.clear();
  rooms_.resize(call.results.size());
  for (size_t i = 0; i < call.results.size(); ++i) {
    Room& room = rooms_[i];
    if (const auto* unknown =
            std::get_if<srg::UnknownResult>(&call.results[i])) {
      room.storage_class = ClassOf(unknown->slot);
    }
    const auto* view = std::get_if<srg::TensorView>(&call.results[i]);
    if (view == nullptr) continue;
    room.storage_class = ClassOf(view->slot);
    if (IsPaid(view->slot)) continue;
    const uint64_t bytes = plan_.created_bytes()[view->slot];
    DJINN_ASSIGN_OR_RETURN(room.quota,
                           context_.quota->Reserve(bytes, room.storage_class));
    DJINN_ASSIGN_OR_RETURN(room.memory, WithRoom(bytes, [&] {
                             return context_.memory->Reserve(
                                 MemoryClass::kStorages, context_.tenant,
                                 bytes);
                           }));
  }
  return absl::OkStatus();
}

bool RunMemory::TakePaid(uint32_t slot, std::shared_ptr<Buffer>* result) {
  const uint64_t bytes = (*result)->size_bytes();
  if (!IsPaid(slot) || bytes > plan_.created_bytes()[slot]) return false;
  Own(slot, std::move(*result), bytes);
  return true;
}

absl::Status RunMemory::Pay(size_t result, uint64_t bytes) {
  Room& room = rooms_[result];
  DJINN_RETURN_IF_ERROR(
      context_.quota->Resize(&room.quota, bytes, room.storage_class));
  if (room.memory.has_value()) return room.memory->Resize(bytes);
  DJINN_ASSIGN_OR_RETURN(
      room.memory,
      context_.memory->Reserve(MemoryClass::kStorages, context_.tenant, bytes));
  return absl::OkStatus();
}

void RunMemory::Take(size_t result, uint32_t slot,
                     std::shared_ptr<Buffer> buffer) {
  Room room = std::exchange(rooms_[result], Room());
  Storage* const storage = slots_[slot].storage;
  storage->size_bytes = buffer->size_bytes();
  storage->quota = std::move(room.quota);
  buffers_[slot] = DeviceMemory::Track(
      std::move(buffer),
      std::make_shared<Reservation>(*std::move(room.memory)));
}

void RunMemory::Drop(const srg::Node& call) {
  rooms_.clear();
  for (const srg::Result& result : call.results) {
    uint32_t slot;
    if (const auto* view = std::get_if<srg::TensorView>(&result)) {
      slot = view->slot;
    } else if (const auto* unknown = std::get_if<srg::UnknownResult>(&result)) {
      slot = unknown->slot;
    } else {
      continue;
    }
    buffers_[slot].reset();
    slots_[slot].in_room = false;
    slots_[slot].storage->quota.Release();
  }
}

bool RunMemory::ListKept(std::vector<KeptResult>* kept) const {
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    const uint64_t bytes = plan_.created_bytes()[i];
    if (slot.storage->poison != nullptr || !slot.extents_fit ||
        (bytes > 0 && !paid_)) {
      return false;
    }
    if (run_.bindings[i].existing == nullptr && !slot.temporary) {
      kept->push_back({i, bytes});
    }
  }
  return true;
}

void RunMemory::Own(uint32_t slot, std::shared_ptr<Buffer> buffer,
                    uint64_t bytes) {
  slots_[slot].storage->size_bytes = bytes;
  slots_[slot].in_room = !slots_[slot].temporary && IsPaid(slot);
  buffers_[slot] = std::move(buffer);
}

absl::Span<const std::pair<uint32_t, uint32_t>> RunMemory::EndsUpTo(
    uint32_t node) const {
  const auto& ends = lifetimes_.ends;
  size_t end = next_end_;
  while (end < ends.size() && ends[end].first <= node) ++end;
  return absl::MakeConstSpan(ends).subspan(next_end_, end - next_end_);
}

void RunMemory::FreeUpTo(uint32_t node) {
  const auto& ends = lifetimes_.ends;
  while (next_end_ < ends.size() && ends[next_end_].first <= node) {
    const uint32_t slot = ends[next_end_++].second;
    buffers_[slot].reset();
    slots_[slot].storage->quota.Release();
  }
}

}  // namespace djinn::worker
