// Records the sessions that exist.
//
// A session is ATTACHED while its stream is open, DETACHED after that until it
// attaches again or times out, and ADOPTED when the cluster knows it only from
// a worker. It ends when it is removed; if it ever had a lease, its id is kept
// for a while.
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
  // Most ids of ended sessions that are kept for each tenant, so that no tenant
  // displaces the ids of another.
  static constexpr size_t kMaxEnded = 10'000;

  // Adds a session with a new id. Returns the table's copy.
  Session* Add(Session session);
  void Remove(const std::string& id);
  // Returns whether a session of the tenant with this id was removed, had a
  // lease (without one there was nothing to lose) and is among the tenant's
  // kMaxEnded newest of these.
  bool Ended(const std::string& tenant, const std::string& id) const;

  // Returns the session, or null. Pointers stay valid until Remove().
  Session* Find(const std::string& id);
  // Returns the session whose id begins with `prefix`; null when there is none
  // or several.
  Session* FindByPrefix(absl::string_view prefix);
  size_t CountOfTenant(const std::string& tenant) const;
  // Returns the tenant's sessions without a stream, in no order.
  std::vector<Session*> WithoutStream(const std::string& tenant) const;
  // Returns the sessions without a stream whose deadline has passed.
  std::vector<Session*> TimedOut(absl::Duration now) const;
  const std::map<std::string, std::unique_ptr<Session>>& all() const {
    return sessions_;
  }
  // Returns the sessions by place, in the order in which they came.
  const std::map<std::string, Session*>& in_order() const { return in_order_; }

 private:
  struct EndedIds {
    absl::flat_hash_set<std::string> all;
    std::deque<std::string> oldest_first;
  };

  std::map<std::string, std::unique_ptr<Session>> sessions_;
  std::map<std::string, Session*> in_order_;
  uint64_t last_place_ = 0;
  std::map<std::string, absl::flat_hash_set<Session*>> of_tenant_;
  std::map<std::string, EndedIds> ended_of_tenant_;
};

// Returns the first 8 bytes of the fingerprint as a number.
uint64_t GraphKey(absl::string_view fingerprint);

// Returns whether the text is 128 bits in lower-case hex.
bool IsSessionId(absl::string_view text);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_SESSION_TABLE_H_
