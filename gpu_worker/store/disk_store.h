// Keeps contents on disk, so that a worker that restarts still has them.
//
// The store keeps a content that a storage still uses some time after it
// arrived, and a content that was found again (Keep()). It has one file per
// content, in one folder per tenant, of at most `limit_bytes` in all. Only the
// worker's user can read them.
//
// When the disk is full, the tenant with the most bytes, counting what it is
// about to write, gives up a file: of its own, the one used least often and
// then longest ago. So a tenant loses nothing to others while it has no more
// than its share. The store drops a content that does not fit even after its
// tenant has given up all that it may. When too many contents wait to be
// written, the tenant with the most of them drops its last one. Tenants take
// turns with the disk, content by content.
//
// A file appears under its final name only when it is complete on disk: the
// store writes it under another name, synchronises it and renames it. Opening
// the store removes what a killed process left. A file that does not hold the
// expected bytes, to the last one, is a miss: the store removes, counts and
// logs it. A content that cannot be written, as on a full disk, is counted and
// logged as well; the store tries the next one some seconds later, and the
// worker goes on without.
//
// One thread writes and one reads; only a request for a content that is on disk
// waits for the disk. Thread-safe.
#ifndef GPU_WORKER_STORE_DISK_STORE_H_
#define GPU_WORKER_STORE_DISK_STORE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/hash/hash.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/store/content_cache.h"
#include "gpu_worker/store/content_store.h"

namespace djinn::worker {

class DiskStore final : public ContentStore {
 public:
  struct Options {
    std::string directory;
    uint64_t limit_bytes = 0;
    // The time after which a queued content is written.
    absl::Duration write_after = absl::Seconds(1);
    // Most contents of all tenants that wait to be written.
    size_t max_waiting = 16384;
  };
  // Creates the folder, or adopts the files in it. Returns FailedPrecondition
  // (CONTENT_DISK) when the folder cannot be written, is open to other users,
  // or is in use by another process.
  static absl::StatusOr<std::unique_ptr<DiskStore>> Open(Options options,
                                                         Clock* clock);
  // Calls Stop().
  ~DiskStore() override;

  // Implements ContentStore. Without Start(), the caller calls WriteOne() and
  // ReadOne().
  void Bind(Device* device, ContentCache* contents) override;
  void Start() override;
  void Stop() override;
  void Keep(const std::string& tenant, const ContentHash& hash,
            uint64_t size_bytes, bool found) override {
    Keep(tenant, hash, size_bytes, found, nullptr);
  }
  // Destroys `pin`, without locks, when the content was written or will not be.
  void Keep(const std::string& tenant, const ContentHash& hash,
            uint64_t size_bytes, bool found, std::shared_ptr<void> pin);
  bool MayHave(const std::string& tenant, const ContentHash& hash,
               uint64_t size_bytes) const override {
    return Has(tenant, hash, size_bytes);
  }
  std::shared_ptr<ContentLoad> Load(ContentRequest request) override;

  // Returns whether the content is on disk; counts no hit or miss.
  bool Has(const std::string& tenant, const ContentHash& hash,
           uint64_t size_bytes) const;

  // Returns false while a content of this size would not be written: it is
  // larger than the disk's limit, or a write has failed just now.
  bool Wants(uint64_t size_bytes) const;

  // WriteOne() writes the next content that is due, and ReadOne() reads the
  // next one requested. Each returns false when there is none.
  bool WriteOne();
  bool ReadOne();

  std::vector<ContentCache::Content> List() const override;
  std::optional<Stats> stats() const override;

 private:
  class DiskLoad;
  // Tenant, hash and size.
  using Key = std::tuple<std::string, ContentHash, uint64_t>;
  struct File {
    Key key;
    // The size of the file, header included.
    uint64_t bytes = 0;
    uint64_t uses = 0;
    // The key in its tenant's order: its value, and when it was used last.
    std::pair<uint64_t, uint64_t> place;
  };
  struct Pending {
    Key key;
    absl::Duration due;
    bool found = false;
    std::shared_ptr<void> pin;
  };
  struct Reading {
    Key key;
    std::shared_ptr<DiskLoad> load;
  };
  // Files in the order in which they are evicted.
  using Order = std::set<std::pair<std::pair<uint64_t, uint64_t>, File*>>;
  // A tenant with a file on disk, or with contents that wait to be written or
  // read.
  struct Tenant {
    // Ordered by uses above a floor that rises to the value of each evicted
    // file, then by age.
    Order order;
    uint64_t floor = 0;
    uint64_t bytes = 0;
    // Sorted by `due`.
    std::deque<Pending> to_write;
    std::deque<Reading> to_read;
  };
  // Ordered by name: the tenant after the one that had the last turn is next.
  using Tenants = std::map<std::string, Tenant, std::less<>>;

  DiskStore(Options options, Clock* clock)
      : options_(std::move(options)), clock_(clock) {}

  absl::Status Prepare();
  std::string PathOf(const Key& key) const;
  void Add(const Key& key, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Use(File* file) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Forgets the file and removes it.
  void Remove(const Key& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes room for `bytes` of the tenant. Returns false, without effect, when
  // other tenants would have to give up some of their share.
  bool MakeRoom(const std::string& tenant, uint64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns whether one more content of the tenant may wait to be written. Sets
  // `dropped` to one that makes room for it.
  bool MakePlace(const std::string& tenant, Pending* dropped)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Tenants::iterator NextReader() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Forgets the tenant if it has no file and nothing that waits.
  void Tidy(Tenants::iterator tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Write(const Key& key, const std::shared_ptr<Buffer>& buffer);
  absl::Status WriteFile(const Key& key, absl::string_view bytes, int folder);
  // Returns DataLoss when the file does not hold the content, and Cancelled
  // when the load is given up meanwhile or the store stops.
  absl::Status Read(const Key& key, const DiskLoad& load);
  void RunWriter();
  void RunReader();

  const Options options_;
  Clock* const clock_;
  Device* device_ = nullptr;
  ContentCache* contents_ = nullptr;
  // A descriptor that is locked while this process uses the folder.
  int lock_ = -1;

  mutable Mutex mu_;
  CondVar write_changed_;
  CondVar read_changed_;
  absl::flat_hash_map<Key, std::unique_ptr<File>> files_ ABSL_GUARDED_BY(mu_);
  Tenants tenants_ ABSL_GUARDED_BY(mu_);
  uint64_t last_use_ ABSL_GUARDED_BY(mu_) = 0;
  Stats stats_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<Key> waiting_ ABSL_GUARDED_BY(mu_);  // to be written
  absl::Duration not_before_ ABSL_GUARDED_BY(mu_);
  // The tenants that had the last turn.
  std::string last_writer_ ABSL_GUARDED_BY(mu_);
  std::string last_reader_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> stopping_{false};
  std::thread writer_;
  std::thread reader_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_STORE_DISK_STORE_H_
