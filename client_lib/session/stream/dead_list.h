// Storages whose last handle the program dropped, on their way from deleters to
// the sender thread.
//
// Add() may run in any thread at any time, at exit and under locks of others:
// it is lock-free and does not allocate. Everything else is the sender's.
#ifndef CLIENT_LIB_SESSION_STREAM_DEAD_LIST_H_
#define CLIENT_LIB_SESSION_STREAM_DEAD_LIST_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "client_lib/session/model/remote_storage.h"

namespace djinn {

class DeadList {
 public:
  // Waiting storages or bytes that are worth a message of their own.
  static constexpr uint64_t kManyStorages = 256;
  static constexpr uint64_t kManyBytes = 1 << 20;

  DeadList() = default;
  ~DeadList() { Close(); }
  DeadList(const DeadList&) = delete;
  DeadList& operator=(const DeadList&) = delete;

  // Marks the storage dead. True when many wait: the sender should be woken.
  bool Add(RemoteStorage* storage);

  // Appends to `free` the ids of storages that the worker knows and no unsent
  // message names. The rest needs nothing: it is freed by what names it.
  void Collect(std::vector<uint64_t>* free);

  // From now on Add() only marks. Drops what waits.
  void Close();

 private:
  // Detaches the list, leaving `head` in its place.
  template <typename Visitor>
  void Detach(RemoteStorage* head, Visitor visit);
  RemoteStorage* closed() { return reinterpret_cast<RemoteStorage*>(this); }

  // A stack linked through next_dead_, each entry owning a reference; closed()
  // once closed.
  std::atomic<RemoteStorage*> head_{nullptr};
  std::atomic<uint64_t> waiting_storages_{0};
  std::atomic<uint64_t> waiting_bytes_{0};
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_STREAM_DEAD_LIST_H_
