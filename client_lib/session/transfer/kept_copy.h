// Keeps what a device copied to another virtual device, so that a third worker
// can fetch it after the loss of the second one.
//
// The bytes are a storage of the source's device, which no call of the program
// names (v1::StorageCopy). So the source's lineage (client_lib/session/lineage)
// computes them again if the source's worker is lost, too. The storage shares
// its memory with the original until that is written, and is released with the
// last KeptCopy: when the destination's lineage needs the copy no more.
#ifndef CLIENT_LIB_SESSION_TRANSFER_KEPT_COPY_H_
#define CLIENT_LIB_SESSION_TRANSFER_KEPT_COPY_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/session/model/remote_storage.h"
#include "client_lib/session/recording/virtual_device.h"
#include "client_lib/session/transfer/spill_file.h"
#include "djinn/v1/pull.pb.h"

namespace djinn {

namespace v1 {
class ControlRequest;
}  // namespace v1

// The upload that made the bytes, if a program's upload did.
struct UploadOfCopy {
  // Null: none did.
  std::shared_ptr<const v1::ControlRequest> request;
  // The bytes of a hash-first upload, if the client has them.
  KeptBytes source;
};

// An offer that another worker may fetch.
struct OfferedCopy {
  v1::Pull pull;
  // See CopySource::View.
  uint64_t losses = 0;
  // The offer's number among the pieces of work of the source.
  uint64_t work = 0;
};

// The source of copies: one replica of a virtual device. Thread-safe; takes its
// own locks, so that the caller must hold none of another device.
class CopySource {
 public:
  struct View {
    // The number of workers that the source lost or failed to reach. What was
    // offered before the last loss cannot be fetched any more.
    uint64_t losses = 0;
    // The number of the last piece of work that the source's worker executed.
    uint64_t executed = 0;
    // Not OK if the bytes must not be shown, with the reason.
    absl::Status error;
  };

  virtual ~CopySource() = default;
  // Frees the storage, which does not count among the program's. Any thread may
  // call it, with any lock held.
  virtual void Release(RemoteStorage* storage) = 0;
  // Returns the view of the bytes in `storage`.
  virtual View Look(const RemoteStorage& storage) = 0;
  // Offers the bytes in `storage` once more, and returns how another worker
  // fetches them. Returns nothing while the source looks for a worker, nor,
  // unless the caller `recovers` as well, until the source has asked for its
  // own copies; and the error of a source, or of bytes, that are gone for good.
  // Does not block.
  virtual absl::StatusOr<std::optional<OfferedCopy>> OfferAgain(
      RemoteStorage* storage, bool recovers) = 0;
};

// Says whether the destination's present worker still has to fetch the bytes: 0
// if not, and otherwise a number that is another one after each recovery of the
// destination. The source's device holds it, too: while it replays, it offers
// the bytes again if the destination needs them.
using CopyNeeded = std::shared_ptr<std::atomic<uint64_t>>;

// Any thread may destroy it, with any lock held.
class KeptCopy {
 public:
  // `source` belongs to the storage's device, and lives as long as that.
  KeptCopy(StoragePtr storage, CopySource* source)
      : storage_(std::move(storage)), source_(*source) {}
  ~KeptCopy() {
    SetNeeded(0);
    source_.Release(storage_.get());
  }
  KeptCopy(const KeptCopy&) = delete;
  KeptCopy& operator=(const KeptCopy&) = delete;

  CopySource::View Look() const { return source_.Look(*storage_.get()); }
  absl::StatusOr<std::optional<OfferedCopy>> OfferAgain(bool recovers) const {
    return source_.OfferAgain(storage_.get(), recovers);
  }

  const CopyNeeded& needed() const { return needed_; }
  void SetNeeded(uint64_t needed) {
    needed_->store(needed, std::memory_order_release);
  }

  // Constant once the destination has it. The destination uploads the bytes
  // after a loss, so that nothing is kept once its worker has fetched them.
  UploadOfCopy upload;

  // The lock of the destination's connection guards the following fields.

  // See CopySource::View; of the last offer.
  uint64_t losses = 0;
  // How often a worker did not get what was offered under that number.
  int failures = 0;

 private:
  const StoragePtr storage_;
  CopySource& source_;
  const CopyNeeded needed_ = std::make_shared<std::atomic<uint64_t>>(1);
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_TRANSFER_KEPT_COPY_H_
