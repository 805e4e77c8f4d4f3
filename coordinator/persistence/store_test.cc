// Tests every store, and the behaviour of the file store when its process, its
// disk or its file fails.
#include "coordinator/persistence/store.h"

#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/error.h"
#include "common/base/random.h"
#include "common/net/socket.h"
#include "coordinator/persistence/etcd_client.h"
#include "coordinator/persistence/etcd_store.h"
#include "coordinator/persistence/memory_store.h"
#include "coordinator/persistence/sqlite_store.h"
#include "coordinator/testing/etcd_server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string NewPath() {
  static int files = 0;
  const std::string path =
      absl::StrCat(testing::TempDir(), "/store", getpid(), "_", ++files, ".db");
  unlink(path.c_str());
  return path;
}

std::vector<std::string> Keys(Store* store, const std::string& prefix = "") {
  std::vector<std::string> keys;
  const std::vector<Store::Entry> entries = store->Get(prefix).value();
  for (const Store::Entry& entry : entries) {
    keys.push_back(entry.key);
  }
  return keys;
}

absl::StatusOr<uint64_t> Put(Store* store, const std::string& key,
                             const std::string& value,
                             std::optional<uint64_t> expected = {}) {
  const Store::Write write = {key, value, expected};
  return store->PutIf({&write, 1});
}

enum class Kind { kMemory, kSqlite, kEtcd };

// Returns the server that the tests share.
EtcdServer* Etcd() {
  static const std::unique_ptr<EtcdServer>* const server = [] {
    auto started = EtcdServer::Start();
    EXPECT_TRUE(started.ok()) << started.status();
    return new std::unique_ptr<EtcdServer>(started.ok() ? *std::move(started)
                                                        : nullptr);
  }();
  return server->get();
}

// Makes a store on the shared server, with keys of its own.
std::unique_ptr<EtcdStore> NewEtcdStore(const std::string& prefix) {
  EtcdServer* const server = Etcd();
  if (server == nullptr) return nullptr;
  EtcdOptions options;
  options.client.endpoints = {server->endpoint()};
  options.client.timeout = absl::Seconds(10);
  options.prefix = prefix;
  return EtcdStore::Make(options, RandomSource::Real()).value();
}

std::string NewPrefix() {
  static int prefixes = 0;
  return absl::StrCat("test/", ++prefixes);
}

// Tests what every implementation promises.
class StoreTest : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    switch (GetParam()) {
      case Kind::kMemory:
        store_ = std::make_unique<MemoryStore>();
        break;
      case Kind::kSqlite: {
        auto opened = SqliteStore::Open({NewPath()});
        ASSERT_TRUE(opened.ok()) << opened.status();
        store_ = *std::move(opened);
        break;
      }
      case Kind::kEtcd:
        store_ = NewEtcdStore(NewPrefix());
        ASSERT_NE(store_, nullptr);
        break;
    }
  }

  // Acquires a lease that another owner holds until `expiry`, once it has
  // ended. etcd counts the time by itself.
  absl::StatusOr<Store::Lease> AcquireAfter(const std::string& name,
                                            const std::string& owner,
                                            absl::Time expiry,
                                            absl::Duration ttl) {
    for (int i = 0; i < 1000; ++i) {
      const auto lease = store_->Acquire(name, owner, expiry, ttl);
      if (GetParam() != Kind::kEtcd ||
          ErrorReason(lease.status()) != "STORE_LEASE_HELD") {
        return lease;
      }
      absl::SleepFor(absl::Milliseconds(20));
    }
    return absl::DeadlineExceededError("the lease does not end");
  }

  std::unique_ptr<Store> store_;
};

