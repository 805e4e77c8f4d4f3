// Finds graphs whose keys (recording.h) differ only in integers that grow
// together. A loop over growing tensors has another key in each iteration.
// Three keys make a family if each varying integer is a + b·n for the three
// numbers n. From then on the loop's graphs are one graph with a size hole
// (common/srg/size_hole.h), at sizes n.
//
// A key belongs to a family only if it equals the family's key at some n, byte
// for byte. Families therefore affect only what is sent, and never what is
// computed.
//
// Bounded: families of the least recently used operators are dropped first. Not
// thread-safe.
#ifndef CLIENT_LIB_SESSION_STREAM_SIZE_FAMILIES_H_
#define CLIENT_LIB_SESSION_STREAM_SIZE_FAMILIES_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "common/srg/graph.h"

namespace djinn {

class SizeFamilies {
 public:
  // Limit on the bytes of families and of keys that are in none.
  static constexpr size_t kMaxBytes = 16 << 20;

  explicit SizeFamilies(size_t max_bytes = kMaxBytes) : max_bytes_(max_bytes) {}

  struct Member {
    // The family's name, which takes the place of a key, and which no graph has
    // as its key. Valid until the next call, as is `hole`.
    absl::string_view family;
    const srg::SizeHole* hole = nullptr;
    int64_t size = 0;
  };
  // Returns the family that contains the key, if there is one. The key may be
  // the one that completes the family.
  std::optional<Member> Find(absl::string_view key);

 private:
  // An integer that varies within a family.
  struct Varying {
    uint32_t position;  // in the key
    int64_t slope;
  };
  struct Family {
    std::string name;  // a mark, the key at size 0, the hole
    size_t key_bytes = 0;
    std::vector<Varying> varying;
    srg::SizeHole hole;

    size_t bytes() const;
    absl::string_view base() const;
    std::optional<int64_t> SizeOf(absl::string_view key) const;
  };
  // Families and keys with the same header and length.
  struct Group {
    std::string header;
    std::vector<std::unique_ptr<Family>> families;  // the newest last
    std::vector<std::string> alone;                 // the newest last
    size_t bytes = 0;
  };

  static std::unique_ptr<Family> MakeFamily(absl::string_view first,
                                            absl::string_view second);
  // Makes a family from the key and two earlier keys of the group, the newest
  // ones possible. Returns null if there is no such family.
  static std::unique_ptr<Family> FindLine(const Group& group,
                                          absl::string_view key);
  Group& GroupOf(absl::string_view key);
  void Keep(Group* group, std::unique_ptr<Family> family);
  void Keep(Group* group, absl::string_view key);
  void Grow(Group* group, size_t added, size_t removed);
  void Shrink();

  const size_t max_bytes_;
  size_t bytes_ = 0;
  std::list<Group> by_use_;  // most recently used first
  absl::flat_hash_map<absl::string_view, std::list<Group>::iterator> by_header_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_STREAM_SIZE_FAMILIES_H_
