// Implements a store that ends with its process: for tests, and for
// coordinators that keep nothing.
#ifndef COORDINATOR_PERSISTENCE_MEMORY_STORE_H_
#define COORDINATOR_PERSISTENCE_MEMORY_STORE_H_

#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "common/base/status_macros.h"
#include "coordinator/persistence/local_store.h"

namespace djinn::coordinator {

class MemoryStore : public LocalStore {
 public:
  bool persistent() const override { return false; }

 protected:
  absl::StatusOr<std::vector<Entry>> Read(absl::string_view prefix) override {
    std::vector<Entry> entries;
    for (auto entry = entries_.lower_bound(std::string(prefix));
         entry != entries_.end() && absl::StartsWith(entry->first, prefix);
         ++entry) {
      entries.push_back(entry->second);
    }
    return entries;
  }

  absl::StatusOr<uint64_t> Commit(absl::Span<const Write> writes) override {
    for (const Write& write : writes) {
      const auto found = entries_.find(write.key);
      DJINN_RETURN_IF_ERROR(CheckVersion(
          write, found == entries_.end() ? 0 : found->second.version));
    }
    ++revision_;
    for (const Write& write : writes) {
      if (write.value.has_value()) {
        entries_[write.key] = {write.key, *write.value, revision_};
      } else {
        entries_.erase(write.key);
      }
    }
    return revision_;
  }

 private:
  // Entries by key. The base class serialises calls.
  std::map<std::string, Entry> entries_;
  uint64_t revision_ = 0;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_PERSISTENCE_MEMORY_STORE_H_
