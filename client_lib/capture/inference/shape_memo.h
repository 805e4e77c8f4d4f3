// Remembers the shapes of a thread's earlier calls, by the calls' template
// bytes.
#ifndef CLIENT_LIB_CAPTURE_INFERENCE_SHAPE_MEMO_H_
#define CLIENT_LIB_CAPTURE_INFERENCE_SHAPE_MEMO_H_

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "client_lib/capture/inference/shape_inference.h"

namespace djinn::capture {

// A full memo is emptied. Not thread-safe: each thread has its own memo.
class ShapeMemo {
 public:
  // Returns null if no equal call is known. The result is valid until the next
  // Insert().
  const InferredResults* Find(uint32_t operator_id, absl::string_view bytes) {
    const auto found = entries_.find(Reference{operator_id, bytes});
    return found == entries_.end() ? nullptr : &found->second;
  }

  const InferredResults* Insert(uint32_t operator_id, absl::string_view bytes,
                                InferredResults inferred) {
    if (entries_.size() >= kMaxEntries) entries_.clear();
    return &entries_
                .insert_or_assign(Key{operator_id, std::string(bytes)},
                                  std::move(inferred))
                .first->second;
  }

 private:
  static constexpr size_t kMaxEntries = 16384;

  struct Reference {
    uint32_t operator_id;
    absl::string_view bytes;
  };
  struct Key {
    uint32_t operator_id;
    std::string bytes;
    operator Reference() const { return {operator_id, bytes}; }  // NOLINT
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(const Reference& key) const {
      return XXH3_64bits_withSeed(key.bytes.data(), key.bytes.size(),
                                  key.operator_id);
    }
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(const Reference& a, const Reference& b) const {
      return a.operator_id == b.operator_id && a.bytes == b.bytes;
    }
  };

  absl::flat_hash_map<Key, InferredResults, Hash, Equal> entries_;
};

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_INFERENCE_SHAPE_MEMO_H_
