// The structures defined on one worker's stream, found by the client's own key
// (see run_encoder.h), compared byte by byte. The worker's fingerprint is
// another matter.
//
// Holds at most as many as the session's limit and a bound on their bytes; a
// new one takes the id of the least recently used. Not thread-safe.
#ifndef CLIENT_LIB_SESSION_STRUCTURE_TABLE_H_
#define CLIENT_LIB_SESSION_STRUCTURE_TABLE_H_

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "common/hash.h"

namespace djinn {

class StructureTable {
 public:
  static constexpr size_t kMaxKeyBytes = 64 << 20;

  explicit StructureTable(size_t max_structures,
                          size_t max_key_bytes = kMaxKeyBytes)
      : max_structures_(max_structures), max_key_bytes_(max_key_bytes) {}

  struct Entry {
    uint64_t id = 0;
    // The id must be defined, or defined again, before it is used.
    bool is_new = false;
    // The caller's note about the key; 0 when new.
    uint64_t* told = nullptr;
  };
  // The key's id, from 1.
  Entry FindOrAdd(absl::string_view key);

 private:
  struct Stored {
    std::string key;
    uint64_t id;
    uint64_t told = 0;
  };
  struct KeyHash {
    size_t operator()(absl::string_view key) const {
      return HashContent(key.data(), key.size()).low;
    }
  };

  void DropLeastRecentlyUsed();

  const size_t max_structures_;
  const size_t max_key_bytes_;
  size_t key_bytes_ = 0;
  uint64_t last_id_ = 0;
  std::vector<uint64_t> free_ids_;
  std::list<Stored> by_use_;  // most recently used first
  absl::flat_hash_map<absl::string_view, std::list<Stored>::iterator, KeyHash>
      by_key_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_STRUCTURE_TABLE_H_
