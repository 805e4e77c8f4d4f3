#include "coordinator/persistence/local_store.h"

#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace djinn::coordinator {

// A lease as an entry, encoded as "TERM EXPIRY OWNER", with the expiry in
// nanoseconds since 1970.
struct LocalStore::StoredLease {
  uint64_t term = 0;
  int64_t expiry = 0;
  std::string owner;

  std::string Encode() const {
    return absl::StrCat(term, " ", expiry, " ", owner);
  }

  static absl::StatusOr<StoredLease> Decode(const Entry& entry) {
    StoredLease lease;
    const std::vector<std::string> parts =
        absl::StrSplit(entry.value, absl::MaxSplits(' ', 2));
    if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &lease.term) ||
        !absl::SimpleAtoi(parts[1], &lease.expiry)) {
      return MakeError(absl::StatusCode::kDataLoss, "STORE_CORRUPT",
                       absl::StrCat("\"", entry.key, "\" is no lease"));
    }
    lease.owner = parts[2];
    return lease;
  }
};

absl::Status LocalStore::CheckVersion(const Write& write, uint64_t version) {
  if (!write.expected.has_value() || *write.expected == version) {
    return absl::OkStatus();
  }
  return MakeError(absl::StatusCode::kAborted, "STORE_CONFLICT",
                   absl::StrCat("\"", write.key, "\" has version ", version,
                                ", expected is ", *write.expected));
}

absl::StatusOr<std::vector<Store::Entry>> LocalStore::Get(
    absl::string_view prefix) {
  MutexLock lock(&mu_);
  return Read(prefix);
}

absl::StatusOr<uint64_t> LocalStore::PutIf(absl::Span<const Write> writes) {
  MutexLock lock(&mu_);
  return PutLocked(writes);
}

absl::StatusOr<uint64_t> LocalStore::PutLocked(absl::Span<const Write> writes) {
  std::set<absl::string_view> keys;
  for (const Write& write : writes) {
    if (write.key.empty() || !keys.insert(write.key).second) {
      return MakeError(
          absl::StatusCode::kInvalidArgument, "STORE_BAD_KEY",
          absl::StrCat("\"", write.key, "\" is empty or written twice"));
    }
  }
  return Commit(writes);
}

absl::Status LocalStore::EndLeases() {
  MutexLock lock(&mu_);
  DJINN_ASSIGN_OR_RETURN(const std::vector<Entry> entries, Read("held/"));
  std::vector<Write> writes;
  for (const Entry& entry : entries) {
    DJINN_ASSIGN_OR_RETURN(StoredLease lease, StoredLease::Decode(entry));
    lease.expiry = 0;
    writes.push_back({entry.key, lease.Encode(), {}});
  }
  if (writes.empty()) return absl::OkStatus();
  return PutLocked(writes).status();
}

absl::StatusOr<LocalStore::StoredLease> LocalStore::ReadLease(
    const std::string& key, uint64_t* version) {
  DJINN_ASSIGN_OR_RETURN(const std::vector<Entry> entries, Read(key));
  *version = 0;
  for (const Entry& entry : entries) {
    if (entry.key != key) continue;
    *version = entry.version;
    return StoredLease::Decode(entry);
  }
  return StoredLease();
}

absl::StatusOr<Store::Lease> LocalStore::Acquire(absl::string_view name,
                                                 absl::string_view owner,
                                                 absl::Time now,
                                                 absl::Duration ttl) {
  const std::string key = absl::StrCat("held/", name);
  MutexLock lock(&mu_);
  uint64_t version = 0;
  DJINN_ASSIGN_OR_RETURN(StoredLease lease, ReadLease(key, &version));
  const absl::Time expiry = absl::FromUnixNanos(lease.expiry);
  if (lease.owner != owner) {
    if (!lease.owner.empty() && now < expiry) {
      return MakeError(
          absl::StatusCode::kAborted, "STORE_LEASE_HELD",
          absl::StrCat("\"", name, "\" is held by ", lease.owner, " until ",
                       absl::FormatTime(expiry, absl::UTCTimeZone())),
          {{"owner", lease.owner}});
    }
    ++lease.term;
    lease.owner = std::string(owner);
  }
  lease.expiry = absl::ToUnixNanos(now + ttl);
  const Write write = {key, lease.Encode(), version};
  DJINN_RETURN_IF_ERROR(PutLocked({&write, 1}).status());
  return Lease{lease.term, now + ttl};
}

absl::Status LocalStore::Release(absl::string_view name,
                                 absl::string_view owner) {
  const std::string key = absl::StrCat("held/", name);
  MutexLock lock(&mu_);
  uint64_t version = 0;
  DJINN_ASSIGN_OR_RETURN(StoredLease lease, ReadLease(key, &version));
  if (lease.owner != owner || lease.owner.empty()) return absl::OkStatus();
  lease.expiry = 0;
  // The next holder gets another term, even if it is the same one.
  lease.owner.clear();
  const Write write = {key, lease.Encode(), version};
  return PutLocked({&write, 1}).status();
}

}  // namespace djinn::coordinator
