// The reads of a device that were sent, by the numbers under which their values
// come, and whom to tell when a value is here.
//
// Not thread-safe: the device's lock guards it, and the waits' fields. Nothing
// here calls out: the caller runs the callbacks after unlocking.
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

  // It goes to the worker as this message. If it has a transfer id, the value
  // comes on Bulk under that.
  void AddSent(uint64_t sequence, std::shared_ptr<ReadWait> wait);
  // The read whose answer has not come; null when there is none.
  ReadWait* Find(uint64_t sequence) const;
  std::shared_ptr<ReadWait> TakeAnswered(uint64_t sequence);
  // The read whose bytes are not all here; null when there is none.
  std::shared_ptr<ReadWait> FindBulk(uint64_t transfer_id) const;
  void EraseBulk(uint64_t transfer_id) { bulk_.erase(transfer_id); }
  bool has_bulk() const { return !bulk_.empty(); }
  bool empty() const { return sent_.empty() && bulk_.empty(); }
  void Clear();

  // Its value is here, or its error: who waits wakes, and callbacks are due.
  void Finish(ReadWait* wait);
  // To be called when it is done; not while it is done already.
  void Watch(ReadWait* wait, std::function<void()> callback);
  void Unwatch(ReadWait* wait) { watched_.erase(wait); }
  bool has_watched() const { return !watched_.empty(); }
  // Nothing more will be done: all callbacks are due.
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

// Reads that were sent before the program asks for their values. Not
// thread-safe: the recorder's lock guards it.
class PrefetchedReads {
 public:
  // With more, the oldest is given up.
  static constexpr size_t kMaxReads = 8;

  void Add(const StorageVersion& version, const srg::TensorView& view,
           std::shared_ptr<ReadWait> wait);
  // The wait of such a read, if there is one; null otherwise.
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
