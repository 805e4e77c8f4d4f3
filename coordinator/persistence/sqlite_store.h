// Implements a store in a file, by SQLite.
//
// A write-ahead log makes every PutIf() durable when it returns, even if the
// process or the machine dies at the next moment. The file belongs to one
// process at a time, by a lock that ends with the process. So leases in it that
// an earlier process held have ended. The file's schema has a version: files of
// newer versions are refused, and older ones are updated.
#ifndef COORDINATOR_PERSISTENCE_SQLITE_STORE_H_
#define COORDINATOR_PERSISTENCE_SQLITE_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/persistence/local_store.h"

struct sqlite3;
struct sqlite3_stmt;

namespace djinn::coordinator {

struct SqliteOptions {
  // The file's path. A new file is readable only for its owner, because it
  // holds keys.
  std::string path;
  // Largest size of the file; a write beyond it returns STORE_FULL.
  uint64_t max_bytes = uint64_t{4} << 30;
};

class SqliteStore : public LocalStore {
 public:
  // Opens the store. Returns the errors of every verb; FailedPrecondition
  // (STORE_UNUSABLE) when the file cannot be opened or written;
  // FailedPrecondition (STORE_SCHEMA) when a newer Djinn made it.
  static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(
      const SqliteOptions& options);
  ~SqliteStore() override;

  bool persistent() const override { return true; }

 protected:
  absl::StatusOr<std::vector<Entry>> Read(absl::string_view prefix) override;
  absl::StatusOr<uint64_t> Commit(absl::Span<const Write> writes) override;

 private:
  class Statement;

  SqliteStore() = default;
  absl::Status Execute(const std::string& sql);
  absl::Status Prepare(const SqliteOptions& options);
  absl::Status Migrate();
  absl::StatusOr<uint64_t> CommitInTransaction(absl::Span<const Write> writes);
  // Returns the error with which the last call on the database ended.
  absl::Status Error(int code) const;

  std::string path_;
  sqlite3* database_ = nullptr;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_PERSISTENCE_SQLITE_STORE_H_
