#include "gpu_worker/device/cpu/facts_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/log/log.h"
#include "common/read_file.h"
#include "common/status_macros.h"

namespace djinn::worker {
namespace {

absl::Status FileError(absl::string_view what, const std::string& path) {
  return absl::UnavailableError(
      absl::StrCat(what, " ", path, ": ", std::strerror(errno)));
}

// What was written is there after the machine lost power, too.
absl::Status SyncFolder(const std::filesystem::path& folder) {
  const std::string path = folder.empty() ? "." : folder.string();
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return FileError("cannot open", path);
  const absl::Cleanup close_folder = [fd] { close(fd); };
  if (fsync(fd) != 0) return FileError("cannot write", path);
  return absl::OkStatus();
}

absl::Status WriteDraft(const std::string& path, absl::string_view text) {
  const int fd =
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
           0600);
  if (fd < 0) return FileError("cannot write", path);
  const absl::Cleanup close_file = [fd] { close(fd); };
  while (!text.empty()) {
    const ssize_t put = write(fd, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return FileError("cannot write", path);
    text.remove_prefix(static_cast<size_t>(put));
  }
  if (fsync(fd) != 0) return FileError("cannot write", path);
  return absl::OkStatus();
}

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
  if (access(path_.c_str(), F_OK) != 0 && errno == ENOENT) {
    return absl::NotFoundError("there is none yet");
  }
  DJINN_ASSIGN_OR_RETURN(const std::string text, ReadFile(path_, kMaxBytes));
  return facts_->AddText(text, key_);
}

absl::Status FactsFile::Write(const std::string& text) const {
  const std::string draft = absl::StrCat(path_, ".draft");
  DJINN_RETURN_IF_ERROR(WriteDraft(draft, text));
  if (rename(draft.c_str(), path_.c_str()) != 0) {
    return FileError("cannot replace", path_);
  }
  return SyncFolder(std::filesystem::path(path_).parent_path());
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
