// What is known of a program from its earlier structures, for one that shows
// only a piece of it.
#ifndef SCHEDULER_SEMANTICS_CONTEXT_H_
#define SCHEDULER_SEMANTICS_CONTEXT_H_

#include <cstdint>
#include <list>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/srg/structure.h"
#include "scheduler/semantics/meaning.h"

namespace djinn::semantics {

// Of one session; bounded: the values that were made least recently go first.
// Which values are bound to a structure is not known here: a value is known
// again by its size. Not thread-safe.
class Context {
 public:
  struct Origin {
    Phase phase = Phase::kUnspecified;
    Modality modality = Modality::kUnspecified;
  };

  // A value of `bytes` was made by work of that phase and modality.
  void Remember(srg::DataType type, uint64_t bytes, Origin origin);
  // Who last made a value of that size.
  std::optional<Origin> Find(srg::DataType type, uint64_t bytes) const;

 private:
  static constexpr size_t kMaxValues = 1024;
  using Key = std::pair<srg::DataType, uint64_t>;
  struct Entry {
    Origin origin;
    std::list<Key>::iterator age;
  };

  absl::flat_hash_map<Key, Entry> values_;
  std::list<Key> ages_;  // oldest first
};

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_CONTEXT_H_