TEST_P(StoreTest, KeepsValuesByPrefixInOrder) {
  EXPECT_THAT(Keys(store_.get()), IsEmpty());
  for (const char* key : {"b/2", "a", "b/1", "c", "b"}) {
    ASSERT_TRUE(Put(store_.get(), key, absl::StrCat("of ", key)).ok());
  }
  EXPECT_THAT(Keys(store_.get()), ElementsAre("a", "b", "b/1", "b/2", "c"));
  EXPECT_THAT(Keys(store_.get(), "b/"), ElementsAre("b/1", "b/2"));
  EXPECT_EQ(store_->Get("b/2")->at(0).value, "of b/2");
  // Keys and values are bytes, not text.
  const std::string bytes("\0\xff'\n", 4);
  ASSERT_TRUE(Put(store_.get(), "\xff", bytes).ok());
  EXPECT_EQ(store_->Get("\xff")->at(0).value, bytes);
  ASSERT_TRUE(Put(store_.get(), "empty", "").ok());
  EXPECT_EQ(store_->Get("empty")->at(0).value, "");
}

TEST_P(StoreTest, PutsOnlyIfVersionsAreAsExpected) {
  const uint64_t first = Put(store_.get(), "a", "1", 0).value();
  EXPECT_EQ(store_->Get("a")->at(0).version, first);
  EXPECT_EQ(ErrorReason(Put(store_.get(), "a", "2", 0).status()),
            "STORE_CONFLICT");
  const uint64_t second = Put(store_.get(), "a", "2", first).value();
  EXPECT_GT(second, first);
  EXPECT_EQ(ErrorReason(Put(store_.get(), "a", "3", first).status()),
            "STORE_CONFLICT");
  EXPECT_EQ(store_->Get("a")->at(0).value, "2");
}

TEST_P(StoreTest, AllOrNothing) {
  ASSERT_TRUE(Put(store_.get(), "a", "1").ok());
  const std::vector<Store::Write> writes = {
      {"new", "x", 0}, {"a", std::nullopt, {}}, {"missing", "y", 7}};
  const absl::Status status = store_->PutIf(writes).status();
  EXPECT_EQ(ErrorReason(status), "STORE_CONFLICT");
  EXPECT_NE(status.message().find("missing"), std::string::npos);
  EXPECT_THAT(Keys(store_.get()), ElementsAre("a"));
  const std::vector<Store::Write> good = {{"new", "x", 0},
                                          {"a", std::nullopt, {}}};
  ASSERT_TRUE(store_->PutIf(good).ok());
  EXPECT_THAT(Keys(store_.get()), ElementsAre("new"));
  // Removing an absent key is no error.
  ASSERT_TRUE(store_->PutIf({good[1]}).ok());
}

TEST_P(StoreTest, RefusesKeysThatAreNone) {
  EXPECT_EQ(ErrorReason(Put(store_.get(), "", "x").status()), "STORE_BAD_KEY");
  const std::vector<Store::Write> twice = {{"a", "1", {}}, {"a", "2", {}}};
  EXPECT_EQ(ErrorReason(store_->PutIf(twice).status()), "STORE_BAD_KEY");
  EXPECT_THAT(Keys(store_.get()), IsEmpty());
}

TEST_P(StoreTest, ALeaseHasOneHolderAndTermsGrow) {
  const absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  const absl::Duration ttl = absl::Seconds(3);
  EXPECT_EQ(store_->Acquire("leader", "a", now, ttl)->term, 1u);
  const absl::Status held = store_->Acquire("leader", "b", now, ttl).status();
  EXPECT_EQ(ErrorReason(held), "STORE_LEASE_HELD");
  EXPECT_EQ(ErrorMetadataValue(held, "owner"), "a");
  EXPECT_NE(held.message().find("held by a until"), std::string::npos);
  // A renewed lease keeps its term.
  const auto renewed = store_->Acquire("leader", "a", now + ttl / 2, ttl);
  EXPECT_EQ(renewed->term, 1u);
  EXPECT_EQ(renewed->expiry, now + ttl * 1.5);
  EXPECT_EQ(
      ErrorReason(store_->Acquire("leader", "b", now + ttl, ttl).status()),
      "STORE_LEASE_HELD");
  EXPECT_EQ(AcquireAfter("leader", "b", now + ttl * 1.5, ttl)->term, 2u);
  EXPECT_EQ(ErrorReason(
                store_->Acquire("leader", "a", now + ttl * 1.5, ttl).status()),
            "STORE_LEASE_HELD");
  EXPECT_EQ(store_->Acquire("other", "b", now, ttl)->term, 1u);
}

