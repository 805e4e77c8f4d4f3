// Tracks, for each storage of a multi-worker device, which replicas have the
// newest version, on which replicas it counts against the memory, and which
// storage represents it on each replica (StorageCopies).
//
// Not thread-safe: the multi-worker device's lock guards the table and the
// copies of live storages, but not Destroy(). Nothing here waits for a worker.
#ifndef CLIENT_LIB_SESSION_MULTI_WORKER_COPY_TABLE_H_
#define CLIENT_LIB_SESSION_MULTI_WORKER_COPY_TABLE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "client_lib/session/model/remote_storage.h"
#include "client_lib/session/multi_worker/stage_plans.h"
#include "client_lib/session/multi_worker/storage_copies.h"
#include "client_lib/session/multi_worker/worker_set.h"
#include "client_lib/session/recording/virtual_device.h"

namespace djinn {

class CopyTable {
 public:
  // `owner` is the device of all storages.
  CopyTable(VirtualDevice* owner, WorkerSet* workers, StagePlans* plans)
      : owner_(owner), workers_(workers), plans_(plans) {}

  // The replica that took the last call.
  int last() const { return last_; }
  void set_last(int member) { last_ = member; }

  StorageCopies& CopiesOf(RemoteStorage* storage);
  // Returns the replica's copy, with the storage's present size. Makes the copy
  // if there is none.
  RemoteStorage* CopyAt(RemoteStorage* storage, int member);
  // Returns a new storage of a replica, which no program names.
  StoragePtr NewPart(uint64_t bytes);
  // Returns the first replica that had the newest version. If nothing wrote the
  // storage, returns the replica that took the last call.
  int HomeOf(RemoteStorage* storage);
  // Returns the additional bytes that the storage would take on the replica.
  uint64_t LackedBytes(RemoteStorage* storage, int member) {
    return CopiesOf(storage).Counts(member) ? 0 : storage->size_bytes();
  }

  // Notes that the replica has the newest version, perhaps as the first one.
  void Count(RemoteStorage* storage, int member);
  // Notes that this replica alone has the newest version now, and drops the
  // other copies.
  absl::Status Wrote(uint32_t lane, RemoteStorage* storage, int member);
  // Updates the size on every replica that the storage counts against.
  void Resized(RemoteStorage* storage, uint64_t before, uint64_t size_bytes);
  // Drops the replica's copy, which does not hold the right value.
  void DropCopy(RemoteStorage* storage, int member);
  // Makes plans no longer assign the storage to a replica.
  void ForgetKeeper(RemoteStorage* storage);

  // Frees a storage that the program has released and that no thread is about
  // to use. Any thread may call this. It takes only locks under which no other
  // lock is taken.
  static void Destroy(RemoteStorage* storage, WorkerSet* workers,
                      StagePlans* plans);

 private:
  // Gives up the replica's copy, so that another copy can be made. The copy
  // exists, but no longer counts against memory.
  void LetGo(RemoteStorage* storage, int member);
  // Frees the copies that replicas other than the owner have.
  absl::Status GiveBack(uint32_t lane, RemoteStorage* storage);

  VirtualDevice* const owner_;
  WorkerSet* const workers_;
  StagePlans* const plans_;
  int last_ = 0;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MULTI_WORKER_COPY_TABLE_H_
