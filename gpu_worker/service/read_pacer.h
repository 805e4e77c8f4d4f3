// Starts postponed reads of Control, if nothing else starts them in time.
//
// When a reader is ready again, gRPC announces it at once, in a packet of its
// own, and the peer wakes up for it; unless the answer leaves first, which then
// carries the announcement (flow_control.cc of gRPC's HTTP/2 transport). So a
// link whose client waits for an answer postpones its read until the answer
// leaves. If that takes long, the link must read nevertheless: the client may
// give up, or send more. One thread checks such links, at intervals and only
// while there are any.
//
// Thread-safe.
#ifndef GPU_WORKER_SERVICE_READ_PACER_H_
#define GPU_WORKER_SERVICE_READ_PACER_H_

#include <memory>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace djinn::worker {

class ReadPacer {
 public:
  // How long a read may be postponed. It starts at most one more interval
  // later.
  static constexpr absl::Duration kPatience = absl::Milliseconds(2);

  // A link that postpones reads.
  class Reader {
   public:
    virtual ~Reader() = default;
    // Starts the read if it was postponed at `limit` or before. Returns false
    // when no read is postponed; then the reader must be watched again for the
    // next one.
    virtual bool ReadOnIfDue(absl::Duration limit) = 0;
  };

  explicit ReadPacer(Clock* clock);
  ~ReadPacer();
  ReadPacer(const ReadPacer&) = delete;
  ReadPacer& operator=(const ReadPacer&) = delete;

  absl::Duration Now() const { return clock_->Monotonic(); }
  // Watches the reader until it reports that no read is postponed. A reader
  // must not be watched twice at the same time.
  void Watch(std::weak_ptr<Reader> reader);

 private:
  void Run();

  Clock* const clock_;
  Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::weak_ptr<Reader>> watched_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SERVICE_READ_PACER_H_