TEST_P(StoreTest, AReleasedLeaseIsFreeAtOnceAndItsNextTermIsLarger) {
  const absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  const absl::Duration ttl = absl::Hours(1);
  // No process holds the lease yet.
  EXPECT_TRUE(store_->Release("leader", "a").ok());
  EXPECT_EQ(store_->Acquire("leader", "a", now, ttl)->term, 1u);
  // Only its holder can release it.
  EXPECT_TRUE(store_->Release("leader", "b").ok());
  EXPECT_EQ(ErrorReason(store_->Acquire("leader", "b", now, ttl).status()),
            "STORE_LEASE_HELD");
  EXPECT_TRUE(store_->Release("leader", "a").ok());
  EXPECT_EQ(store_->Acquire("leader", "b", now, ttl)->term, 2u);
  EXPECT_TRUE(store_->Release("leader", "b").ok());
  EXPECT_EQ(store_->Acquire("leader", "b", now, ttl)->term, 3u);
}

// Returns `count` writes of `bytes` each, to keys "many/0", "many/1", ...
std::vector<Store::Write> ManyWrites(int count, size_t bytes) {
  std::vector<Store::Write> writes;
  for (int i = 0; i < count; ++i) {
    writes.push_back({absl::StrCat("many/", i),
                      absl::StrCat(i, std::string(bytes, 'x')),
                      {}});
  }
  return writes;
}

