// Keeps the session's root errors for the program, and remembers which ones a
// call has returned, so that the end of the session reports the others.
//
// Thread-safe.
#ifndef CLIENT_LIB_SESSION_DEVICE_OUTGOING_ROOT_ERRORS_H_
#define CLIENT_LIB_SESSION_DEVICE_OUTGOING_ROOT_ERRORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/mutex.h"

namespace djinn {

class RootErrors {
 public:
  static constexpr size_t kMaxKept = 100;

  // Adds an error of a device, and logs and counts it if it is new. Errors with
  // the same id (ErrorInfo metadata "error_id") on one device are the same.
  void Add(int device, const absl::Status& error);

  // Like Add(), for an error that a call is about to return.
  void AddReported(int device, const absl::Status& error);

  // Returns the device's oldest kept error that no call has returned, and marks
  // it as returned. Index -1 means any device. OK if there is none.
  absl::Status TakeUnreported(int device);

  // Returns whether an error with the same id is kept, of any device.
  bool Knows(const absl::Status& error) const;
  std::vector<absl::Status> Kept() const;
  // Returns the number of all errors, kept or not.
  uint64_t count() const;

 private:
  struct Entry {
    int device;
    std::string error_id;
    absl::Status error;
    bool reported;
  };

  void Note(int device, const absl::Status& error, bool reported);

  mutable Mutex mu_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mu_);
  uint64_t count_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_OUTGOING_ROOT_ERRORS_H_
