#include "common/net/tls/checked_tls_copies.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/hash/hash.h"
#include "common/io/read_file.h"
#include "common/log/log.h"
#include "common/net/tls/tls_files.h"

namespace djinn {
namespace {

// The private key, the certificate and the authorities, in this order.
constexpr size_t kFiles = 3;

absl::Status Unfit(absl::string_view why) {
  return MakeError(absl::StatusCode::kFailedPrecondition, "TLS_FILES", why);
}

absl::Status CannotCopy(absl::string_view call) {
  return Unfit(absl::StrCat("cannot copy TLS files into memory: ", call, ": ",
                            std::strerror(errno)));
}

// Returns the descriptor of a file in memory that holds the text.
absl::StatusOr<int> MakeFile(absl::string_view text) {
  const int file = memfd_create("djinn-tls", MFD_CLOEXEC);
  if (file < 0) return CannotCopy("memfd_create");
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written <= 0) {
      const absl::Status status = CannotCopy("write");
      close(file);
      return status;
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
  return file;
}

// Copies of one set of files. Thread-safe.
class Copies {
 public:
  Copies(const TlsPaths& files, std::function<absl::Status()> check)
      : files_({files.private_key, files.certificate, files.authorities}),
        check_(std::move(check)) {
    copies_.fill(-1);
  }

  // Takes over what the files hold, if it is new and fit. Returns why it is
  // not fit.
  absl::Status Refresh() {
    MutexLock lock(&mu_);
    const Texts found = Read();
    if (found.digest == accepted_) return absl::OkStatus();
    absl::Status status = check_();
    // The check read the files by itself.
    if (Read().digest != found.digest) {
      return Unfit(absl::StrCat("a file changes while it is read: ", Names()));
    }
    if (status.ok()) status = Write(found.texts);
    if (!status.ok()) {
      if (!accepted_.empty() && found.digest != refused_) {
        log::Error("new TLS files are unfit, and those before them stay in use",
                   {{"files", Names()}, {"status", status}});
      }
      refused_ = found.digest;
      return status;
    }
    if (!accepted_.empty()) {
      log::Info("new TLS files are in use", {{"files", Names()}});
    }
    accepted_ = found.digest;
    texts_ = {found.texts[0], found.texts[1], found.texts[2]};
    refused_.clear();
    return absl::OkStatus();
  }

  TlsPaths paths() const {
    std::array<std::string, kFiles> paths;
    MutexLock lock(&mu_);
    for (size_t i = 0; i < kFiles; ++i) {
      if (copies_[i] >= 0)
        paths[i] = absl::StrCat("/proc/self/fd/", copies_[i]);
    }
    return {paths[0], paths[1], paths[2]};
  }

  TlsTexts texts() const {
    MutexLock lock(&mu_);
    return texts_;
  }

 private:
  struct Texts {
    std::array<std::string, kFiles> texts;
    // Tells texts apart without keeping them. Never empty.
    std::string digest;
  };

  Texts Read() const {
    Texts found;
    for (size_t i = 0; i < kFiles; ++i) {
      if (files_[i].empty()) continue;
      absl::StatusOr<std::string> text = ReadFile(files_[i], kMaxTlsFileBytes);
      // The check says why a file cannot be read.
      absl::StrAppend(&found.digest, text.ok() ? Sha256(*text) : "unreadable",
                      ";");
      if (text.ok()) found.texts[i] = *std::move(text);
    }
    return found;
  }

  // Replaces all copies. gRPC reads a key and a certificate again if the time
  // of one of them changes meanwhile.
  absl::Status Write(const std::array<std::string, kFiles>& texts)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    std::array<int, kFiles> made;
    made.fill(-1);
    absl::Status status;
    for (size_t i = 0; i < kFiles && status.ok(); ++i) {
      if (files_[i].empty()) continue;
      const absl::StatusOr<int> file = MakeFile(texts[i]);
      if (file.ok()) made[i] = *file;
      status = file.status();
    }
    for (size_t i = 0; i < kFiles; ++i) {
      if (made[i] < 0) continue;
      if (!status.ok()) {
        close(made[i]);
      } else if (copies_[i] < 0) {
        copies_[i] = made[i];
      } else {
        // Closes the copy before, and keeps its number.
        if (dup3(made[i], copies_[i], O_CLOEXEC) < 0) {
          status = CannotCopy("dup3");
        }
        close(made[i]);
      }
    }
    return status;
  }

  std::string Names() const {
    std::string names;
    for (const std::string& file : files_) {
      if (!file.empty())
        absl::StrAppend(&names, names.empty() ? "" : " ", file);
    }
    return names;
  }

  const std::array<std::string, kFiles> files_;
  const std::function<absl::Status()> check_;
  mutable Mutex mu_;
  // Descriptors of the copies, or -1. Their numbers never change.
  std::array<int, kFiles> copies_ ABSL_GUARDED_BY(mu_);
  // The texts in the copies.
  TlsTexts texts_ ABSL_GUARDED_BY(mu_);
  // Digests of what the copies hold, and of what was refused since.
  std::string accepted_ ABSL_GUARDED_BY(mu_);
  std::string refused_ ABSL_GUARDED_BY(mu_);
};

// Finds the copies of a set of files, and makes them if there are none yet. All
// live until the process ends.
absl::StatusOr<Copies*> Find(const TlsPaths& files, const std::string& kind,
                             std::function<absl::Status()> check,
                             absl::Duration refresh) {
  using Key = std::tuple<std::string, std::string, std::string, std::string,
                         absl::Duration>;
  static auto* const mu = new Mutex;
  static auto* const all = new std::map<Key, Copies*>;
  MutexLock lock(mu);
  Copies*& copies = (*all)[{kind, files.private_key, files.certificate,
                            files.authorities, refresh}];
  if (copies != nullptr) return copies;
  auto made = std::make_unique<Copies>(files, std::move(check));
  DJINN_RETURN_IF_ERROR(made->Refresh());
  copies = made.release();
  std::thread([copies = copies, refresh] {
    for (;;) {
      absl::SleepFor(refresh);
      copies->Refresh().IgnoreError();
    }
  }).detach();
  return copies;
}

}  // namespace

absl::StatusOr<TlsPaths> CheckedTlsCopies(const TlsPaths& files,
                                          const std::string& kind,
                                          std::function<absl::Status()> check,
                                          absl::Duration refresh) {
  DJINN_ASSIGN_OR_RETURN(Copies* const copies,
                         Find(files, kind, std::move(check), refresh));
  DJINN_RETURN_IF_ERROR(copies->Refresh());
  return copies->paths();
}

absl::StatusOr<TlsTexts> CheckedTlsTexts(const TlsPaths& files,
                                         const std::string& kind,
                                         std::function<absl::Status()> check,
                                         absl::Duration refresh) {
  DJINN_ASSIGN_OR_RETURN(Copies* const copies,
                         Find(files, kind, std::move(check), refresh));
  // Logs what is unfit.
  copies->Refresh().IgnoreError();
  return copies->texts();
}

}  // namespace djinn
