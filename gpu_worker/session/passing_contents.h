// Contents of a session that only pass through: a batch of a data set is
// uploaded, used and freed, and never comes again.
//
// As a content it would stay until its room is needed, and the next batch would
// take fresh memory, whose pages take the kernel longer than to copy and to
// hash the bytes. So an upload takes the place of such a one of its own size,
// whose memory is the next to go (BlockCache).
//
// One passes when its program frees it soon after it came and then uploads
// another one of its size. Nothing else shows it: a model that is freed
// as its program ends is as much worth as before. Of a size some are kept in
// case they come again, and what does come again after it gave way stays
// (ContentCache::LetPass()).
//
// Not thread-safe.
#ifndef GPU_WORKER_SESSION_PASSING_CONTENTS_H_
#define GPU_WORKER_SESSION_PASSING_CONTENTS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/hash.h"
#include "gpu_worker/device/device.h"

namespace djinn::worker {

class PassingContents {
 public:
  // Of each size.
  static constexpr uint64_t kKeptBytes = uint64_t{64} << 20;
  // From its upload until it is freed, at most.
  static constexpr absl::Duration kSoon = absl::Seconds(10);
  // Of the uploads and of what was freed, the latest are remembered.
  static constexpr size_t kMaxRemembered = 1024;

  explicit PassingContents(Clock* clock) : clock_(clock) {}

  // An upload of the session became this content.
  void NoteUploaded(const ContentHash& hash, const Buffer* buffer);
  // The session frees a storage that has the buffer, a content or none.
  void NoteFreed(const Buffer* buffer, uint64_t size_bytes);
  // Another upload is to be received: the content, of the same size, whose
  // place it should take.
  std::optional<ContentHash> MakeWay(uint64_t size_bytes);

 private:
  struct Upload {
    ContentHash hash;
    absl::Duration came;
  };
  struct Freed {
    ContentHash hash;
    uint64_t size_bytes = 0;
  };

  Clock* const clock_;
  // Buffers are names here: some are gone, and others may be in their places.
  absl::flat_hash_map<const Buffer*, Upload> uploads_;
  // In the order in which they came.
  std::deque<const Buffer*> order_;
  std::deque<Freed> freed_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_PASSING_CONTENTS_H_
