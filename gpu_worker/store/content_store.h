// Contents on disk, so that a worker that starts again has what it had.
//
// What is kept: a content that a storage still uses some time after it came,
// and one that was found again (Keep()). A file per content, in a folder per
// tenant, of at most `limit_bytes` in all. Only the worker's user can read it.
//
// Where there is no room, the tenant with the most bytes, counting what it is
// about to write, lets go of a file: of its own, the one used least often and
// not for the longest time. So a tenant loses nothing to others while it has no
// more than its part. What does not fit in once its tenant has let go of all
// that it may is not kept. Where too many contents wait to be written, the
// tenant with the most of them does without its last. Tenants take turns with
// the disk, content by content.
//
// A file appears under its name when all of it is on disk: it is written under
// another, synchronised and renamed. What a killed process left is removed when
// the next one opens the store. A file that does not hold what it should, to
// the last byte, is a miss: it is removed, counted and logged. So is a content
// that could not be written, as on a full disk; the next one is tried some
// seconds later, and the worker goes on without.
//
// One thread writes and one reads; nobody waits for the disk but who asked for
// a content that is there. Thread-safe.
#ifndef GPU_WORKER_STORE_CONTENT_STORE_H_
#define GPU_WORKER_STORE_CONTENT_STORE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
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

namespace djinn::worker {

// A content on its way from disk into a buffer.
class ContentLoad {
 public:
  // Whether there is an outcome, and whether it is good: the buffer has the
  // content.
  bool settled() const;
  bool ok() const;
  // Nobody waits any more: not ok, unless it is settled already.
  void GiveUp();

 private:
  friend class ContentStore;
  void Settle(bool ok);
  // False if there is an outcome already. Otherwise the caller tells it.
  bool Decide(bool ok);

  std::function<void()> settled_;
  std::shared_ptr<Buffer> buffer_;
  mutable Mutex mu_;
  std::optional<bool> outcome_ ABSL_GUARDED_BY(mu_);
};

class ContentStore {
 public:
  struct Options {
    std::string directory;
    uint64_t limit_bytes = 0;
    // How long a content must have been in use to be worth the disk.
    absl::Duration write_after = absl::Seconds(1);
    // Contents that may wait to be written, of all tenants.
    size_t max_waiting = 16384;
  };
  struct Stats {
    uint64_t entries = 0;
    uint64_t bytes = 0;
    uint64_t limit_bytes = 0;
    // Read in time for whoever asked.
    uint64_t hits = 0;
    uint64_t misses = 0;
    uint64_t evictions = 0;
    uint64_t failed_writes = 0;
    uint64_t corrupt_files = 0;
    // Why the last write failed; empty when it did not.
    std::string failure;
  };

  // Makes the folder, or takes up what is in it. FailedPrecondition
  // (CONTENT_DISK) when it cannot be written, is open to other users, or is
  // another process'.
  static absl::StatusOr<std::unique_ptr<ContentStore>> Open(Options options,
                                                            Clock* clock);
  // As Stop().
  ~ContentStore();

  // Whose contents these are, before anything else; both outlive this, or
  // Stop().
  void Bind(Device* device, ContentCache* contents);
  // Starts the threads; without them, somebody calls WriteOne() and ReadOne().
  void Start();
  // Ends them, with the piece of a file that they are at; loads fail.
  void Stop();

  // The tenant's content is in the cache: it may be worth keeping. `found`: it
  // was found there again, and is.
  void Keep(const std::string& tenant, const ContentHash& hash,
            uint64_t size_bytes, bool found);

  // Fills `buffer`, which has as many bytes; null when the content is not here.
  // `settled` is called, from any thread and without locks, when there is an
  // outcome.
  std::shared_ptr<ContentLoad> Load(const std::string& tenant,
                                    const ContentHash& hash,
                                    std::shared_ptr<Buffer> buffer,
                                    std::function<void()> settled);
  // Counts nothing.
  bool Has(const std::string& tenant, const ContentHash& hash,
           uint64_t size_bytes) const;

  // Writes what is due, reads what was asked for; false when there is nothing.
  bool WriteOne();
  bool ReadOne();

  std::vector<ContentCache::Content> List() const;
  Stats stats() const;

 private:
  // Tenant, hash and size.
  using Key = std::tuple<std::string, ContentHash, uint64_t>;
  struct File {
    Key key;
    // With the header.
    uint64_t bytes = 0;
    uint64_t uses = 0;
    // In its tenant's order: its value, and when it was used last.
    std::pair<uint64_t, uint64_t> place;
  };
  struct Pending {
    Key key;
    absl::Duration due;
    bool found = false;
  };
  struct Reading {
    Key key;
    std::shared_ptr<ContentLoad> load;
  };
  // What goes first comes first.
  using Order = std::set<std::pair<std::pair<uint64_t, uint64_t>, File*>>;
  // There is something of it: a file, or what waits.
  struct Tenant {
    // By uses above a floor that rises to those of what goes, then by age.
    Order order;
    uint64_t floor = 0;
    uint64_t bytes = 0;
    // In the order of `due`.
    std::deque<Pending> to_write;
    std::deque<Reading> to_read;
  };
  // By name: whose turn it is follows from who had the last one.
  using Tenants = std::map<std::string, Tenant, std::less<>>;

  ContentStore(Options options, Clock* clock)
      : options_(std::move(options)), clock_(clock) {}

  absl::Status Prepare();
  std::string PathOf(const Key& key) const;
  void Add(const Key& key, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Use(File* file) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Forgets the file and removes it.
  void Remove(const Key& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // For so many of the tenant's; false, without effect, when others would have
  // to give of their parts.
  bool MakeRoom(const std::string& tenant, uint64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether another content of the tenant's may wait to be written.
  bool MakePlace(const std::string& tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Tenants::iterator NextReader() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Forgets the tenant if there is nothing of it any more.
  void Tidy(Tenants::iterator tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Write(const Key& key, const std::shared_ptr<Buffer>& buffer);
  absl::Status WriteFile(const Key& key, absl::string_view bytes, int folder);
  // DataLoss: not what it should be.
  absl::Status Read(const Key& key, Buffer* buffer);
  void RunWriter();
  void RunReader();

  const Options options_;
  Clock* const clock_;
  Device* device_ = nullptr;
  ContentCache* contents_ = nullptr;
  // Locked while this process uses the folder.
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
  // Whose turn it was.
  std::string last_writer_ ABSL_GUARDED_BY(mu_);
  std::string last_reader_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> stopping_{false};
  std::thread writer_;
  std::thread reader_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_STORE_CONTENT_STORE_H_
