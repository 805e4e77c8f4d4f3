// Keeps names that a worker must be told once on each of its streams. A name
// stays until the worker has applied it.
//
// Not thread-safe: the cluster's lock guards it.
#ifndef COORDINATOR_TABLES_ORDERS_H_
#define COORDINATOR_TABLES_ORDERS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace djinn::coordinator {

class Orders {
 public:
  // Adds the name; does nothing when it is there already.
  void Add(const std::string& name) {
    if (told_.emplace(name, 0).second) untold_.insert(name);
  }
  void Remove(const std::string& name) {
    told_.erase(name);
    untold_.erase(name);
  }
  void Clear() {
    told_.clear();
    untold_.clear();
  }

  bool Contains(const std::string& name) const { return told_.contains(name); }
  bool empty() const { return told_.empty(); }
  bool HasUntold() const { return !untold_.empty(); }

  // Starts a new stream, on which no name was told yet.
  void Restart() {
    for (auto& [name, revision] : told_) {
      revision = 0;
      untold_.insert(name);
    }
  }

  // Calls `tell` with up to `most` names that this stream has not told, and
  // notes that the message with this revision tells them.
  template <typename Tell>
  void TellNew(uint64_t revision, size_t most, Tell tell) {
    for (size_t i = 0; i < most && !untold_.empty(); ++i) {
      const auto name = untold_.begin();
      told_[*name] = revision;
      tell(*name);
      untold_.erase(name);
    }
  }

  // Removes the names that the worker has applied, by its revision, and for
  // which `done` returns true. Returns how many it removed.
  template <typename Done>
  size_t RemoveApplied(uint64_t applied, Done done) {
    return std::erase_if(told_, [&](const auto& entry) {
      return entry.second > 0 && entry.second <= applied && done(entry.first);
    });
  }

 private:
  // The revision that told each name; 0 if this stream has not told it.
  std::map<std::string, uint64_t> told_;
  std::set<std::string> untold_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_ORDERS_H_
