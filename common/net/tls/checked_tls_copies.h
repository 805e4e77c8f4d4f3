// Keeps copies of TLS files that passed their check, for gRPC to watch.
//
// gRPC watches files by itself, but takes over whatever stands in them: with an
// unfit certificate a server refuses every handshake from then on. It therefore
// watches copies, which change only when the files changed and are fit. Unfit
// files are logged once, and the copies stay as they are.
#ifndef COMMON_NET_TLS_CHECKED_TLS_COPIES_H_
#define COMMON_NET_TLS_CHECKED_TLS_COPIES_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace djinn {

// Paths of PEM files; empty for those that there are not.
struct TlsPaths {
  std::string private_key;
  std::string certificate;
  std::string authorities;
};

// The texts of such files.
struct TlsTexts {
  std::string private_key;
  std::string certificate;
  std::string authorities;

  bool operator==(const TlsTexts&) const = default;
};

// Returns paths of copies of the files. The copies lie in memory that the
// process keeps until it ends, because gRPC's channels and servers may outlive
// their credentials. Equal `files` with an equal `kind` of check have the same
// copies.
//
// `check` says whether the files are fit. A thread of the process calls it
// whenever the files changed, at intervals of `refresh`. The files are also
// read by this call. Returns the error of `check`, or FailedPrecondition
// (TLS_FILES) when the files cannot be copied. Thread-safe.
absl::StatusOr<TlsPaths> CheckedTlsCopies(const TlsPaths& files,
                                          const std::string& kind,
                                          std::function<absl::Status()> check,
                                          absl::Duration refresh);

// Returns what these copies hold: the texts that were fit when the files were
// read last. Reads the files, as above, but returns an error only if they were
// never fit. Thread-safe.
absl::StatusOr<TlsTexts> CheckedTlsTexts(const TlsPaths& files,
                                         const std::string& kind,
                                         std::function<absl::Status()> check,
                                         absl::Duration refresh);

}  // namespace djinn

#endif  // COMMON_NET_TLS_CHECKED_TLS_COPIES_H_
