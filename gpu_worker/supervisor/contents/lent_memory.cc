#include "gpu_worker/supervisor/contents/lent_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace djinn::worker {
namespace {

absl::Status Failed(const char* what) {
  const std::string message =
      absl::StrCat("contents: ", what, ": ", std::strerror(errno));
  return errno == ENOMEM || errno == ENOSPC || errno == EMFILE ||
                 errno == ENFILE
             ? absl::ResourceExhaustedError(message)
             : absl::InternalError(message);
}

class LentBuffer final : public Buffer {
 public:
  LentBuffer(Descriptor file, uint64_t bytes)
      : file_(std::move(file)), bytes_(bytes) {}
  ~LentBuffer() override {
    if (const char* const mapped = mapped_; mapped != nullptr) {
      munmap(const_cast<char*>(mapped), bytes_);
    }
    // Removes the memory from all other descriptors and mappings.
    (void)!ftruncate(file_.get(), 0);
  }

  uint64_t size_bytes() const override { return bytes_; }

  absl::Status Write(uint64_t offset, absl::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t written = pwrite(file_.get(), bytes.data(), bytes.size(),
                                     static_cast<off_t>(offset));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return Failed("pwrite");
      offset += static_cast<uint64_t>(written);
      bytes.remove_prefix(static_cast<size_t>(written));
    }
    return absl::OkStatus();
  }
  absl::Status Seal() {
    // The file stays open to shrinking. No borrower has a writable descriptor
    // or can open one.
    if (fcntl(file_.get(), F_ADD_SEALS,
              F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
      return Failed("sealing");
    }
    void* const mapped =
        mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file_.get(), 0);
    if (mapped == MAP_FAILED) return Failed("mmap");
    mapped_ = static_cast<const char*>(mapped);
    return absl::OkStatus();
  }
  absl::StatusOr<Descriptor> Lend() const {
    Descriptor copy(open(absl::StrCat("/proc/self/fd/", file_.get()).c_str(),
                         O_RDONLY | O_CLOEXEC));
    if (!copy.valid()) return Failed("open");
    return copy;
  }
  // Null before Seal().
  const char* mapped() const { return mapped_; }

 private:
  const Descriptor file_;
  const uint64_t bytes_;
  std::atomic<const char*> mapped_{nullptr};
};

}  // namespace

absl::Status LentMemory::Seal(Buffer* buffer) {
  return static_cast<LentBuffer*>(buffer)->Seal();
}

absl::StatusOr<Descriptor> LentMemory::Lend(const Buffer& buffer) {
  return static_cast<const LentBuffer&>(buffer).Lend();
}

absl::StatusOr<std::shared_ptr<Buffer>> LentMemory::Allocate(uint64_t bytes) {
  Descriptor file(
      memfd_create("djinn-content", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) return Failed("memfd_create");
  // By default, every holder of a descriptor may open the file for writing.
  if (fchmod(file.get(), 0400) != 0) return Failed("fchmod");
  if (ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
    return Failed("ftruncate");
  }
  return std::make_shared<LentBuffer>(std::move(file), bytes);
}

absl::Status LentMemory::Write(Buffer* buffer, uint64_t offset,
                               absl::string_view bytes) {
  return static_cast<LentBuffer*>(buffer)->Write(offset, bytes);
}

absl::StatusOr<SharedBytes> LentMemory::HostBytes(
    std::shared_ptr<Buffer> buffer) {
  const char* const bytes = static_cast<LentBuffer*>(buffer.get())->mapped();
  if (bytes == nullptr) return absl::InternalError("the buffer is not sealed");
  return SharedBytes{{bytes, buffer->size_bytes()}, buffer};
}

absl::StatusOr<std::shared_ptr<Buffer>> LentMemory::Clone(
    const Buffer& /*source*/, uint64_t /*bytes*/) {
  return absl::UnimplementedError("contents are never changed");
}

absl::StatusOr<SharedBytes> LentMemory::ReadView(
    std::shared_ptr<Buffer> /*buffer*/, const srg::TensorView& /*view*/) {
  return absl::UnimplementedError("contents have no views");
}

}  // namespace djinn::worker
