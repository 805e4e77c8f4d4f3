// Keeps bytes that a session may have to send again and has no room for in
// memory, in one temporary file.
//
// The file is made at the first use in $TMPDIR, or else in /var/tmp or /tmp. It
// has no name, so that its room returns to the file system when the process
// ends, however that ends. It never grows beyond its limit, nor does it take
// the last twentieth of the file system. Room that is released is used again,
// and Trim() returns it to the file system.
//
// Without room, nothing fails: the bytes are not kept, and the first time a
// warning is logged.
//
// Thread-safe. No lock is held while the file is used.
#ifndef CLIENT_LIB_SESSION_TRANSFER_SPILL_FILE_H_
#define CLIENT_LIB_SESSION_TRANSFER_SPILL_FILE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/call_once.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "common/hash/hash.h"
#include "common/transport/shared_bytes.h"

namespace djinn {

class SpillFile : public std::enable_shared_from_this<SpillFile> {
 public:
  // Bytes in the file. Any thread may destroy it, with any lock held.
  class Extent {
   public:
    Extent(std::shared_ptr<SpillFile> file, const ContentHash& hash,
           uint64_t offset, uint64_t size)
        : file_(std::move(file)), hash_(hash), offset_(offset), size_(size) {}
    ~Extent() { file_->Release(*this); }
    Extent(const Extent&) = delete;
    Extent& operator=(const Extent&) = delete;

    uint64_t size() const { return size_; }
    // Returns the bytes in memory of their own.
    absl::StatusOr<SharedBytes> Read() const;

   private:
    friend class SpillFile;
    absl::Status ReadPart(uint64_t from, absl::Span<char> part) const;
    bool Equals(absl::string_view bytes) const;

    const std::shared_ptr<SpillFile> file_;
    const ContentHash hash_;
    const uint64_t offset_;
    const uint64_t size_;
  };

  // Returns the directories in which the file may be made, the best one first.
  static std::vector<std::string> Directories();

  // The file has at most `limit` bytes, and is made in the first directory that
  // permits it.
  static std::shared_ptr<SpillFile> Make(
      uint64_t limit, std::vector<std::string> directories = Directories());
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  // Writes the bytes, whose hash is `hash`, unless the file has them. Returns
  // null if they find no room.
  std::shared_ptr<const Extent> Keep(const ContentHash& hash,
                                     absl::string_view bytes);
  // Returns released room to the file system if it is much.
  void Trim();

  uint64_t limit() const { return limit_; }
  // Returns the bytes of all extents.
  uint64_t used() const { return used_.load(std::memory_order_relaxed); }
  // Returns the bytes for which there may be room.
  uint64_t room() const {
    return unusable_.load(std::memory_order_relaxed) ? 0 : limit_ - used();
  }
  // Returns the bytes that were written so far.
  uint64_t written() const { return written_.load(std::memory_order_relaxed); }
  // Returns why bytes found no room the last time; OK if that never happened.
  absl::Status failure() const;

 private:
  SpillFile(uint64_t limit, std::vector<std::string> directories)
      : limit_(limit), directories_(std::move(directories)) {}

  void Open();
  absl::Status Write(const ContentHash& hash, absl::string_view bytes,
                     std::shared_ptr<const Extent>* extent);
  // Returns the offset of room for so many bytes, or nothing.
  std::optional<uint64_t> Take(uint64_t size);
  // Adds a range that is free from now on.
  void Give(uint64_t offset, uint64_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Release(const Extent& extent);

  const uint64_t limit_;
  const std::vector<std::string> directories_;
  std::atomic<uint64_t> used_{0};
  std::atomic<uint64_t> written_{0};
  std::atomic<uint64_t> released_{0};  // bytes, since the last Trim()
  std::atomic<bool> unusable_{false};  // no directory permits the file

  // Open() sets these.
  absl::once_flag opened_;
  int file_ = -1;
  absl::Status unopened_;

  mutable Mutex mu_;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  // The end of the room that was ever taken, and the sizes of the free ranges
  // before it, by offset. Neighbours are joined.
  uint64_t end_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, uint64_t> free_ ABSL_GUARDED_BY(mu_);
  // An extent may have expired, but is not destroyed yet.
  absl::flat_hash_map<ContentHash, std::weak_ptr<const Extent>> extents_
      ABSL_GUARDED_BY(mu_);
};

// Bytes that are kept in memory, or in the file; or none.
struct KeptBytes {
  SharedBytes memory;
  std::shared_ptr<const SpillFile::Extent> spilled;

  bool any() const { return memory.owner != nullptr || spilled != nullptr; }
  uint64_t memory_bytes() const {
    return memory.owner == nullptr ? 0 : memory.bytes.size();
  }
  // Returns the bytes in memory; without an owner if there are none.
  absl::StatusOr<SharedBytes> Load() const {
    return spilled == nullptr ? memory : spilled->Read();
  }
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_TRANSFER_SPILL_FILE_H_
