// Starts reads of Control that were put off, if nothing else does in time.
//
// gRPC tells its peer at once that a reader is ready again, in a packet of its
// own that says nothing else, and the peer wakes up for it; unless the answer
// leaves first, which then carries it (flow_control.cc of gRPC's HTTP/2
// transport). So a link whose client waits for an answer reads on when that
// leaves. Should it take long, the client has to be heard nevertheless: it may
// give up, or say more. One thread looks for such links, at intervals and only
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
  // A read is started when it was put off for so long, and an interval later at
  // the latest.
  static constexpr absl::Duration kPatience = absl::Milliseconds(2);

  // What puts reads off.
  class Reader {
   public:
    virtual ~Reader() = default;
    // Starts the read if it was put off at `limit` or before. False: none is
    // put off any more, and the reader has to be watched anew for the next.
    virtual bool ReadOnIfDue(absl::Duration limit) = 0;
  };

  explicit ReadPacer(Clock* clock);
  ~ReadPacer();
  ReadPacer(const ReadPacer&) = delete;
  ReadPacer& operator=(const ReadPacer&) = delete;

  absl::Duration Now() const { return clock_->Monotonic(); }
  // Looks after the reader until it says that nothing is put off. Once at a
  // time for each.
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
