#include "gpu_worker/store/disk_store.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/metrics/exposition.h"
#include "gmock/gmock.h"
#include "gpu_worker/device/fake/fake_device.h"
#include "gpu_worker/store/disk_report.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using ::testing::HasSubstr;

namespace fs = std::filesystem;

class DiskStoreTest : public testing::Test {
 protected:
  DiskStoreTest() { Open(); }
  ~DiskStoreTest() override {
    store_.reset();
    fs::permissions(folder_, fs::perms::owner_all);
    fs::remove_all(folder_);
  }

  // Opens the store as another process would, with nothing in memory.
  void Open(uint64_t limit = 1 << 20, size_t max_waiting = 16384) {
    store_.reset();
    cache_ = std::make_unique<ContentCache>(100);
    absl::StatusOr<std::unique_ptr<DiskStore>> store =
        DiskStore::Open({.directory = folder_,
                         .limit_bytes = limit,
                         .max_waiting = max_waiting},
                        &clock_);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    store_->Bind(&device_, cache_.get());
  }

  std::shared_ptr<Buffer> BufferOf(const std::string& bytes) {
    std::shared_ptr<Buffer> buffer = *device_.Allocate(bytes.size());
    EXPECT_TRUE(device_.Write(buffer.get(), 0, bytes).ok());
    return buffer;
  }
  static ContentHash HashOf(const std::string& bytes) {
    return HashContent(bytes.data(), bytes.size());
  }
  std::shared_ptr<Buffer> Insert(const std::string& tenant,
                                 const std::string& bytes) {
    return cache_->Insert(tenant, HashOf(bytes), BufferOf(bytes),
                          absl::Seconds(1));
  }
  // Uploads a content, uses it, and has it written.
  void Write(const std::string& tenant, const std::string& bytes) {
    const std::shared_ptr<Buffer> used = Insert(tenant, bytes);
    store_->Keep(tenant, HashOf(bytes), bytes.size(), /*found=*/false);
    clock_.Advance(absl::Seconds(10));
    EXPECT_TRUE(store_->WriteOne());
  }
  // Returns the loaded bytes; empty for a miss.
  std::string Load(const std::string& tenant, const std::string& bytes) {
    std::shared_ptr<Buffer> buffer = *device_.AllocateUnset(bytes.size());
    int settled = 0;
    const auto load = store_->Load({.tenant = tenant,
                                    .hash = HashOf(bytes),
                                    .buffer = buffer,
                                    .settled = [&settled] { ++settled; }});
    if (load == nullptr) return "";
    EXPECT_FALSE(load->settled());
    EXPECT_TRUE(store_->ReadOne());
    EXPECT_TRUE(load->settled());
    EXPECT_EQ(settled, 1);
    if (!load->ok()) return "";
    return std::string(device_.HostBytes(buffer)->bytes);
  }
  std::vector<fs::path> Files() {
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      if (entry.is_regular_file() && entry.path().filename() != "lock") {
        files.push_back(entry.path());
      }
    }
    return files;
  }

  const std::string folder_ = testing::TempDir() + "/contents";
  const std::string bytes_ = std::string(5'000'000, 'a') + "end";
  FakeClock clock_;
  FakeDevice device_{1 << 30};
  std::unique_ptr<ContentCache> cache_;
  std::unique_ptr<DiskStore> store_;
};

TEST_F(DiskStoreTest, AnotherProcessHasWhatWasWritten) {
  Open(10 << 20);
  Write("a", bytes_);
  ASSERT_EQ(Files().size(), 1u);
  Open(10 << 20);
  EXPECT_EQ(store_->stats()->entries, 1u);
  EXPECT_EQ(store_->stats()->bytes, fs::file_size(Files()[0]));
  ASSERT_EQ(store_->List().size(), 1u);
  EXPECT_EQ(store_->List()[0].tenant, "a");
  EXPECT_TRUE(store_->Has("a", HashOf(bytes_), bytes_.size()));
  EXPECT_EQ(Load("a", bytes_), bytes_);
  EXPECT_EQ(store_->stats()->hits, 1u);
  // Another tenant, another length and another hash do not match.
  EXPECT_FALSE(store_->Has("b", HashOf(bytes_), bytes_.size()));
  EXPECT_FALSE(store_->Has("a", HashOf(bytes_), bytes_.size() - 1));
  EXPECT_EQ(Load("b", bytes_), "");
  EXPECT_EQ(Load("a", bytes_ + "x"), "");
}

