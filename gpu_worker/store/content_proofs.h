// Has tenants prove that they have the bytes of contents that others brought.
//
// Story of a challenge: the session asks for one (Issue()), sends its key to
// the client and waits. Meanwhile a thread computes the MAC of every candidate
// under that key; the client does the same with its own bytes and answers. Once
// both are done, or in vain by the deadline, the challenge is settled, and
// Take() says which candidate the client has, if any. Destroying it gives it
// up. Candidates are held, and so not evicted, while it lives.
//
// A challenge is issued whether or not there are candidates, and one without
// costs as much work: over bytes of ours, as many as were asked about. So
// neither the answer nor, as far as work makes it, its time tells who cannot
// prove anything whether the bytes are here. The work is charged to who asks.
//
// Tenants take turns, a piece of a content at a time, and so do the challenges
// of each: none waits for another's last byte, nor for how many another tenant
// has. Thread-safe.
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
#include <vector>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "common/hash/content_proof.h"
#include "common/transport/shared_bytes.h"
#include "gpu_worker/device/device.h"

namespace djinn::worker {

class ContentProofs;

class ContentChallenge {
 public:
  ~ContentChallenge();

  const std::string& key() const { return key_; }

  // The client's answer. The first one counts, and none after Expire().
  void Answer(std::string mac);
  // The deadline has passed.
  void Expire();
  bool answered() const;

  // Whether Take() has the outcome.
  bool settled() const;
  // The bytes that the client has proved to have; null when it has not. Once,
  // when settled.
  std::shared_ptr<Buffer> Take();

 private:
  friend class ContentProofs;
  ContentChallenge() = default;
  bool SettledLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return expired_ || (answer_.has_value() && computed_);
  }

  std::string tenant_;
  std::string key_;
  std::function<void()> settled_;
  std::function<void(absl::Duration)> charge_;
  // Of each candidate; of nobody's bytes when there is none.
  struct Work {
    std::shared_ptr<Buffer> buffer;
    SharedBytes bytes;
    ContentMac mac;
  };
  // The thread's, one piece at a time.
  uint64_t size_bytes_ = 0;
  std::vector<Work> works_;
  uint64_t done_bytes_ = 0;
  std::shared_ptr<std::atomic<size_t>> outstanding_;

  mutable Mutex mu_;
  std::optional<std::string> answer_ ABSL_GUARDED_BY(mu_);
  bool expired_ ABSL_GUARDED_BY(mu_) = false;
  bool computed_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::pair<std::shared_ptr<Buffer>, std::string>> expected_
      ABSL_GUARDED_BY(mu_);
};

class ContentProofs {
 public:
  struct Stats {
    uint64_t issued = 0;
    uint64_t proven = 0;
    // Not issued: too many were outstanding.
    uint64_t refused = 0;
  };

  // Both outlive this. At most `max_outstanding` challenges live at a time.
  ContentProofs(Device* device, RandomSource* random, size_t max_outstanding);
  // Stops the thread; challenges that live are never computed.
  ~ContentProofs();

  // Starts the thread; without it, somebody calls Work().
  void Start();

  // Asked of a tenant. Null when there are too many. `settled` is called, from
  // any thread and without locks, when the outcome is there; `charge` with the
  // processor time of the work, as it is done.
  std::shared_ptr<ContentChallenge> Issue(
      std::string tenant, uint64_t size_bytes,
      std::vector<std::shared_ptr<Buffer>> candidates,
      std::function<void()> settled,
      std::function<void(absl::Duration)> charge);

  // Does a piece of the work; false when there is none.
  bool Work();

  void CountProven() { proven_.fetch_add(1, std::memory_order_relaxed); }
  Stats stats() const;

 private:
  void Run();
  void Put(const std::shared_ptr<ContentChallenge>& challenge);
  // The next that still lives, taken out.
  std::shared_ptr<ContentChallenge> Next();
  // A piece of the challenge's work; true when it was the last.
  bool Compute(ContentChallenge* challenge);

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
  // By tenant, none of them empty; and whose turn it is.
  std::map<std::string, std::deque<std::weak_ptr<ContentChallenge>>> queues_
      ABSL_GUARDED_BY(mu_);
  std::deque<std::string> turns_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_STORE_CONTENT_PROOFS_H_
