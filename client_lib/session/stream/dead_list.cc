#include "client_lib/session/stream/dead_list.h"

namespace djinn {

bool DeadList::Add(RemoteStorage* storage) {
  storage->dead_.store(true, std::memory_order_release);
  RemoteStorage* head = head_.load(std::memory_order_relaxed);
  storage->AddReference();
  do {
    if (head == closed()) {
      storage->DropReference();
      return false;
    }
    storage->next_dead_ = head;
  } while (!head_.compare_exchange_weak(
      head, storage, std::memory_order_release, std::memory_order_relaxed));
  // An unsent run that names the storage frees it.
  if (storage->unsent_uses_.load(std::memory_order_relaxed) != 0) return false;
  const uint64_t bytes = storage->size_bytes();
  const uint64_t before =
      waiting_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  const bool many_bytes = before < kManyBytes && before + bytes >= kManyBytes;
  const bool many_storages =
      waiting_storages_.fetch_add(1, std::memory_order_relaxed) + 1 ==
      kManyStorages;
  return many_bytes || many_storages;
}

uint64_t DeadList::Collect(std::vector<uint64_t>* free) {
  if (head_.load(std::memory_order_relaxed) == nullptr) return 0;
  uint64_t bytes = 0;
  waiting_storages_.store(0, std::memory_order_relaxed);
  waiting_bytes_.store(0, std::memory_order_relaxed);
  Detach(nullptr, [&](RemoteStorage* storage) {
    if (storage->unsent_uses_.load(std::memory_order_relaxed) != 0) return;
    if (!storage->known_to_worker_) return;
    storage->known_to_worker_ = false;
    free->push_back(storage->id());
    bytes += storage->size_bytes();
  });
  return bytes;
}

void DeadList::Close() {
  Detach(closed(), [](RemoteStorage*) {});
}

template <typename Visitor>
void DeadList::Detach(RemoteStorage* head, Visitor visit) {
  RemoteStorage* next = head_.exchange(head, std::memory_order_acquire);
  if (next == closed()) {
    head_.store(next, std::memory_order_relaxed);
    return;
  }
  while (next != nullptr) {
    const StoragePtr storage(next);
    next->DropReference();  // the list's
    next = storage->next_dead_;
    visit(storage.get());
  }
}

}  // namespace djinn
