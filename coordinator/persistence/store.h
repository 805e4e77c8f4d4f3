// Where a coordinator keeps what must outlive its process.
//
// Three verbs: get, put-if, lease. Keys are text, ordered bytewise, with
// parts divided by "/"; values are bytes. Every change makes a new revision of
// the whole store, and a key's version is the revision that changed it last.
//
// Thread-safe. Calls may wait for a disk: not for the path of messages. Errors
// of every verb:
//   Unavailable (STORE_LOCKED): another process has the store, or did not let
//     go of it in time. Try again.
//   Unavailable (STORE_IO): the disk failed. Try again; nothing was changed.
//   ResourceExhausted (STORE_FULL): no room. Nothing was changed.
//   DataLoss (STORE_CORRUPT): what is there is no store of ours.
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
    // Unset: the key is removed.
    std::optional<std::string> value;
    // The version that the key must have, 0 for one that must be absent. Unset:
    // any.
    std::optional<uint64_t> expected;
  };

  // A right that one owner has at a time.
  struct Lease {
    // Grows whenever the owner changes.
    uint64_t term = 0;
    absl::Time expiry;
  };

  virtual ~Store() = default;

  // What a process that is killed leaves behind is still there.
  virtual bool persistent() const = 0;

  // Everything whose key begins so, in order of keys.
  virtual absl::StatusOr<std::vector<Entry>> Get(absl::string_view prefix) = 0;

  // All of the writes or none; returns the new revision. Aborted
  // (STORE_CONFLICT) names the first key that has another version than
  // expected. InvalidArgument (STORE_BAD_KEY) for an empty key or one that is
  // written twice.
  virtual absl::StatusOr<uint64_t> PutIf(absl::Span<const Write> writes) = 0;

  // Makes `owner` the holder of the lease until `now + ttl`, or keeps it so.
  // Aborted (STORE_LEASE_HELD) names the holder and its expiry.
  virtual absl::StatusOr<Lease> Acquire(absl::string_view name,
                                        absl::string_view owner, absl::Time now,
                                        absl::Duration ttl) = 0;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_PERSISTENCE_STORE_H_
