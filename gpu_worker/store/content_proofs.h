// Has tenants prove that they have the bytes of contents that other tenants
// uploaded.
//
// The session asks for a challenge (Issue()), sends its key to the client and
// waits. Meanwhile a thread computes the MAC of the candidate under that key;
// the client does the same with its own bytes and answers. The challenge is
// settled when both are done, or at the deadline. Take() then returns the
// candidate if the client has its bytes. Destroying the challenge gives it up.
// The challenge holds its candidate, which is not evicted while it lives.
//
// The worker issues a challenge whether or not there is a candidate. One
// without costs as much work, over as many bytes of the worker's own. So a
// client that cannot prove anything learns neither from the answer nor, as far
// as the work determines it, from its time whether the bytes are here. The
// tenant that asks is charged by size, not by the time that was measured.
//
// Tenants take turns, one piece of a content at a time, and so do the
// challenges of each tenant: no challenge waits for another's last byte, nor
// for the number of challenges that another tenant has. Thread-safe.
#ifndef GPU_WORKER_STORE_CONTENT_PROOFS_H_
#define GPU_WORKER_STORE_CONTENT_PROOFS_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/store/content_challenge.h"

namespace djinn::worker {

class ContentProofs {
 public:
  struct Stats {
    uint64_t issued = 0;
    uint64_t proven = 0;
    // Challenges not issued because too many were outstanding.
    uint64_t refused = 0;
  };

  // Both must outlive this. At most `max_outstanding` challenges live at a
  // time.
  ContentProofs(Device* device, RandomSource* random, size_t max_outstanding);
  // Stops the thread. Challenges that still live are never computed.
  ~ContentProofs();

  // Starts the thread. Without it, the caller calls Work().
  void Start();

  // Issues a challenge to a tenant; null when too many are outstanding.
  // `candidate` may be null. Calls `settled`, from any thread and without
  // locks, when the outcome is known. Calls `charge` after each piece of the
  // work, with TimeOf() the piece.
  std::shared_ptr<ContentChallenge> Issue(
      std::string tenant, uint64_t size_bytes,
      std::shared_ptr<Buffer> candidate, std::function<void()> settled,
      std::function<void(absl::Duration)> charge);

  // Returns the processor time for which a proof of so many bytes is charged:
  // about what it takes, whatever is here.
  static absl::Duration TimeOf(uint64_t size_bytes);

  // Does a piece of the work; returns false when there is none.
  bool Work();

  void CountProven() { proven_.fetch_add(1, std::memory_order_relaxed); }
  Stats stats() const;

 private:
  class Challenge;

  void Run();
  void Put(const std::shared_ptr<Challenge>& challenge);
  // Takes out and returns the next challenge that still lives.
  std::shared_ptr<Challenge> Next();

  Device* const device_;
  RandomSource* const random_;
  const size_t max_outstanding_;
  const std::shared_ptr<std::atomic<size_t>> outstanding_ =
      std::make_shared<std::atomic<size_t>>(0);
  std::atomic<uint64_t> issued_{0};
  std::atomic<uint64_t> proven_{0};
  std::atomic<uint64_t> refused_{0};

  Mutex mu_;
  CondVar changed_;
  // The challenges by tenant, no queue empty, and the order in which tenants
  // take turns.
  std::map<std::string, std::deque<std::weak_ptr<Challenge>>> queues_
      ABSL_GUARDED_BY(mu_);
  std::deque<std::string> turns_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_STORE_CONTENT_PROOFS_H_
