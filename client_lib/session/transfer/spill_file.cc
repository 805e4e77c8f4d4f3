#include "client_lib/session/transfer/spill_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "client_lib/session/model/fork_guard.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"

namespace djinn {
namespace {

// This share of the file system is left to others.
constexpr uint64_t kSpareShare = 20;
// Bytes that are compared at a time. They stay in the processor's cache.
constexpr size_t kCompared = size_t{256} << 10;
// Least number of released bytes that Trim() returns.
constexpr uint64_t kTrimmed = uint64_t{64} << 20;

// Returns a file without a name, or -1.
int OpenIn(const std::string& directory) {
  const int file =
      open(directory.c_str(), O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return file;
  // Some file systems know only files with names.
  std::string path = absl::StrCat(directory, "/djinn-XXXXXX");
  const int named = mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) unlink(path.c_str());
  return named;
}

// Returns an error if there may be no room for so many bytes at the offset.
absl::Status CheckRoom(int file, uint64_t offset, uint64_t size) {
  // A write beyond this limit would end the process.
  struct rlimit longest;
  if (getrlimit(RLIMIT_FSIZE, &longest) != 0) {
    return absl::ErrnoToStatus(errno, "getrlimit");
  }
  if (longest.rlim_cur != RLIM_INFINITY && offset + size > longest.rlim_cur) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the process may write files of ", longest.rlim_cur,
                     " bytes at most (ulimit -f)"));
  }
  struct statvfs system;
  if (fstatvfs(file, &system) != 0) {
    return absl::ErrnoToStatus(errno, "fstatvfs");
  }
  const uint64_t block = system.f_frsize;
  if (size + system.f_blocks * block / kSpareShare > system.f_bavail * block) {
    return absl::ResourceExhaustedError(
        absl::StrCat("its file system has ", system.f_bavail * block,
                     " bytes left, a twentieth of which is spared"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SpillFile::Extent::ReadPart(uint64_t from,
                                         absl::Span<char> part) const {
  while (!part.empty()) {
    const ssize_t read = pread(file_->file_, part.data(), part.size(),
                               static_cast<off_t>(offset_ + from));
    if (read < 0 && errno == EINTR) continue;
    if (read < 0) return absl::ErrnoToStatus(errno, "read of a temporary file");
    if (read == 0) return absl::DataLossError("a temporary file was cut");
    from += static_cast<uint64_t>(read);
    part.remove_prefix(static_cast<size_t>(read));
  }
  return absl::OkStatus();
}

absl::StatusOr<SharedBytes> SpillFile::Extent::Read() const {
  // Not initialized, because every byte is read.
  const std::shared_ptr<char[]> buffer(new char[size_]);
  DJINN_RETURN_IF_ERROR(ReadPart(0, {buffer.get(), size_}));
  return SharedBytes{{buffer.get(), size_}, buffer};
}

bool SpillFile::Extent::Equals(absl::string_view bytes) const {
  if (bytes.size() != size_) return false;
  const size_t most = std::min(kCompared, bytes.size());
  const std::unique_ptr<char[]> buffer(new char[most]);
  for (uint64_t from = 0; from < size_; from += most) {
    const absl::string_view part = bytes.substr(from, most);
    if (!ReadPart(from, {buffer.get(), part.size()}).ok() ||
        part != absl::string_view(buffer.get(), part.size())) {
      return false;
    }
  }
  return true;
}

std::vector<std::string> SpillFile::Directories() {
  const char* const chosen = std::getenv("TMPDIR");
  if (chosen != nullptr && *chosen != 0) return {chosen};
  // In many systems /tmp is memory.
  return {"/var/tmp", "/tmp"};
}

std::shared_ptr<SpillFile> SpillFile::Make(
    uint64_t limit, std::vector<std::string> directories) {
  return std::shared_ptr<SpillFile>(
      new SpillFile(limit, std::move(directories)));
}

SpillFile::~SpillFile() {
  if (file_ >= 0) close(file_);
}

void SpillFile::Open() {
  unopened_ = absl::NotFoundError("there is no directory for it");
  for (const std::string& directory : directories_) {
    file_ = OpenIn(directory);
    if (file_ >= 0) return;
    unopened_ = absl::ErrnoToStatus(errno, directory);
  }
  unusable_.store(true, std::memory_order_relaxed);
}

std::shared_ptr<const SpillFile::Extent> SpillFile::Keep(
    const ContentHash& hash, absl::string_view bytes) {
  std::shared_ptr<const Extent> extent;
  {
    MutexLock lock(&mu_);
    const auto found = extents_.find(hash);
    if (found != extents_.end()) extent = found->second.lock();
  }
  // The hash alone proves nothing.
  if (extent != nullptr && extent->Equals(bytes)) return extent;
  // Released without the lock, in case that this is the last reference.
  extent.reset();
  absl::Status written = Write(hash, bytes, &extent);
  if (written.ok()) return extent;
  bool warn = false;
  {
    MutexLock lock(&mu_);
    warn = failure_.ok();
    failure_ = written;
  }
  if (warn) {
    log::Warning(
        "bytes that a recovery may need have no room in memory nor in a "
        "temporary file; the loss of a worker may end its virtual device",
        {{"bytes", bytes.size()}, {"replay_disk", limit_}, {"error", written}});
  }
  return nullptr;
}

absl::Status SpillFile::Write(const ContentHash& hash, absl::string_view bytes,
                              std::shared_ptr<const Extent>* extent) {
  if (bytes.size() > limit_) {
    return absl::ResourceExhaustedError("replay_disk is used up");
  }
  absl::call_once(opened_, [this] { Open(); });
  if (file_ < 0) return unopened_;
  const std::optional<uint64_t> offset = Take(bytes.size());
  if (!offset.has_value()) {
    return absl::ResourceExhaustedError("replay_disk is used up");
  }
  auto made = std::make_shared<const Extent>(shared_from_this(), hash, *offset,
                                             bytes.size());
  DJINN_RETURN_IF_ERROR(CheckRoom(file_, *offset, bytes.size()));
  uint64_t done = 0;
  while (done < bytes.size()) {
    const ssize_t wrote =
        pwrite(file_, bytes.data() + done, bytes.size() - done,
               static_cast<off_t>(*offset + done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return absl::ErrnoToStatus(errno, "write");
    done += static_cast<uint64_t>(wrote);
  }
  written_.fetch_add(bytes.size(), std::memory_order_relaxed);
  MutexLock lock(&mu_);
  extents_[hash] = made;
  *extent = std::move(made);
  return absl::OkStatus();
}

std::optional<uint64_t> SpillFile::Take(uint64_t size) {
  MutexLock lock(&mu_);
  auto room = std::find_if(free_.begin(), free_.end(), [size](const auto& one) {
    return one.second >= size;
  });
  uint64_t offset = end_;
  if (room != free_.end()) {
    offset = room->first;
    if (room->second > size) free_[offset + size] = room->second - size;
    free_.erase(room);
  } else {
    // The last free range may end where the file does.
    if (!free_.empty()) {
      room = std::prev(free_.end());
      if (room->first + room->second == end_) offset = room->first;
    }
    if (size > limit_ - offset) return std::nullopt;
    free_.erase(offset);
    end_ = offset + size;
  }
  used_.fetch_add(size, std::memory_order_relaxed);
  return offset;
}

void SpillFile::Give(uint64_t offset, uint64_t size) {
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + size) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += size;
      return;
    }
  }
  free_[offset] = size;
}

void SpillFile::Release(const Extent& extent) {
  // The file is the parent's.
  if (IsForkedChild()) return;
  used_.fetch_sub(extent.size_, std::memory_order_relaxed);
  MutexLock lock(&mu_);
  const auto found = extents_.find(extent.hash_);
  // Another extent with the same bytes may have come since.
  if (found != extents_.end() && found->second.expired()) extents_.erase(found);
  Give(extent.offset_, extent.size_);
  released_.fetch_add(extent.size_, std::memory_order_relaxed);
}

void SpillFile::Trim() {
  // Every step of every sender thread comes here.
  if (released_.load(std::memory_order_relaxed) < kTrimmed ||
      released_.exchange(0, std::memory_order_relaxed) < kTrimmed) {
    return;
  }
  uint64_t from = 0;
  for (;;) {
    uint64_t size = 0;
    {
      MutexLock lock(&mu_);
      const auto next = free_.lower_bound(from);
      if (next == free_.end()) return;
      // Nothing is written there meanwhile.
      std::tie(from, size) = *next;
      free_.erase(next);
    }
    // A file system without holes keeps the room until it is used again.
    (void)fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    static_cast<off_t>(from), static_cast<off_t>(size));
    MutexLock lock(&mu_);
    Give(from, size);
    from += size;
  }
}

absl::Status SpillFile::failure() const {
  MutexLock lock(&mu_);
  return failure_;
}

}  // namespace djinn
