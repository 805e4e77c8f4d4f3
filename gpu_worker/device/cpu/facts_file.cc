#include "gpu_worker/device/cpu/facts_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"

namespace djinn::worker {
namespace {

absl::Status FileError(absl::string_view what, const std::string& path) {
  return absl::UnavailableError(
      absl::StrCat(what, " ", path, ": ", std::strerror(errno)));
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace

FactsFile::FactsFile(std::string path, std::string key,
                     std::shared_ptr<LearntFacts> facts, Clock* clock)
    : path_(std::move(path)),
      key_(std::move(key)),
      facts_(std::move(facts)),
      clock_(clock),
      next_(clock->Monotonic() + kInterval) {
  written_ = facts_->changes();
  const absl::Status read = Read();
  if (read.ok()) {
    log::Info("what was learnt of the processor is known",
              {{"file", path_}, {"facts", facts_->size()}});
  } else if (!absl::IsNotFound(read)) {
    log::Warning("what was learnt of the processor is not used",
                 {{"file", path_}, {"why", read.message()}});
  }
  writer_ = std::thread([this] { Run(); });
}

FactsFile::~FactsFile() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
  }
  writer_.join();
  Save();
}

absl::Status FactsFile::Read() const {
  const Descriptor fd(
      open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (fd.get() < 0) {
    return errno == ENOENT ? absl::NotFoundError("there is none yet")
                           : FileError("cannot open", path_);
  }
  struct stat status;
  if (fstat(fd.get(), &status) != 0) return FileError("cannot look at", path_);
  if (!S_ISREG(status.st_mode)) return absl::DataLossError("it is no file");
  std::string text(kMaxBytes + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = read(fd.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError("cannot read", path_);
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  if (size > kMaxBytes) return absl::DataLossError("it is too large");
  text.resize(size);
  return facts_->AddText(text, key_);
}

absl::Status FactsFile::Write(const std::string& text) const {
  const std::string draft = absl::StrCat(path_, ".draft");
  {
    const Descriptor fd(
        open(draft.c_str(),
             O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (fd.get() < 0) return FileError("cannot write", draft);
    for (size_t at = 0; at < text.size();) {
      const ssize_t put = write(fd.get(), text.data() + at, text.size() - at);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return FileError("cannot write", draft);
      at += static_cast<size_t>(put);
    }
    if (fsync(fd.get()) != 0) return FileError("cannot write", draft);
  }
  if (rename(draft.c_str(), path_.c_str()) != 0) {
    return FileError("cannot replace", path_);
  }
  const std::string folder = std::filesystem::path(path_).parent_path();
  const Descriptor fd(open(folder.empty() ? "." : folder.c_str(),
                           O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0 || fsync(fd.get()) != 0) {
    return FileError("cannot write", folder);
  }
  return absl::OkStatus();
}

void FactsFile::Save() {
  // Of what is written, at least.
  const uint64_t changes = facts_->changes();
  if (changes == written_changes()) return;
  const absl::Status wrote = Write(facts_->ToText(key_));
  if (wrote.ok()) {
    MutexLock lock(&mu_);
    written_ = changes;
  } else if (!std::exchange(told_, true)) {
    log::Warning("what was learnt of the processor is not kept",
                 {{"file", path_}, {"why", wrote.message()}});
  }
}

void FactsFile::Tick() {
  const absl::Duration now = clock_->Monotonic();
  const uint64_t changes = facts_->changes();
  MutexLock lock(&mu_);
  if (now < next_ || changes == written_) return;
  next_ = now + kInterval;
  due_ = true;
  changed_.SignalAll();
}

uint64_t FactsFile::written_changes() const {
  MutexLock lock(&mu_);
  return written_;
}

void FactsFile::Run() {
  for (;;) {
    {
      MutexLock lock(&mu_);
      while (!due_ && !stopping_) changed_.Wait(&mu_);
      if (stopping_) return;
      due_ = false;
    }
    Save();
  }
}

}  // namespace djinn::worker
