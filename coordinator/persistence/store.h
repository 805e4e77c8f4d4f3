// Stores what must outlive a coordinator's process.
//
// Four verbs: get, put-if, acquire, release. Keys are text, ordered bytewise,
// with parts divided by "/"; values are bytes. Every change makes a new
// revision of the whole store. The version of a key is the revision that
// changed it last.
//
// Thread-safe. Calls may wait for a disk or a network, so the path of messages
// must not make them. Every verb may return:
//
// Unavailable (STORE_LOCKED): another process has the store, or did not let go
// of it in time. Try again.
//
// Unavailable (STORE_IO): the disk or the server failed. Nothing was changed;
// try again.
//
// Unavailable (STORE_UNREACHABLE): the server did not answer in time. A change
// may have been made or may still be made. Read before the next try.
//
// ResourceExhausted (STORE_FULL): there is no room. Nothing was changed.
//
// FailedPrecondition (STORE_UNUSABLE): the store refuses this process.
//
// DataLoss (STORE_CORRUPT): the contents are no store of Djinn.
#ifndef COORDINATOR_PERSISTENCE_STORE_H_
#define COORDINATOR_PERSISTENCE_STORE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace djinn::coordinator {

class Store {
 public:
  struct Entry {
    std::string key;
    std::string value;
    uint64_t version = 0;
  };

  struct Write {
    std::string key;
    // Unset to remove the key.
    std::optional<std::string> value;
    // The version that the key must have; 0 if it must be absent; unset if any
    // will do.
    std::optional<uint64_t> expected;
  };

  // A right that one owner has at a time.
  struct Lease {
    // Increases whenever the owner changes.
    uint64_t term = 0;
    absl::Time expiry;
  };

  virtual ~Store() = default;

  // Returns whether the entries survive the process.
  virtual bool persistent() const = 0;

  // Returns the entries whose keys begin with `prefix`, in the order of keys.
  virtual absl::StatusOr<std::vector<Entry>> Get(absl::string_view prefix) = 0;

  // Applies all of the writes or none; returns the new revision, which is the
  // version of every key that was written with an expected version. A store
  // that has to split many writes may give the others lower versions, but no
  // reader sees a part of them. At most 100 writes may expect a version.
  // Returns Aborted (STORE_CONFLICT), which names the first key that has
  // another version than expected, or InvalidArgument (STORE_BAD_KEY) for an
  // empty key or one that is written twice.
  virtual absl::StatusOr<uint64_t> PutIf(absl::Span<const Write> writes) = 0;

  // Makes `owner` the holder of the lease until `now + ttl`, or extends its
  // lease. Returns Aborted (STORE_LEASE_HELD), which names the holder, also in
  // the error's metadata as "owner". A store that several processes share
  // counts `ttl` in whole seconds by its own clock, from a moment after `now`.
  virtual absl::StatusOr<Lease> Acquire(absl::string_view name,
                                        absl::string_view owner, absl::Time now,
                                        absl::Duration ttl) = 0;

  // Ends the lease now if `owner` holds it.
  virtual absl::Status Release(absl::string_view name,
                               absl::string_view owner) = 0;
};

// Returns the first key after all keys with this prefix; empty if there is
// none.
inline std::string KeyAfterPrefix(absl::string_view prefix) {
  std::string after(prefix);
  while (!after.empty() && after.back() == '\xff') after.pop_back();
  if (!after.empty()) ++after.back();
  return after;
}

}  // namespace djinn::coordinator

#endif  // COORDINATOR_PERSISTENCE_STORE_H_
