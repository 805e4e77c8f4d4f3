// The sessions that exist.
//
// A session is ATTACHED while its stream is open, DETACHED after that until it
// attaches again or times out, and ADOPTED when only a worker told of it. It
// ends when it is removed; if it ever had a lease, its id is kept for a while.
//
// Not thread-safe: the cluster's lock guards it.
#ifndef COORDINATOR_TABLES_SESSION_TABLE_H_
#define COORDINATOR_TABLES_SESSION_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "coordinator/tables/session.h"

namespace djinn::coordinator {

class SessionTable {
 public:
  // Ids of ended sessions kept for each tenant, so that none can push out what
  // another one needs.
  static constexpr size_t kMaxEnded = 10'000;

  // The id must be new.
  Session* Add(Session session);
  void Remove(const std::string& id);
  // Whether such a session of the tenant was removed, had a lease (without one
  // there was nothing to lose) and is among its kMaxEnded newest of these.
  bool Ended(const std::string& tenant, const std::string& id) const;

  // Null when there is none. Pointers stay valid until Remove().
  Session* Find(const std::string& id);
  // The one whose id begins so; null when there is none or several.
  Session* FindByPrefix(absl::string_view prefix);
  size_t CountOfTenant(const std::string& tenant) const;
  // Monotonic: when the first of the tenant's sessions without a stream times
  // out. Infinite when all have one.
  absl::Duration NextTimeout(const std::string& tenant) const;
  // Sessions without a stream whose deadline has come.
  std::vector<Session*> TimedOut(absl::Duration now) const;
  const std::map<std::string, std::unique_ptr<Session>>& all() const {
    return sessions_;
  }
  // By place.
  const std::map<std::string, Session*>& in_order() const { return in_order_; }

 private:
  struct EndedIds {
    absl::flat_hash_set<std::string> all;
    std::deque<std::string> oldest_first;
  };

  std::map<std::string, std::unique_ptr<Session>> sessions_;
  std::map<std::string, Session*> in_order_;
  uint64_t last_place_ = 0;
  std::map<std::string, absl::flat_hash_set<const Session*>> of_tenant_;
  std::map<std::string, EndedIds> ended_of_tenant_;
};

// The first 8 bytes.
uint64_t GraphKey(absl::string_view fingerprint);

// 128 bits in lower-case hex.
bool IsSessionId(absl::string_view text);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_SESSION_TABLE_H_
