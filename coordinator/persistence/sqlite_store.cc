#include "coordinator/persistence/sqlite_store.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/io/secret_file.h"

namespace djinn::coordinator {
namespace {

constexpr int kSchemaVersion = 1;
// How long to wait until another process, which is ending, lets go of the file.
constexpr int kBusyMilliseconds = 2000;
constexpr uint64_t kPageBytes = 4096;

// The SQL that updates each version to the next.
constexpr const char* kMigrations[kSchemaVersion] = {
    "CREATE TABLE entries (key BLOB PRIMARY KEY, value BLOB NOT NULL, "
    "version INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE revision (id INTEGER PRIMARY KEY CHECK (id = 0), "
    "value INTEGER NOT NULL);"
    "INSERT INTO revision VALUES (0, 0);",
};

}  // namespace

// A prepared statement. Step() returns the errors of binding.
class SqliteStore::Statement {
 public:
  Statement(sqlite3* database, const char* sql) {
    code_ = sqlite3_prepare_v2(database, sql, -1, &statement_, nullptr);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& Bind(int at, absl::string_view bytes) {
    // A null pointer would bind NULL rather than an empty value.
    const char* const data = bytes.empty() ? "" : bytes.data();
    if (code_ == SQLITE_OK) {
      code_ = sqlite3_bind_blob64(statement_, at, data, bytes.size(),
                                  SQLITE_TRANSIENT);
    }
    return *this;
  }
  Statement& Bind(int at, uint64_t number) {
    if (code_ == SQLITE_OK) {
      code_ = sqlite3_bind_int64(statement_, at,
                                 static_cast<sqlite3_int64>(number));
    }
    return *this;
  }
  // Returns SQLITE_ROW, SQLITE_DONE or an error.
  int Step() {
    if (code_ != SQLITE_OK) return code_;
    return sqlite3_step(statement_);
  }
  void Reset() { sqlite3_reset(statement_); }

  std::string Bytes(int column) {
    const void* const data = sqlite3_column_blob(statement_, column);
    return std::string(
        static_cast<const char*>(data),
        static_cast<size_t>(sqlite3_column_bytes(statement_, column)));
  }
  uint64_t Number(int column) {
    return static_cast<uint64_t>(sqlite3_column_int64(statement_, column));
  }

 private:
  sqlite3_stmt* statement_ = nullptr;
  int code_ = SQLITE_OK;
};

absl::Status SqliteStore::Error(int code) const {
  const auto error = [&](absl::StatusCode status, const char* reason) {
    return MakeError(
        status, reason,
        absl::StrCat(path_, ": ",
                     database_ == nullptr ? sqlite3_errstr(code)
                                          : sqlite3_errmsg(database_)),
        {{"path", path_}});
  };
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return error(absl::StatusCode::kUnavailable, "STORE_LOCKED");
    case SQLITE_FULL:
      return error(absl::StatusCode::kResourceExhausted, "STORE_FULL");
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return error(absl::StatusCode::kDataLoss, "STORE_CORRUPT");
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return error(absl::StatusCode::kFailedPrecondition, "STORE_UNUSABLE");
    default:
      return error(absl::StatusCode::kUnavailable, "STORE_IO");
  }
}

absl::StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::Open(
    const SqliteOptions& options) {
  auto store = absl::WrapUnique(new SqliteStore);
  store->path_ = options.path;
  const int file = open(options.path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC,
                        S_IRUSR | S_IWUSR);
  if (file < 0) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "STORE_UNUSABLE",
                     absl::StrCat(options.path, ": ", std::strerror(errno)),
                     {{"path", options.path}});
  }
  close(file);
  // The file holds the keys that sign leases.
  DJINN_RETURN_IF_ERROR(CheckSecretFile(options.path));
  const int code =
      sqlite3_open_v2(options.path.c_str(), &store->database_,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_FULLMUTEX, nullptr);
  if (code != SQLITE_OK) return store->Error(code);
  DJINN_RETURN_IF_ERROR(store->Prepare(options));
  DJINN_RETURN_IF_ERROR(store->Migrate());
  DJINN_RETURN_IF_ERROR(store->EndLeases());
  return store;
}

SqliteStore::~SqliteStore() { sqlite3_close_v2(database_); }

