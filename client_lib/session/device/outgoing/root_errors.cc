#include "client_lib/session/device/outgoing/root_errors.h"

#include "absl/algorithm/container.h"
#include "common/base/error.h"
#include "common/log/log.h"

namespace djinn {

void RootErrors::Add(int device, const absl::Status& error) {
  Note(device, error, /*reported=*/false);
}

void RootErrors::AddReported(int device, const absl::Status& error) {
  Note(device, error, /*reported=*/true);
}

absl::Status RootErrors::TakeUnreported(int device) {
  MutexLock lock(&mu_);
  for (Entry& entry : entries_) {
    if (entry.reported || (device >= 0 && entry.device != device)) continue;
    entry.reported = true;
    return entry.error;
  }
  return absl::OkStatus();
}

std::vector<absl::Status> RootErrors::Kept() const {
  MutexLock lock(&mu_);
  std::vector<absl::Status> errors;
  for (const Entry& entry : entries_) errors.push_back(entry.error);
  return errors;
}

bool RootErrors::Knows(const absl::Status& error) const {
  const std::string id = ErrorMetadataValue(error, "error_id");
  MutexLock lock(&mu_);
  return absl::c_any_of(entries_, [&](const Entry& entry) {
    return !id.empty() && entry.error_id == id;
  });
}

uint64_t RootErrors::count() const {
  MutexLock lock(&mu_);
  return count_;
}

void RootErrors::Note(int device, const absl::Status& error, bool reported) {
  std::string id = ErrorMetadataValue(error, "error_id");
  {
    MutexLock lock(&mu_);
    for (Entry& entry : entries_) {
      // An error that another device had first counts once.
      if (!id.empty() && entry.error_id == id) {
        entry.reported |= reported;
        return;
      }
    }
    // Beyond the limit an error is new each time it is met. It is counted only
    // when its worker announces it.
    if (entries_.size() == kMaxKept) {
      if (!reported) ++count_;
      return;
    }
    ++count_;
    entries_.push_back({device, std::move(id), error, reported});
  }
  log::Warning("root error on a remote device",
               {{"device", device}, {"error", error}});
}

}  // namespace djinn