TEST_F(DiskStoreTest, OnlyTheOwnerCanRead) {
  Write("a", "bytes");
  for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
    EXPECT_EQ(entry.status().permissions() & fs::perms(077), fs::perms::none)
        << entry.path();
  }
}

TEST_F(DiskStoreTest, WritesWhatIsUsedAfterAWhileOrFoundAgain) {
  const std::shared_ptr<Buffer> used = Insert("a", "used");
  Insert("a", "gone");
  Insert("a", "found");
  for (const std::string bytes : {"used", "gone", "found"}) {
    store_->Keep("a", HashOf(bytes), bytes.size(), /*found=*/false);
  }
  store_->Keep("a", HashOf("found"), 5, /*found=*/true);
  EXPECT_FALSE(store_->WriteOne());  // not yet
  clock_.Advance(absl::Seconds(1));
  while (store_->WriteOne()) {
  }
  EXPECT_TRUE(store_->Has("a", HashOf("used"), 4));
  EXPECT_FALSE(store_->Has("a", HashOf("gone"), 4));
  EXPECT_TRUE(store_->Has("a", HashOf("found"), 5));
}

TEST_F(DiskStoreTest, BrokenFilesAreMissesAndRemoved) {
  const auto damage = [&](const std::string& name, auto change) {
    SCOPED_TRACE(name);
    Open(10 << 20);
    Write("a", bytes_);
    ASSERT_EQ(Files().size(), 1u);
    change(Files()[0]);
    EXPECT_EQ(Load("a", bytes_), "");
    EXPECT_EQ(store_->stats()->corrupt_files, 1u);
    Exposition metrics;
    CollectDisk(*store_->stats(), &metrics);
    EXPECT_THAT(
        metrics.Text(),
        HasSubstr("djinn_content_disk_failures_total{kind=\"corrupt\"} 1\n"));
    EXPECT_EQ(store_->stats()->bytes, 0u);
    EXPECT_TRUE(Files().empty());
    EXPECT_FALSE(store_->Has("a", HashOf(bytes_), bytes_.size()));
  };
  damage("truncated", [](const fs::path& path) {
    fs::resize_file(path, fs::file_size(path) - 1);
  });
  damage("empty", [](const fs::path& path) { fs::resize_file(path, 0); });
  damage("gone", [](const fs::path& path) { fs::remove(path); });
  const auto flip = [](uint64_t at) {
    return [at](const fs::path& path) {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(at));
      file.put('\x7f');
    };
  };
  damage("first byte", flip(4096));
  damage("last byte", flip(4096 + bytes_.size() - 1));
  damage("header", flip(20));
}

TEST_F(DiskStoreTest, FilesOfAKilledProcessAreRemoved) {
  Write("a", "first");
  Write("a", "second");
  Write("a", "third");
  ASSERT_EQ(Files().size(), 3u);
  const std::vector<fs::path> files = Files();
  fs::rename(files[0], files[0].string() + ".part");
  fs::resize_file(files[1], 4097);
  Open();
  EXPECT_EQ(store_->stats()->entries, 1u);
  EXPECT_EQ(store_->stats()->corrupt_files, 1u);  // a draft does not count
  EXPECT_EQ(Files().size(), 1u);
}

TEST_F(DiskStoreTest, AFileUnderAnotherNameIsNotBelieved) {
  Write("a", "bytes");
  const fs::path path = Files()[0];
  fs::rename(path, path.parent_path() / "00000000000000010000000000000002-5");
  Open();
  EXPECT_EQ(store_->stats()->entries, 0u);
  EXPECT_EQ(store_->stats()->corrupt_files, 1u);
}