absl::Status SqliteStore::Execute(const std::string& sql) {
  const int code =
      sqlite3_exec(database_, sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Error(code);
}

absl::Status SqliteStore::Prepare(const SqliteOptions& options) {
  sqlite3_busy_timeout(database_, kBusyMilliseconds);
  // The first use takes the file's lock and keeps it.
  DJINN_RETURN_IF_ERROR(Execute("PRAGMA locking_mode = EXCLUSIVE"));
  DJINN_RETURN_IF_ERROR(Execute("PRAGMA journal_mode = WAL"));
  DJINN_RETURN_IF_ERROR(Execute("PRAGMA synchronous = FULL"));
  DJINN_RETURN_IF_ERROR(Execute(absl::StrCat(
      "PRAGMA max_page_count = ", options.max_bytes / kPageBytes + 1)));
  DJINN_RETURN_IF_ERROR(Execute("BEGIN EXCLUSIVE"));
  return Execute("COMMIT");
}

absl::Status SqliteStore::Migrate() {
  uint64_t version = 0;
  {
    Statement statement(database_, "PRAGMA user_version");
    const int code = statement.Step();
    if (code != SQLITE_ROW) return Error(code);
    version = statement.Number(0);
  }
  if (version > kSchemaVersion) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "STORE_SCHEMA",
                     absl::StrCat(path_, " has schema ", version,
                                  ", this program knows ", kSchemaVersion),
                     {{"path", path_}});
  }
  for (; version < kSchemaVersion; ++version) {
    const absl::Status status =
        Execute(absl::StrCat("BEGIN IMMEDIATE;", kMigrations[version],
                             "PRAGMA user_version = ", version + 1, ";COMMIT"));
    if (!status.ok()) {
      Execute("ROLLBACK").IgnoreError();
      return status;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Store::Entry>> SqliteStore::Read(
    absl::string_view prefix) {
  const std::string after = KeyAfterPrefix(prefix);
  Statement statement(
      database_,
      after.empty() ? "SELECT key, value, version FROM entries WHERE key >= ?1 "
                      "ORDER BY key"
                    : "SELECT key, value, version FROM entries WHERE key >= ?1 "
                      "AND key < ?2 ORDER BY key");
  statement.Bind(1, prefix);
  if (!after.empty()) statement.Bind(2, absl::string_view(after));
  std::vector<Entry> entries;
  for (;;) {
    const int code = statement.Step();
    if (code == SQLITE_DONE) return entries;
    if (code != SQLITE_ROW) return Error(code);
    entries.push_back(
        {statement.Bytes(0), statement.Bytes(1), statement.Number(2)});
  }
}

absl::StatusOr<uint64_t> SqliteStore::Commit(absl::Span<const Write> writes) {
  DJINN_RETURN_IF_ERROR(Execute("BEGIN IMMEDIATE"));
  absl::StatusOr<uint64_t> revision = CommitInTransaction(writes);
  if (revision.ok()) {
    const absl::Status committed = Execute("COMMIT");
    if (committed.ok()) return revision;
    revision = committed;
  }
  // Has no effect if the error has rolled the transaction back by itself.
  Execute("ROLLBACK").IgnoreError();
  return revision;
}

absl::StatusOr<uint64_t> SqliteStore::CommitInTransaction(
    absl::Span<const Write> writes) {
  Statement next(database_,
                 "UPDATE revision SET value = value + 1 RETURNING value");
  int code = next.Step();
  if (code != SQLITE_ROW) return Error(code);
  const uint64_t revision = next.Number(0);
  next.Reset();
  for (const Write& write : writes) {
    if (write.expected.has_value()) {
      Statement find(database_, "SELECT version FROM entries WHERE key = ?1");
      code = find.Bind(1, absl::string_view(write.key)).Step();
      if (code != SQLITE_ROW && code != SQLITE_DONE) return Error(code);
      DJINN_RETURN_IF_ERROR(
          CheckVersion(write, code == SQLITE_ROW ? find.Number(0) : 0));
    }
    if (write.value.has_value()) {
      Statement put(database_,
                    "INSERT INTO entries VALUES (?1, ?2, ?3) ON CONFLICT (key) "
                    "DO UPDATE SET value = ?2, version = ?3");
      code = put.Bind(1, absl::string_view(write.key))
                 .Bind(2, absl::string_view(*write.value))
                 .Bind(3, revision)
                 .Step();
    } else {
      Statement remove(database_, "DELETE FROM entries WHERE key = ?1");
      code = remove.Bind(1, absl::string_view(write.key)).Step();
    }
    if (code != SQLITE_DONE) return Error(code);
  }
  return revision;
}

}  // namespace djinn::coordinator
