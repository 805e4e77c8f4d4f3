// Finds a device's reads that were sent, by the numbers of their answers, and
// collects the callbacks to run when values arrive.
//
// Not thread-safe: the lock of the answers (device/answers/answers.h) guards
// the table and the fields of the waits. No method runs a callback: the caller
// runs the collected callbacks after unlocking.
#ifndef CLIENT_LIB_SESSION_TRANSFER_READ_TABLE_H_
#define CLIENT_LIB_SESSION_TRANSFER_READ_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "client_lib/session/transfer/work.h"
#include "common/srg/graph.h"

namespace djinn {

class ReadTable {
 public:
  using Callbacks = std::vector<std::function<void()>>;

  // Adds a read that was sent as message `sequence`. If the read has a transfer
  // id, its value arrives on Bulk under that id.
  void AddSent(uint64_t sequence, std::shared_ptr<ReadWait> wait);
  // Returns the unanswered read, or null.
  ReadWait* Find(uint64_t sequence) const;
  std::shared_ptr<ReadWait> TakeAnswered(uint64_t sequence);
  // Returns the read whose bytes are incomplete, or null.
  std::shared_ptr<ReadWait> FindBulk(uint64_t transfer_id) const;
  void EraseBulk(uint64_t transfer_id) { bulk_.erase(transfer_id); }
  bool has_bulk() const { return !bulk_.empty(); }
  bool empty() const { return sent_.empty() && bulk_.empty(); }
  void Clear();

  // Finishes a read whose value or error arrived: wakes its waiting threads and
  // makes its callbacks due.
  void Finish(ReadWait* wait);
  // Adds a callback to run when the read is done. Not allowed once it is done.
  void Watch(ReadWait* wait, std::function<void()> callback);
  // Removes and returns the callbacks of a read that the program drops. The
  // caller destroys them after unlocking, because they may own other reads.
  Callbacks Unwatch(ReadWait* wait);
  bool has_watched() const { return !watched_.empty(); }
  // Makes all callbacks due, because no further read will finish.
  void FinishWatched();
  bool has_due() const { return !due_.empty(); }
  Callbacks TakeDue();

 private:
  absl::flat_hash_map<uint64_t, std::shared_ptr<ReadWait>>
      sent_;  // by sequence
  absl::flat_hash_map<uint64_t, std::shared_ptr<ReadWait>>
      bulk_;  // by transfer id
  absl::flat_hash_map<ReadWait*, Callbacks> watched_;
  Callbacks due_;
};

// Keeps reads that were sent before the program asked for their values. Not
// thread-safe: the recorder's lock guards it.
class PrefetchedReads {
 public:
  // Limit on reads; beyond it the oldest is abandoned.
  static constexpr size_t kMaxReads = 8;

  void Add(const StorageVersion& version, const srg::TensorView& view,
           std::shared_ptr<ReadWait> wait);
  // Removes and returns the wait of such a read, or null if there is none.
  std::shared_ptr<ReadWait> Take(const StorageVersion& version,
                                 const srg::TensorView& view);

 private:
  struct Read {
    StorageVersion version;
    srg::TensorView view;
    std::shared_ptr<ReadWait> wait;
  };

  std::deque<Read> reads_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_TRANSFER_READ_TABLE_H_
