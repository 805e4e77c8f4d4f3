// Graphs that are one but for integers that grow together, found by their
// keys (graph_builder.h): a loop over tensors that get longer has another
// key each time around. Three keys on a line make a family: in them each
// integer that varies is a + b·n. From then on the loop's graphs are this
// one, with a size hole (common/srg/size_hole.h), at n = 3, 4, 5, ...
//
// A key belongs to a family only if it is equal to the family's at some n, byte
// for byte, so that this decides what is sent, never what is computed.
//
// Bounded; least recently used operators' families go first. Not thread-safe.
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
  // Of families and of keys that are in none.
  static constexpr size_t kMaxBytes = 16 << 20;

  explicit SizeFamilies(size_t max_bytes = kMaxBytes) : max_bytes_(max_bytes) {}

  struct Member {
    // Names the family among keys: no graph has it. Valid until the next
    // call, as `hole` is.
    absl::string_view family;
    const srg::SizeHole* hole = nullptr;
    int64_t size = 0;
  };
  // The family that the key is in, which it may have made.
  std::optional<Member> Find(absl::string_view key);

 private:
  // An integer that varies.
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
  // Of keys with the same header and length.
  struct Group {
    std::string header;
    std::vector<std::unique_ptr<Family>> families;  // the newest last
    std::vector<std::string> alone;                 // likewise
    size_t bytes = 0;
  };

  static std::unique_ptr<Family> MakeFamily(absl::string_view first,
                                            absl::string_view second);
  // The newest of the group's families with the key and two before it.
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
