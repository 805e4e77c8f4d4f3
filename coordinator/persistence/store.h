// Stores what must outlive a coordinator's process.
//
// Three verbs: get, put-if, lease. Keys are text, ordered bytewise, with parts
// divided by "/"; values are bytes. Every change makes a new revision of the
// whole store. The version of a key is the revision that changed it last.
//
// Thread-safe. Calls may wait for a disk, so the path of messages must not make
// them. Every verb may return:
//
// Unavailable (STORE_LOCKED): another process has the store, or did not let go
// of it in time. Try again.
//
// Unavailable (STORE_IO): the disk failed. Nothing was changed; try again.
//
// ResourceExhausted (STORE_FULL): there is no room. Nothing was changed.
//
// DataLoss (STORE_CORRUPT): the contents are no store of Djinn.
#ifndef COORDINATOR_PERSISTENCE_STORE_H_
#define COORDINATOR_PERSISTENCE_STORE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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

  // Applies all of the writes or none; returns the new revision. Returns
  // Aborted (STORE_CONFLICT), which names the first key that has another
  // version than expected, or InvalidArgument (STORE_BAD_KEY) for an empty key
  // or one that is written twice.
  virtual absl::StatusOr<uint64_t> PutIf(absl::Span<const Write> writes) = 0;

  // Makes `owner` the holder of the lease until `now + ttl`, or extends its
  // lease. Returns Aborted (STORE_LEASE_HELD), which names the holder and the
  // expiry.
  virtual absl::StatusOr<Lease> Acquire(absl::string_view name,
                                        absl::string_view owner, absl::Time now,
                                        absl::Duration ttl) = 0;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_PERSISTENCE_STORE_H_
