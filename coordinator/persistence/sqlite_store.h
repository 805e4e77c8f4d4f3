// A store in a file, by SQLite.
//
// A write-ahead log makes every PutIf() durable when it returns, also when the
// process or the machine dies in the next moment. The file belongs to one
// process at a time, by a lock that ends with the process; leases that an
// earlier one held in it have ended, therefore. Its schema has a version: files
// of newer ones are refused, older ones are brought up to date.
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
  // Made if it is not there, readable for its owner only: it holds keys.
  std::string path;
  // Of the file; more is STORE_FULL.
  uint64_t max_bytes = uint64_t{4} << 30;
};

class SqliteStore : public LocalStore {
 public:
  // Besides the errors of every verb: FailedPrecondition (STORE_UNUSABLE) when
  // the file cannot be opened or written; (STORE_SCHEMA) when a newer Djinn
  // made it.
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
  // The error that the last call on the database ended with.
  absl::Status Error(int code) const;

  std::string path_;
  sqlite3* database_ = nullptr;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_PERSISTENCE_SQLITE_STORE_H_
