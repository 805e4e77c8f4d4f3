// What a worker has learnt of its processor, by the names of calls: which way
// to carry them out was the fastest, and what is known of their bits. It says
// what to try first, or not to try at all; what strict mode promises is checked
// as ever, whatever stands here.
//
// It is bounded: what nobody asked for or noted for the longest time is
// forgotten first. What was handed on from process to process kMaxHandings
// times is forgotten, too, and learnt anew: one bad measurement is not for
// ever.
//
// Thread-safe.
#ifndef GPU_WORKER_DEVICE_CPU_LEARNT_FACTS_H_
#define GPU_WORKER_DEVICE_CPU_LEARNT_FACTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/hash.h"
#include "common/mutex.h"

namespace djinn::worker {

class LearntFacts {
 public:
  // Whose they are; each knows what its numbers mean.
  enum class Kind : char { kChoice = 'c', kProduct = 'p', kThreads = 't' };
  using Numbers = std::vector<int64_t>;

  static constexpr size_t kMaxFacts = 16384;
  static constexpr size_t kMaxNumbers = 8;
  static constexpr int kMaxHandings = 16;

  explicit LearntFacts(size_t max_facts = kMaxFacts) : max_facts_(max_facts) {}

  // Of the calls that are described so.
  using Name = std::pair<char, ContentHash>;
  static Name NameOf(Kind kind, absl::string_view calls);

  // Nothing if nothing is known.
  std::optional<Numbers> Find(const Name& name);
  // At most kMaxNumbers.
  void Note(const Name& name, Numbers numbers);

  // As text, for processes with this key; and back, besides what is known. An
  // error says why nothing was taken: it is of another version or key, or
  // damaged.
  std::string ToText(absl::string_view key) const;
  absl::Status AddText(absl::string_view text, absl::string_view key);

  // Grows when something else is known.
  uint64_t changes() const;
  size_t size() const;

 private:
  struct Fact {
    Numbers numbers;
    int handings = 0;
    uint64_t used = 0;
  };

  void MakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const size_t max_facts_;
  mutable Mutex mu_;
  absl::flat_hash_map<Name, Fact> facts_ ABSL_GUARDED_BY(mu_);
  uint64_t uses_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t changes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_LEARNT_FACTS_H_
