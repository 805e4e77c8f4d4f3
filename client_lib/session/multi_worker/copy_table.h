// Knows which members of a multi-worker device have the newest version of a
// storage, against whose room it counts, and the storage that stands for it at
// each (StorageCopies).
//
// Not thread-safe: the multi-worker device's lock guards it and the copies of
// live storages, but for Destroy(). Nothing here waits for a worker.
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

  // Where the last call went.
  int last() const { return last_; }
  void set_last(int member) { last_ = member; }

  StorageCopies& CopiesOf(RemoteStorage* storage);
  // The member's copy, made if there is none; it has the storage's present
  // size.
  RemoteStorage* CopyAt(RemoteStorage* storage, int member);
  // A storage of a member that no program names.
  StoragePtr NewPart(uint64_t bytes);
  // The member that had the newest version first; where the last call went if
  // nothing wrote the storage.
  int HomeOf(RemoteStorage* storage);
  // The bytes that the storage would take besides at the member.
  uint64_t LackedBytes(RemoteStorage* storage, int member) {
    return CopiesOf(storage).Counts(member) ? 0 : storage->size_bytes();
  }

  // The member has the newest version, too, or first.
  void Count(RemoteStorage* storage, int member);
  // The member alone has the newest version now; the others' copies go.
  absl::Status Wrote(uint32_t lane, RemoteStorage* storage, int member);
  // The storage has another size wherever it counts.
  void Resized(RemoteStorage* storage, uint64_t before, uint64_t size_bytes);
  // Drops the member's copy, which does not hold what it should.
  void DropCopy(RemoteStorage* storage, int member);
  // No plan has a member keep the storage from now on.
  void ForgetKeeper(RemoteStorage* storage);

  // Frees a storage that the program has dropped and that nothing is about to
  // use. Takes no lock but a leaf; callable from any thread.
  static void Destroy(RemoteStorage* storage, WorkerSet* workers,
                      StagePlans* plans);

 private:
  // The member's copy is there and does not count any more: makes room for
  // another one.
  void LetGo(RemoteStorage* storage, int member);
  // Gives the copies back that others than the owner have.
  absl::Status GiveBack(uint32_t lane, RemoteStorage* storage);

  VirtualDevice* const owner_;
  WorkerSet* const workers_;
  StagePlans* const plans_;
  int last_ = 0;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MULTI_WORKER_COPY_TABLE_H_