TEST_F(DiskStoreTest, TheLimitHolds) {
  const uint64_t file = 4096 + 10'000;
  Open(3 * file);
  const auto content = [](char c) { return std::string(10'000, c); };
  Write("a", content('1'));
  Write("a", content('2'));
  Write("a", content('3'));
  EXPECT_EQ(Load("a", content('1')), content('1'));
  Write("a", content('4'));
  EXPECT_EQ(store_->stats()->evictions, 1u);
  EXPECT_LE(store_->stats()->bytes, 3 * file);
  EXPECT_EQ(Files().size(), 3u);
  EXPECT_EQ(Load("a", content('2')), "");
  EXPECT_EQ(Load("a", content('1')), content('1'));
  // The content exceeds the limit, so nothing is evicted for it.
  const std::string large(4 * file, 'x');
  const std::shared_ptr<Buffer> used = Insert("a", large);
  store_->Keep("a", HashOf(large), large.size(), true);
  clock_.Advance(absl::Seconds(10));
  EXPECT_FALSE(store_->WriteOne());
  EXPECT_EQ(Files().size(), 3u);
  // A lower limit holds from the start.
  Open(file);
  EXPECT_EQ(Files().size(), 1u);
}

// A file takes 4096 bytes more than this.
std::string Content(int number, size_t size = 10'000) {
  const std::string name = std::to_string(number);
  return name + std::string(size - name.size(), 'x');
}

TEST_F(DiskStoreTest, ATenantDoesNotCrowdOutAnother) {
  const uint64_t file = 4096 + 10'000;
  Open(4 * file);
  const auto has = [&](const std::string& tenant, int number) {
    return store_->Has(tenant, HashOf(Content(number)), 10'000);
  };
  Write("b", Content(1));
  Write("b", Content(2));
  for (int i = 0; i < 10; ++i) {
    Write("a", Content(i));
    // Frequent use does not help.
    Load("a", Content(i));
    Load("a", Content(i));
  }
  EXPECT_TRUE(has("b", 1));
  EXPECT_TRUE(has("b", 2));
  EXPECT_TRUE(has("a", 8));
  EXPECT_TRUE(has("a", 9));
  EXPECT_EQ(store_->stats()->entries, 4u);
  EXPECT_EQ(store_->stats()->evictions, 8u);
  // Tenants whose names sort later take no more either, and a tenant with more
  // gives up its files for them.
  Write("c", Content(1));
  EXPECT_TRUE(has("c", 1));
  Write("c", Content(2));
  Write("c", Content(3));
  EXPECT_EQ(store_->stats()->entries, 4u);
  EXPECT_TRUE(has("a", 9) || has("a", 8));
  EXPECT_TRUE(has("b", 1) || has("b", 2));
  // Shares also hold for files that a new process finds.
  Open(2 * file);
  EXPECT_EQ(store_->stats()->entries, 2u);
  Open(file);
  EXPECT_EQ(store_->stats()->entries, 1u);
}

TEST_F(DiskStoreTest, ContentBeyondItsTenantsPartEvictsNoOtherTenant) {
  const uint64_t file = 4096 + 10'000;
  Open(4 * file);
  Write("a", Content(1));
  Write("a", Content(2));
  Write("b", Content(1));
  const std::string large = Content(3, 3 * file - 4096);
  Write("b", large);
  EXPECT_EQ(store_->stats()->entries, 3u);
  EXPECT_EQ(store_->stats()->evictions, 0u);
  EXPECT_EQ(store_->stats()->failure, "");
  // The tenant gives up its own files where that is enough.
  Write("c", Content(1));
  const std::string fits = Content(4, 2 * file - 4096);
  Write("a", fits);
  EXPECT_TRUE(store_->Has("a", HashOf(fits), fits.size()));
  EXPECT_EQ(store_->stats()->evictions, 2u);
  EXPECT_TRUE(store_->Has("b", HashOf(Content(1)), 10'000));
  EXPECT_TRUE(store_->Has("c", HashOf(Content(1)), 10'000));
}

TEST_F(DiskStoreTest, QueueOfWritesIsDividedAmongTenants) {
  Open(1 << 20, /*max_waiting=*/4);
  std::vector<std::shared_ptr<Buffer>> used;
  const auto keep = [&](const std::string& tenant, int number) {
    const std::string content = Content(number);
    used.push_back(Insert(tenant, content));
    store_->Keep(tenant, HashOf(content), content.size(), /*found=*/false);
  };
  for (int i = 0; i < 10; ++i) keep("a", i);
  EXPECT_EQ(store_->stats()->failed_writes, 6u);
  EXPECT_NE(store_->stats()->failure, "");
  for (int i = 0; i < 3; ++i) keep("b", i);
  EXPECT_EQ(store_->stats()->failed_writes, 9u);
  clock_.Advance(absl::Seconds(10));
  // Tenants take turns, whichever was first.
  EXPECT_TRUE(store_->WriteOne());
  EXPECT_TRUE(store_->WriteOne());
  EXPECT_TRUE(store_->Has("a", HashOf(Content(0)), 10'000));
  EXPECT_TRUE(store_->Has("b", HashOf(Content(0)), 10'000));
  while (store_->WriteOne()) {
  }
  EXPECT_EQ(store_->stats()->entries, 4u);
  EXPECT_TRUE(store_->Has("a", HashOf(Content(1)), 10'000));
  EXPECT_TRUE(store_->Has("b", HashOf(Content(1)), 10'000));
}

TEST_F(DiskStoreTest, TenantsLoadInTurn) {
  Write("a", "bytes");
  Write("b", "bytes");
  const auto load = [&](const std::string& tenant) {
    return store_->Load({.tenant = tenant,
                         .hash = HashOf("bytes"),
                         .buffer = *device_.Allocate(5),
                         .settled = [] {}});
  };
  const auto first = load("a"), second = load("a"), third = load("a");
  const auto other = load("b");
  EXPECT_TRUE(store_->ReadOne());
  EXPECT_TRUE(first->ok());
  EXPECT_TRUE(store_->ReadOne());
  EXPECT_TRUE(other->ok());
  EXPECT_FALSE(second->settled());
  EXPECT_TRUE(store_->ReadOne());
  EXPECT_TRUE(store_->ReadOne());
  EXPECT_TRUE(third->ok());
  EXPECT_FALSE(store_->ReadOne());
}

TEST_F(DiskStoreTest, AFolderThatCannotBeWrittenIsSeenAndPasses) {
  // A file stands where the tenant's folder should be, so that the write fails
  // for any user.
  Write("a", "bytes");
  const fs::path folder = Files()[0].parent_path();
  fs::remove_all(folder);
  std::ofstream(folder.string()) << "in the way";
  Write("a", "more");
  EXPECT_EQ(store_->stats()->failed_writes, 1u);
  EXPECT_NE(store_->stats()->failure, "");
  EXPECT_FALSE(store_->Has("a", HashOf("more"), 4));
  EXPECT_FALSE(store_->Wants(5));
  // The store pauses after a failure, then tries again.
  fs::remove(folder);
  const std::shared_ptr<Buffer> used = Insert("a", "later");
  store_->Keep("a", HashOf("later"), 5, true);
  clock_.Advance(absl::Seconds(3));
  EXPECT_FALSE(store_->WriteOne());
  clock_.Advance(absl::Seconds(3));
  EXPECT_TRUE(store_->Wants(5));
  EXPECT_TRUE(store_->WriteOne());
  EXPECT_EQ(store_->stats()->failure, "");
  EXPECT_TRUE(store_->Has("a", HashOf("later"), 5));
  // It takes nothing that is larger than its limit, header included.
  EXPECT_TRUE(store_->Wants((1 << 20) - 4096));
  EXPECT_FALSE(store_->Wants((1 << 20) - 4095));
  EXPECT_FALSE(store_->Wants(UINT64_MAX));
}

TEST_F(DiskStoreTest, AFullDiskIsSeenBeforeItIsFull) {
  // The file size limit makes reserving fail, and nothing stays behind.
  struct rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto ignored = signal(SIGXFSZ, SIG_IGN);
  rlimit low = before;
  low.rlim_cur = 8192;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
  Write("a", std::string(20'000, 'x'));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, ignored);
  EXPECT_EQ(store_->stats()->failed_writes, 1u);
  EXPECT_TRUE(Files().empty());
}

TEST_F(DiskStoreTest, AnUnusableFolderIsRefused) {
  const auto refusal = [&](const std::string& folder) {
    return ErrorReason(
        DiskStore::Open({.directory = folder, .limit_bytes = 1}, &clock_)
            .status());
  };
  // Another process uses the folder.
  EXPECT_EQ(refusal(folder_), "CONTENT_DISK");
  store_.reset();
  fs::permissions(folder_, fs::perms::owner_all | fs::perms::group_read);
  EXPECT_EQ(refusal(folder_), "CONTENT_DISK");
  EXPECT_EQ(refusal(folder_ + "/no/such/parent"), "CONTENT_DISK");
  const std::string file = testing::TempDir() + "/file";
  std::ofstream(file) << "x";
  EXPECT_EQ(refusal(file), "CONTENT_DISK");
}

TEST_F(DiskStoreTest, PinsLiveUntilTheirContentsAreWrittenOrGivenUp) {
  Open(1 << 20, /*max_waiting=*/2);
  const auto pin = [this](const std::string& tenant, const std::string& bytes) {
    auto made = std::make_shared<int>(0);
    Insert(tenant, bytes);
    store_->Keep(tenant, HashOf(bytes), bytes.size(), /*found=*/true, made);
    return std::weak_ptr<int>(made);
  };
  const auto first = pin("a", "first");
  const auto second = pin("a", "second");
  EXPECT_FALSE(first.expired());
  // Another tenant's content takes the place of the last one.
  const auto third = pin("b", "third");
  EXPECT_TRUE(second.expired());
  EXPECT_FALSE(third.expired());
  clock_.Advance(absl::Seconds(1));
  while (store_->WriteOne()) {
  }
  EXPECT_TRUE(first.expired());
  EXPECT_TRUE(third.expired());
  // It is on disk already.
  EXPECT_TRUE(pin("a", "first").expired());
  EXPECT_TRUE(store_->Has("a", HashOf("first"), 5));
}

TEST_F(DiskStoreTest, AFileThatIsEvictedBeforeItIsReadIsNotCorrupt) {
  Open(3 * 4096);
  Write("a", "bytes");
  const std::shared_ptr<Buffer> buffer = *device_.Allocate(5);
  const auto load = store_->Load(
      {.tenant = "a", .hash = HashOf("bytes"), .buffer = buffer, .settled = [] {
       }});
  Write("a", std::string(2 * 4096, 'x'));
  ASSERT_FALSE(store_->Has("a", HashOf("bytes"), 5));
  EXPECT_TRUE(store_->ReadOne());
  EXPECT_TRUE(load->settled());
  EXPECT_FALSE(load->ok());
  EXPECT_EQ(store_->stats()->misses, 1u);
  EXPECT_EQ(store_->stats()->corrupt_files, 0u);
}

TEST_F(DiskStoreTest, GivenUpLoadSettlesOnce) {
  Write("a", "bytes");
  int settled = 0;
  const auto load = store_->Load({.tenant = "a",
                                  .hash = HashOf("bytes"),
                                  .buffer = *device_.Allocate(5),
                                  .settled = [&settled] { ++settled; }});
  load->GiveUp();
  EXPECT_TRUE(load->settled());
  EXPECT_FALSE(load->ok());
  store_->ReadOne();
  EXPECT_EQ(settled, 1);
  // The content arrived too late for a hit.
  EXPECT_EQ(store_->stats()->hits, 0u);
  EXPECT_EQ(store_->stats()->misses, 1u);
  // A load that waits when the store stops fails.
  const auto late = store_->Load({.tenant = "a",
                                  .hash = HashOf("bytes"),
                                  .buffer = *device_.Allocate(5),
                                  .settled = [&settled] { ++settled; }});
  store_->Stop();
  EXPECT_FALSE(late->ok());
  EXPECT_EQ(settled, 2);
  EXPECT_EQ(Load("a", "bytes"), "");
}

TEST_F(DiskStoreTest, ThreadsWriteAndRead) {
  store_->Start();
  const std::shared_ptr<Buffer> used = Insert("a", "bytes");
  store_->Keep("a", HashOf("bytes"), 5, false);
  clock_.Advance(absl::Seconds(2));
  for (int i = 0; i < 1000 && store_->stats()->entries == 0; ++i) usleep(5000);
  ASSERT_EQ(store_->stats()->entries, 1u);
  Mutex mu;
  CondVar changed;
  const std::shared_ptr<Buffer> buffer = *device_.Allocate(5);
  const auto load = store_->Load({.tenant = "a",
                                  .hash = HashOf("bytes"),
                                  .buffer = buffer,
                                  .settled = [&] {
                                    MutexLock lock(&mu);
                                    changed.Signal();
                                  }});
  {
    MutexLock lock(&mu);
    for (int i = 0; i < 200 && !load->settled(); ++i) {
      changed.WaitWithTimeout(&mu, absl::Milliseconds(50));
    }
  }
  ASSERT_TRUE(load->ok());
  EXPECT_EQ(device_.HostBytes(buffer)->bytes, "bytes");
  store_->Stop();
}

}  // namespace
}  // namespace djinn::worker
