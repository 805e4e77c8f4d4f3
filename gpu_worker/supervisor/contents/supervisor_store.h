// Gives an executor access to the contents that the supervisor keeps. The store
// requests contents that the executor's memory lacks over a socket, and offers
// those that storages use. The other end is content_service.h.
//
// A content that the supervisor lends is mapped, not copied. The mapping is
// private: it shows the supervisor's memory, and a page becomes the executor's
// own when the executor writes to it. The executor's ledger counts the content
// in full. The loan ends when the last storage and the cache release the
// content.
//
// Two threads serve the socket. Thread-safe.
#ifndef GPU_WORKER_SUPERVISOR_CONTENTS_SUPERVISOR_STORE_H_
#define GPU_WORKER_SUPERVISOR_CONTENTS_SUPERVISOR_STORE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/transport/shared_memory/shared_region.h"
#include "djinn/v1/supervision.pb.h"
#include "gpu_worker/store/content_store.h"

namespace djinn::worker {

// Makes a buffer of memory that `owner` keeps.
using WrapMemory = std::function<std::shared_ptr<Buffer>(
    void* memory, uint64_t bytes, std::shared_ptr<void> owner)>;

class SupervisorStore final : public ContentStore {
 public:
  struct Options {
    // Null for a device that cannot use memory which is not its own; contents
    // are copied then.
    WrapMemory wrap;
    // The time after which a content is offered.
    absl::Duration offer_after = absl::Seconds(1);
    // Most contents that wait to be offered; more are dropped.
    size_t max_waiting = 16384;
    // The time within which the supervisor takes a message and answers an
    // offer. The store ends when it has passed.
    absl::Duration answer_timeout = absl::Minutes(1);
  };

  // Takes over a socket that blocks. `clock` must outlive this.
  SupervisorStore(Descriptor socket, Options options, Clock* clock);
  // Calls Stop().
  ~SupervisorStore() override;

  void Bind(Device* device, ContentCache* contents) override;
  void Start() override;
  void Stop() override;
  void Keep(const std::string& tenant, const ContentHash& hash,
            uint64_t size_bytes, bool found) override;
  // Returns true: only the supervisor knows.
  bool MayHave(const std::string& /*tenant*/, const ContentHash& /*hash*/,
               uint64_t /*size_bytes*/) const override {
    return true;
  }
  std::shared_ptr<ContentLoad> Load(ContentRequest request) override;

 private:
  class Look;
  class Loan;
  struct Outbox;
  struct Waiting {
    std::string tenant;
    ContentHash hash;
    uint64_t size_bytes = 0;
    absl::Duration due;
    bool found = false;
  };
  using Name = std::pair<ContentHash, uint64_t>;

  void RunSender();
  void RunReader();
  // Sends the content to the supervisor, if it is still worth keeping and the
  // supervisor does not have it. Returns false when the socket has ended.
  bool OfferOne(const Waiting& waiting);
  bool SendPieces(uint64_t id, absl::string_view bytes);
  // Waits for the answer to the offer, and sends requests meanwhile. Returns
  // false when the socket has ended or there is no answer in time.
  bool AwaitAnswer(uint64_t id, absl::Duration patience,
                   v1::ContentAnswer* answer);
  // Send() sends a request, Flush() the waiting ones. Both return false when
  // the socket has ended or the supervisor does not read.
  bool Send(const v1::ContentRequest& request);
  bool Flush();
  void Deliver(const v1::ContentAnswer& answer, Descriptor descriptor);
  // Returns a buffer with the content that was lent to the look; null when the
  // system refuses.
  std::shared_ptr<Buffer> Map(const Descriptor& descriptor,
                              std::shared_ptr<Loan> loan, const Look& look);
  // Ends the store: all looks fail, including later ones.
  void End();

  const Descriptor socket_;
  const Options options_;
  Clock* const clock_;
  Device* device_ = nullptr;
  ContentCache* contents_ = nullptr;
  // Loans outlive the store, and use this to return what they were lent.
  const std::shared_ptr<Outbox> outbox_;
  std::thread sender_;
  std::thread reader_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_CONTENTS_SUPERVISOR_STORE_H_
