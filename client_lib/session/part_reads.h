// Values that a program reads piece by piece: the elements of a small tensor,
// printed or looked at one after the other. The second piece of one version of
// a storage is read with all of it, and further ones are answered from there.
//
// Versions are those that the session stamps writes with, as it records them:
// what was written since, in whatever way and by whatever thread, has another
// version, and is read anew.
//
// Not thread-safe: the device's lock guards it.
#ifndef CLIENT_LIB_SESSION_PART_READS_H_
#define CLIENT_LIB_SESSION_PART_READS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "absl/strings/string_view.h"
#include "client_lib/session/work.h"
#include "common/srg/structure.h"

namespace djinn {

class PartReads {
 public:
  // Larger storages are never read whole for a part's sake.
  static constexpr uint64_t kMaxBytes = 8192;
  // Storages of which a part or the whole was read.
  static constexpr size_t kMaxKept = 8;

  // All bytes of the storage, if they are here and the view can be read from
  // them; null otherwise.
  std::shared_ptr<const ReadWait> Find(const StorageVersion& version,
                                       const srg::TensorView& view) const;

  // The view is about to be read from the worker. Whether all of the storage is
  // to be read instead, since a part of this version was read before; a read of
  // it goes to Keep() then.
  bool OnRead(const StorageVersion& version, const srg::TensorView& view);

  void Keep(const StorageVersion& version,
            std::shared_ptr<const ReadWait> whole);

 private:
  struct Kept {
    StorageVersion version;
    std::shared_ptr<const ReadWait> whole;  // null: only a part was read
  };

  std::deque<Kept> kept_;  // the oldest first
};

// Copies the elements of a view, one after the other, from its storage's bytes,
// which hold them all. The view is neither conjugated nor negated.
void CopyView(const srg::TensorView& view, absl::string_view storage,
              char* destination);

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_PART_READS_H_
