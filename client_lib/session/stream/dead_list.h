// Passes released storages from deleters to the sender thread.
//
// Any thread may call Add() at any time, even at exit and while it holds any
// lock: Add() is lock-free and does not allocate. Only the sender calls the
// other methods.
#ifndef CLIENT_LIB_SESSION_STREAM_DEAD_LIST_H_
#define CLIENT_LIB_SESSION_STREAM_DEAD_LIST_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "client_lib/session/model/remote_storage.h"

namespace djinn {

class DeadList {
 public:
  // Storages, or bytes of them, that justify a message of their own.
  static constexpr uint64_t kManyStorages = 256;
  static constexpr uint64_t kManyBytes = 1 << 20;

  DeadList() = default;
  ~DeadList() { Close(); }
  DeadList(const DeadList&) = delete;
  DeadList& operator=(const DeadList&) = delete;

  // Marks the storage as released. Returns true if so many storages wait that
  // the caller should wake the sender.
  bool Add(RemoteStorage* storage);

  // Appends to `free` the ids of released storages that the worker knows and
  // that no unsent message names. Other storages need no id in `free`: the run
  // that names them also frees them, or the worker never knew them. Returns the
  // bytes of those that it appended.
  uint64_t Collect(std::vector<uint64_t>* free);

  // Drops the waiting storages. Add() only marks storages from now on.
  void Close();

 private:
  // Detaches the list and leaves `head` in its place.
  template <typename Visitor>
  void Detach(RemoteStorage* head, Visitor visit);
  RemoteStorage* closed() { return reinterpret_cast<RemoteStorage*>(this); }

  // A stack linked through next_dead_. Each entry owns a reference. After
  // Close(), the head equals closed().
  std::atomic<RemoteStorage*> head_{nullptr};
  std::atomic<uint64_t> waiting_storages_{0};
  std::atomic<uint64_t> waiting_bytes_{0};
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_STREAM_DEAD_LIST_H_
