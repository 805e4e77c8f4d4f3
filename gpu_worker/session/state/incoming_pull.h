// A value that is fetched from another worker, or from another session here: a
// buffer that fills, and the outcome.
//
// Thread-safe. The fetching thread calls the receiver's methods, and the
// session the others.
#ifndef GPU_WORKER_SESSION_STATE_INCOMING_PULL_H_
#define GPU_WORKER_SESSION_STATE_INCOMING_PULL_H_

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/pull/peer_pulls.h"

namespace djinn::worker {

class IncomingPull : public PullReceiver {
 public:
  // Exactly one field is set: the bytes, a root error, or a failure of the
  // fetch.
  struct Outcome {
    std::shared_ptr<Buffer> buffer;
    std::optional<v1::ErrorDetail> poison;
    absl::Status failure;
  };
  // The number of bytes that arrived after the first ones, and how long that
  // took. The time spent waiting for the offer does not count for the link.
  struct Pace {
    uint64_t bytes = 0;
    absl::Duration took;
  };

  // `buffer` has the size of the value; null when a shared buffer will arrive.
  // `settled` is called once, without locks, and must outlive this.
  IncomingPull(Device* device, Clock* clock, std::shared_ptr<Buffer> buffer,
               std::function<void()> settled)
      : device_(device),
        clock_(clock),
        settled_callback_(std::move(settled)),
        buffer_(std::move(buffer)),
        last_news_(clock->Monotonic()) {}

  void OnWaiting() override {
    MutexLock lock(&mu_);
    last_news_ = clock_->Monotonic();
  }
  absl::Status OnBytes(uint64_t offset, absl::string_view bytes) override {
    std::shared_ptr<Buffer> buffer;
    {
      MutexLock lock(&mu_);
      if (outcome_.has_value()) return absl::CancelledError("given up");
      buffer = buffer_;
      last_news_ = clock_->Monotonic();
      if (offset == 0) {
        first_bytes_ = last_news_;
      } else {
        pace_.bytes += bytes.size();
        pace_.took = last_news_ - first_bytes_;
      }
    }
    return device_->Write(buffer.get(), offset, bytes);
  }
  void OnComplete() override {
    Outcome outcome;
    {
      MutexLock lock(&mu_);
      outcome.buffer = buffer_;
    }
    Settle(std::move(outcome));
  }
  void OnShared(std::shared_ptr<Buffer> buffer) override {
    Outcome outcome;
    outcome.buffer = std::move(buffer);
    Settle(std::move(outcome));
  }
  void OnPoisoned(v1::ErrorDetail error) override {
    Outcome outcome;
    outcome.poison = std::move(error);
    Settle(std::move(outcome));
  }
  void OnFailed(absl::Status why) override {
    Outcome outcome;
    outcome.failure = std::move(why);
    Settle(std::move(outcome));
  }

  bool settled() const {
    MutexLock lock(&mu_);
    return outcome_.has_value();
  }
  // Returns the time of the last sign of life: bytes arrived, or the peer said
  // that the offer is still to come.
  absl::Duration last_news() const {
    MutexLock lock(&mu_);
    return last_news_;
  }
  Pace pace() const {
    MutexLock lock(&mu_);
    return pace_;
  }
  // Returns the outcome. Call it once, when it is settled.
  Outcome Take() {
    MutexLock lock(&mu_);
    return *std::move(outcome_);
  }

 private:
  // Sets the outcome. Only the first one counts.
  void Settle(Outcome outcome) {
    {
      MutexLock lock(&mu_);
      if (outcome_.has_value()) return;
      outcome_ = std::move(outcome);
      buffer_ = nullptr;
    }
    settled_callback_();
  }

  Device* const device_;
  Clock* const clock_;
  const std::function<void()> settled_callback_;
  mutable Mutex mu_;
  std::shared_ptr<Buffer> buffer_ ABSL_GUARDED_BY(mu_);
  std::optional<Outcome> outcome_ ABSL_GUARDED_BY(mu_);
  absl::Duration last_news_ ABSL_GUARDED_BY(mu_);
  absl::Duration first_bytes_ ABSL_GUARDED_BY(mu_);
  Pace pace_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_STATE_INCOMING_PULL_H_
