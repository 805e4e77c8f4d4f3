// Serves one executor's socket for contents. Included by content_service.h's
// sources alone.
#ifndef GPU_WORKER_SUPERVISOR_CONTENTS_CONNECTION_H_
#define GPU_WORKER_SUPERVISOR_CONTENTS_CONNECTION_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/hash/hash.h"
#include "common/transport/shared_memory/shared_region.h"
#include "djinn/v1/supervision.pb.h"
#include "gpu_worker/supervisor/contents/content_service.h"

namespace djinn::worker {

// All fields belong to the thread of the connection, except for those that say
// otherwise.
class ContentService::Connection {
 public:
  Connection(ContentService* service, uint64_t executor, Descriptor socket);
  // Ends the thread, and makes the service take back all loans.
  ~Connection();

 private:
  // Wakes the thread when a look may be settled or a content was written. Lives
  // as long as any thread may raise it.
  struct Alarm {
    Descriptor event;
    std::atomic<bool> stopping{false};
    // Whether the content that was sent is on disk, or will never be.
    std::atomic<bool> written{false};
    void Raise() const { RaiseEvent(event.get()); }
  };
  // A content that the executor looks for. Exactly one of `load` and
  // `challenge` is set.
  struct Look {
    v1::ContentDescription name;
    std::string tenant;
    std::shared_ptr<Buffer> buffer;  // for the load
    std::shared_ptr<ContentLoad> load;
    std::shared_ptr<ContentChallenge> challenge;
    // The earliest and the latest time at which the outcome of the challenge is
    // sent.
    absl::Duration earliest;
    absl::Duration deadline;
    bool given_up = false;
  };
  // A content that the executor sends. Waits to be written once all bytes are
  // here.
  struct Arrival {
    uint64_t id = 0;
    ContentHash hash;
    std::string tenant;
    std::shared_ptr<Buffer> buffer;
    uint64_t size = 0;
    uint64_t here = 0;
    // Why the bytes are not kept. The rest is still received.
    absl::Status failure;
    ContentHasher hasher;
  };

  static ContentHash HashOf(const v1::ContentDescription& name) {
    return {name.hash_high(), name.hash_low()};
  }

  void Run();
  // Returns whether the executor may send further messages by now.
  bool MayReceive();
  // Reads and serves the messages that have arrived. Returns OutOfRange at the
  // end of the socket, and InvalidArgument for a message that no executor of
  // this program sends.
  absl::Status Receive();
  absl::Status Handle(const v1::ContentRequest& request);
  absl::Status Find(uint64_t id, const v1::ContentDescription& name);
  // Issues a challenge. Returns false when the tenant is not to be asked.
  bool AskForProof(Look* look);
  absl::Status Prove(uint64_t id, const std::string& mac);
  absl::Status Offer(uint64_t id, const v1::ContentDescription& name);
  // Returns whether the service keeps the tenant's content and does not have
  // it.
  bool Wants(const std::string& tenant, const ContentHash& hash, uint64_t size);
  absl::Status AddPiece(uint64_t id, absl::string_view bytes);
  // Keeps the content whose bytes are all here.
  absl::Status Complete();
  // Forgets the content, which is kept or cannot be, and notifies the executor.
  absl::Status EndArrival();
  // Answers looks that are settled or overdue, and a content that was written.
  absl::Status GoOn();
  // Returns for how many milliseconds to wait for an event; -1: for ever.
  int PatienceMilliseconds() const;
  // Answers the look, and forgets it. Returns false when it is not settled.
  bool Settle(uint64_t id, Look* look, absl::Status* answered);
  // Lends the buffer in the answer. If it is null or the system refuses,
  // answers that there is no content.
  absl::Status Lend(v1::ContentAnswer answer, std::shared_ptr<Buffer> buffer);
  absl::Status Answer(const v1::ContentAnswer& answer,
                      const Descriptor& descriptor = Descriptor());
  // Logs that the system refuses something, unless the connection logged a
  // failure lately, because executors can cause such failures.
  void LogFailure(absl::string_view what, const absl::Status& why);

  ContentService& service_;
  const uint64_t executor_;
  const Descriptor socket_;
  const std::shared_ptr<Alarm> alarm_ = std::make_shared<Alarm>();
  uint64_t last_id_ = 0;
  std::map<uint64_t, Look> looks_;
  std::unique_ptr<Arrival> arrival_;
  // By the numbers under which they were lent.
  std::map<uint64_t, std::shared_ptr<Buffer>> loans_;
  uint64_t last_loan_ = 0;
  // Bytes of loans, looks and the arrival.
  uint64_t bytes_ = 0;
  // Messages other than full pieces, less those that the passed time allows.
  double messages_ = 0;
  absl::Duration last_round_;
  // The bytes of the packet that was received last.
  std::string room_;
  // Whether a content may have become idle.
  bool trims_ = false;
  absl::Duration next_log_;
  std::thread thread_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_CONTENTS_CONNECTION_H_