TEST_P(StoreTest, ManyWritesAreOneChange) {
  const uint64_t first = Put(store_.get(), "fence", "1", 0).value();
  ASSERT_TRUE(Put(store_.get(), "old", "1").ok());
  // More operations, and more bytes, than one transaction of etcd may have.
  std::vector<Store::Write> writes = ManyWrites(350, 10'000);
  writes.push_back({"old", std::nullopt, {}});
  writes.push_back({"fence", "2", first + 1000});
  EXPECT_EQ(ErrorReason(store_->PutIf(writes).status()), "STORE_CONFLICT");
  EXPECT_THAT(Keys(store_.get()), ElementsAre("fence", "old"));
  writes.back().expected = first;
  const absl::StatusOr<uint64_t> revision = store_->PutIf(writes);
  ASSERT_TRUE(revision.ok()) << revision.status();
  EXPECT_THAT(Keys(store_.get(), "many/"), SizeIs(350));
  EXPECT_THAT(Keys(store_.get(), "old"), IsEmpty());
  EXPECT_EQ(store_->Get("many/349")->at(0).value,
            absl::StrCat(349, std::string(10'000, 'x')));
  // The revision is the version of what was written with an expectation.
  EXPECT_EQ(store_->Get("fence")->at(0).version, *revision);
  EXPECT_TRUE(Put(store_.get(), "fence", "3", *revision).ok());
}

INSTANTIATE_TEST_SUITE_P(Stores, StoreTest,
                         testing::Values(Kind::kMemory, Kind::kSqlite,
                                         Kind::kEtcd),
                         [](const auto& info) -> std::string {
                           switch (info.param) {
                             case Kind::kMemory:
                               return "Memory";
                             case Kind::kSqlite:
                               return "Sqlite";
                             case Kind::kEtcd:
                               return "Etcd";
                           }
                           return "";
                         });

TEST(EtcdStoreTest, AJournalThatItsWriterLeftIsFinishedByTheNextReader) {
  const std::string prefix = NewPrefix();
  const auto store = NewEtcdStore(prefix);
  ASSERT_NE(store, nullptr);
  ASSERT_TRUE(Put(store.get(), "gone", "1").ok());
  // A writer that ends right after the commit leaves two parts.
  EtcdClientOptions options;
  options.endpoints = {Etcd()->endpoint()};
  const auto client = EtcdClient::Make(options).value();
  const auto put = [&](const std::string& key, const std::string& value) {
    etcdserverpb::TxnRequest txn;
    auto* const op = txn.add_success()->mutable_request_put();
    op->set_key(prefix + key);
    op->set_value(value);
    ASSERT_TRUE(client->Txn(txn).ok());
  };
  etcdserverpb::TxnRequest part;
  auto* op = part.add_success()->mutable_request_put();
  op->set_key(prefix + "/state/a");
  op->set_value("1");
  put("/journal/begun", "j");
  put("/journal/parts/j/00000000", part.SerializeAsString());
  part.Clear();
  part.add_success()->mutable_request_delete_range()->set_key(prefix +
                                                              "/state/gone");
  op = part.add_success()->mutable_request_put();
  op->set_key(prefix + "/state/b");
  op->set_value("2");
  put("/journal/parts/j/00000001", part.SerializeAsString());
  // Before its commit, a journal is nothing.
  EXPECT_THAT(Keys(store.get()), ElementsAre("gone"));
  put("/journal/committed", "j 2");
  // A writer finishes it, too.
  ASSERT_TRUE(Put(store.get(), "c", "3").ok());
  EXPECT_THAT(Keys(store.get()), ElementsAre("a", "b", "c"));
  etcdserverpb::RangeRequest journal;
  journal.set_key(prefix + "/journal/");
  journal.set_range_end(KeyAfterPrefix(journal.key()));
  EXPECT_EQ(client->Range(journal)->kvs_size(), 0);
}

TEST(EtcdStoreTest, StoresWithOtherPrefixesSeeNothingOfEachOther) {
  const auto a = NewEtcdStore(NewPrefix());
  const auto b = NewEtcdStore(NewPrefix());
  ASSERT_NE(a, nullptr);
  ASSERT_TRUE(Put(a.get(), "key", "1").ok());
  EXPECT_THAT(Keys(b.get()), IsEmpty());
  const absl::Time now = absl::Now();
  EXPECT_TRUE(a->Acquire("leader", "a", now, absl::Hours(1)).ok());
  EXPECT_TRUE(b->Acquire("leader", "b", now, absl::Hours(1)).ok());
}

TEST(EtcdStoreTest, AValueThatEtcdCannotHoldChangesNothing) {
  const auto store = NewEtcdStore(NewPrefix());
  ASSERT_NE(store, nullptr);
  const std::vector<Store::Write> writes = {
      {"small", "1", {}}, {"large", std::string(2 << 20, 'x'), {}}};
  const absl::Status status = store->PutIf(writes).status();
  EXPECT_EQ(ErrorReason(status), "STORE_FULL");
  EXPECT_NE(status.message().find("\"large\""), std::string::npos);
  EXPECT_THAT(Keys(store.get()), IsEmpty());
}

TEST(EtcdStoreTest, AnAbsentServerIsAnErrorAndAnotherOneIsAsked) {
  const auto dead = Listen("127.0.0.1:0").value().address;
  EtcdOptions options;
  options.client.endpoints = {dead};
  options.client.timeout = absl::Milliseconds(300);
  options.prefix = NewPrefix();
  auto store = EtcdStore::Make(options, RandomSource::Real()).value();
  EXPECT_EQ(ErrorReason(store->Get("").status()), "STORE_UNREACHABLE");
  EXPECT_EQ(ErrorReason(Put(store.get(), "a", "1").status()),
            "STORE_UNREACHABLE");
  EXPECT_EQ(
      ErrorReason(store->Acquire("leader", "a", absl::Now(), absl::Seconds(5))
                      .status()),
      "STORE_UNREACHABLE");
  ASSERT_NE(Etcd(), nullptr);
  options.client.endpoints.push_back(Etcd()->endpoint());
  options.client.timeout = absl::Seconds(10);
  store = EtcdStore::Make(options, RandomSource::Real()).value();
  EXPECT_TRUE(store->Get("").ok());
  EXPECT_TRUE(Put(store.get(), "a", "1").ok());
}

TEST(EtcdStoreTest, EntriesAndTermsSurviveAServerThatIsKilled) {
  auto server = EtcdServer::Start();
  ASSERT_TRUE(server.ok()) << server.status();
  EtcdOptions options;
  options.client.endpoints = {(*server)->endpoint()};
  options.client.timeout = absl::Seconds(10);
  const auto store = EtcdStore::Make(options, RandomSource::Real()).value();
  const absl::Time now = absl::Now();
  ASSERT_EQ(store->Acquire("leader", "a", now, absl::Hours(1))->term, 1u);
  ASSERT_TRUE(Put(store.get(), "a", "1").ok());
  (*server)->Kill();
  ASSERT_TRUE((*server)->Restart().ok());
  EXPECT_EQ(store->Get("a")->at(0).value, "1");
  EXPECT_EQ(store->Acquire("leader", "a", now, absl::Hours(1))->term, 1u);
  ASSERT_TRUE(store->Release("leader", "a").ok());
  EXPECT_EQ(store->Acquire("leader", "b", now, absl::Hours(1))->term, 2u);
}

// Reports from the child that it has written `i`.
void Say(int fd, int i) {
  const std::string line = absl::StrCat(i, "\n");
  if (write(fd, line.data(), line.size()) < 0) _exit(3);
}

TEST(SqliteStoreTest, SurvivesAKillInTheMiddleOfWriting) {
  const std::string path = NewPath();
  int said = 0;
  for (int round = 0; round < 5; ++round) {
    int pipe_fds[2];
    ASSERT_EQ(pipe(pipe_fds), 0);
    const pid_t child = fork();
    if (child == 0) {
      // Writes pairs of keys that must agree, as fast as possible.
      auto store = SqliteStore::Open({path});
      if (!store.ok()) _exit(1);
      for (int i = said + 1;; ++i) {
        const std::string value = absl::StrCat(i);
        const std::vector<Store::Write> writes = {
            {"a", value, {}},
            {"b", value, {}},
            {absl::StrCat("many/", i % 100), std::string(10000, 'x'), {}}};
        if (!(*store)->PutIf(writes).ok()) _exit(2);
        Say(pipe_fds[1], i);
      }
    }
    close(pipe_fds[1]);
    std::string output;
    char buffer[256];
    // Kills the child after it has written a few more.
    const int enough = said + 20 + 7 * round;
    while (said < enough) {
      const ssize_t size = read(pipe_fds[0], buffer, sizeof(buffer));
      ASSERT_GT(size, 0) << "the child ended";
      output.append(buffer, static_cast<size_t>(size));
      for (size_t end; (end = output.find('\n')) != std::string::npos;) {
        ASSERT_TRUE(absl::SimpleAtoi(output.substr(0, end), &said));
        output.erase(0, end + 1);
      }
    }
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int status;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    close(pipe_fds[0]);
    auto store = SqliteStore::Open({path});
    ASSERT_TRUE(store.ok()) << store.status();
    const std::string a = (*store)->Get("a")->at(0).value;
    EXPECT_EQ(a, (*store)->Get("b")->at(0).value);
    int kept = 0;
    ASSERT_TRUE(absl::SimpleAtoi(a, &kept));
    // The store has everything that was reported, and at most what was about to
    // be.
    EXPECT_GE(kept, said);
    said = kept;
  }
}

TEST(SqliteStoreTest, LeasesEndWithTheProcessThatHeldThem) {
  const std::string path = NewPath();
  const absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  {
    auto store = SqliteStore::Open({path}).value();
    EXPECT_EQ(store->Acquire("leader", "a", now, absl::Hours(1))->term, 1u);
  }
  auto store = SqliteStore::Open({path}).value();
  EXPECT_EQ(store->Acquire("leader", "b", now, absl::Hours(1))->term, 2u);
}

TEST(SqliteStoreTest, BelongsToOneProcess) {
  const std::string path = NewPath();
  auto store = SqliteStore::Open({path});
  ASSERT_TRUE(store.ok());
  const pid_t child = fork();
  if (child == 0) {
    const absl::Status status = SqliteStore::Open({path}).status();
    _exit(ErrorReason(status) == "STORE_LOCKED" ? 0 : 1);
  }
  int status;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(SqliteStoreTest, AFullDiskIsAnErrorAndLosesNothing) {
  SqliteOptions options = {NewPath()};
  options.max_bytes = 200'000;
  auto store = SqliteStore::Open(options).value();
  ASSERT_TRUE(Put(store.get(), "small", "x").ok());
  const absl::Status full =
      Put(store.get(), "large", std::string(1 << 20, 'x')).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrorReason(full), "STORE_FULL");
  EXPECT_THAT(Keys(store.get()), ElementsAre("small"));
  // Smaller values still fit.
  EXPECT_TRUE(Put(store.get(), "other", "y").ok());
}

TEST(SqliteStoreTest, IsForItsOwnerOnly) {
  const std::string path = NewPath();
  const auto store = SqliteStore::Open({path});
  ASSERT_TRUE(store.ok());
  struct stat info{};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST(SqliteStoreTest, RefusesWhatIsNoStoreOfItsOwn) {
  std::string path = NewPath();
  std::ofstream(path) << std::string(10000, 'x');
  EXPECT_EQ(ErrorReason(SqliteStore::Open({path}).status()), "STORE_CORRUPT");
  EXPECT_EQ(
      ErrorReason(SqliteStore::Open({testing::TempDir() + "/none/x"}).status()),
      "STORE_UNUSABLE");
  path = NewPath();
  {
    ASSERT_TRUE(SqliteStore::Open({path}).ok());
  }
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(database, "PRAGMA user_version = 99", nullptr, nullptr,
                         nullptr),
            SQLITE_OK);
  sqlite3_close(database);
  const absl::Status newer = SqliteStore::Open({path}).status();
  EXPECT_EQ(ErrorReason(newer), "STORE_SCHEMA");
  EXPECT_NE(newer.message().find("schema 99"), std::string::npos);
}

void CopyFile(const std::string& from, const std::string& to) {
  std::filesystem::copy_file(from, to,
                             std::filesystem::copy_options::overwrite_existing);
}

TEST(SqliteStoreTest, OpensABackupInThePlaceOfANewerSchema) {
  const std::string path = NewPath();
  const std::string backup = NewPath();
  {
    const auto store = SqliteStore::Open({path}).value();
    ASSERT_TRUE(Put(store.get(), "before", "x").ok());
    // The store is open, and its -wal has what was written last.
    CopyFile(path, backup);
    CopyFile(path + "-wal", backup + "-wal");
    ASSERT_TRUE(Put(store.get(), "after", "x").ok());
  }
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(database, "PRAGMA user_version = 99", nullptr, nullptr,
                         nullptr),
            SQLITE_OK);
  sqlite3_close(database);
  ASSERT_EQ(ErrorReason(SqliteStore::Open({path}).status()), "STORE_SCHEMA");
  CopyFile(backup, path);
  CopyFile(backup + "-wal", path + "-wal");
  const auto store = SqliteStore::Open({path});
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_THAT(Keys(store->get()), ElementsAre("before"));
}

}  // namespace
}  // namespace djinn::coordinator
