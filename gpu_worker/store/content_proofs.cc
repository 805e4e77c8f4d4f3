#include "gpu_worker/store/content_proofs.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/hash/content_proof.h"
#include "common/hash/hash.h"
#include "common/transport/shared_bytes.h"

namespace djinn::worker {
namespace {

// Takes about ten milliseconds.
constexpr uint64_t kPieceBytes = 64 << 20;
// The rate at which one core computes a MAC, or slightly less.
constexpr uint64_t kBytesPerNanosecond = 4;

// Returns the bytes whose MAC is computed when there is no candidate.
absl::string_view NobodysBytes() {
  static const std::string* const bytes = new std::string(8 << 20, '\0');
  return *bytes;
}

}  // namespace

class ContentProofs::Challenge final : public ContentChallenge {
 public:
  // `bytes` are those of the candidate, if there is one. `outstanding` counts
  // the challenge, and no longer once it is destroyed.
  Challenge(std::string tenant, std::string key, uint64_t size_bytes,
            std::shared_ptr<Buffer> candidate, SharedBytes bytes,
            std::function<void()> settled,
            std::function<void(absl::Duration)> charge,
            std::shared_ptr<std::atomic<size_t>> outstanding)
      : tenant_(std::move(tenant)),
        key_(std::move(key)),
        size_bytes_(size_bytes),
        settled_(std::move(settled)),
        charge_(std::move(charge)),
        outstanding_(std::move(outstanding)),
        candidate_(std::move(candidate)),
        bytes_(std::move(bytes)),
        mac_(key_) {}
  ~Challenge() override { --*outstanding_; }

  const std::string& key() const override { return key_; }
  void Answer(std::string mac) override {
    {
      MutexLock lock(&mu_);
      if (answer_.has_value() || expired_) return;
      answer_ = std::move(mac);
      if (!SettledLocked()) return;
    }
    settled_();
  }
  void Expire() override {
    {
      MutexLock lock(&mu_);
      if (SettledLocked()) return;
      expired_ = true;
    }
    settled_();
  }
  bool answered() const override {
    MutexLock lock(&mu_);
    return answer_.has_value();
  }
  bool settled() const override {
    MutexLock lock(&mu_);
    return SettledLocked();
  }
  std::shared_ptr<Buffer> Take() override;

  const std::string& tenant() const { return tenant_; }
  // Computes and charges one piece. Returns false when it was the last. One
  // thread at a time calls it.
  bool Compute();

 private:
  bool SettledLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return expired_ || (answer_.has_value() && computed_);
  }
  // Returns how many bytes it computed.
  uint64_t ComputePiece();

  const std::string tenant_;
  const std::string key_;
  const uint64_t size_bytes_;
  const std::function<void()> settled_;
  const std::function<void(absl::Duration)> charge_;
  const std::shared_ptr<std::atomic<size_t>> outstanding_;
  // The thread that computes owns these until `computed_`. The candidate is
  // null where the worker's own bytes stand for it.
  std::shared_ptr<Buffer> candidate_;
  SharedBytes bytes_;
  ContentMac mac_;
  uint64_t done_bytes_ = 0;

  mutable Mutex mu_;
  std::optional<std::string> answer_ ABSL_GUARDED_BY(mu_);
  bool expired_ ABSL_GUARDED_BY(mu_) = false;
  bool computed_ ABSL_GUARDED_BY(mu_) = false;
  std::string expected_ ABSL_GUARDED_BY(mu_);
};

std::shared_ptr<Buffer> ContentProofs::Challenge::Take() {
  MutexLock lock(&mu_);
  // A computation that goes on holds the candidate.
  if (expired_) return nullptr;
  std::shared_ptr<Buffer> candidate = std::move(candidate_);
  // A MAC that OpenSSL could not compute is empty, and equals no answer.
  if (expected_.empty() || !TokensEqual(*answer_, expected_)) return nullptr;
  return candidate;
}

uint64_t ContentProofs::Challenge::ComputePiece() {
  const uint64_t count = std::min(size_bytes_ - done_bytes_, kPieceBytes);
  if (candidate_ != nullptr) {
    mac_.Add(bytes_.bytes.substr(done_bytes_, count));
  } else {
    const absl::string_view nobodys = NobodysBytes();
    for (uint64_t done = 0; done < count; done += nobodys.size()) {
      mac_.Add(nobodys.substr(0, count - done));
    }
  }
  done_bytes_ += count;
  return count;
}

bool ContentProofs::Challenge::Compute() {
  charge_(TimeOf(ComputePiece()));
  if (done_bytes_ < size_bytes_) return true;
  bytes_ = SharedBytes();
  bool settled;
  {
    MutexLock lock(&mu_);
    expected_ = mac_.Finish();
    settled = answer_.has_value() && !expired_;
    computed_ = true;
  }
  if (settled) settled_();
  return false;
}

absl::Duration ContentProofs::TimeOf(uint64_t size_bytes) {
  return absl::Nanoseconds(size_bytes / kBytesPerNanosecond);
}

ContentProofs::ContentProofs(Device* device, RandomSource* random,
                             size_t max_outstanding)
    : device_(device), random_(random), max_outstanding_(max_outstanding) {}

ContentProofs::~ContentProofs() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

void ContentProofs::Start() {
  thread_ = std::thread([this] { Run(); });
}

std::shared_ptr<ContentChallenge> ContentProofs::Issue(
    std::string tenant, uint64_t size_bytes, std::shared_ptr<Buffer> candidate,
    std::function<void()> settled, std::function<void(absl::Duration)> charge) {
  if (outstanding_->fetch_add(1) >= max_outstanding_) {
    --*outstanding_;
    ++refused_;
    return nullptr;
  }
  SharedBytes bytes;
  if (candidate != nullptr) {
    absl::StatusOr<SharedBytes> own = device_->HostBytes(candidate);
    if (own.ok()) {
      bytes = *std::move(own);
    } else {
      candidate = nullptr;
    }
  }
  auto challenge = std::make_shared<Challenge>(
      std::move(tenant), random_->Bytes(kContentKeyBytes), size_bytes,
      std::move(candidate), std::move(bytes), std::move(settled),
      std::move(charge), outstanding_);
  ++issued_;
  Put(challenge);
  return challenge;
}

void ContentProofs::Put(const std::shared_ptr<Challenge>& challenge) {
  MutexLock lock(&mu_);
  auto& queue = queues_[challenge->tenant()];
  if (queue.empty()) turns_.push_back(challenge->tenant());
  queue.push_back(challenge);
  changed_.Signal();
}

std::shared_ptr<ContentProofs::Challenge> ContentProofs::Next() {
  MutexLock lock(&mu_);
  while (!turns_.empty()) {
    const auto queue = queues_.find(turns_.front());
    turns_.pop_front();
    std::shared_ptr<Challenge> challenge = queue->second.front().lock();
    queue->second.pop_front();
    if (queue->second.empty()) {
      queues_.erase(queue);
    } else if (challenge != nullptr) {
      turns_.push_back(queue->first);
    } else {
      // The tenant had no turn.
      turns_.push_front(queue->first);
    }
    if (challenge != nullptr) return challenge;
  }
  return nullptr;
}

bool ContentProofs::Work() {
  const std::shared_ptr<Challenge> challenge = Next();
  if (challenge == nullptr) return false;
  if (challenge->Compute()) Put(challenge);
  return true;
}

void ContentProofs::Run() {
  for (;;) {
    while (Work()) {
      MutexLock lock(&mu_);
      if (stopping_) return;
    }
    MutexLock lock(&mu_);
    while (turns_.empty() && !stopping_) changed_.Wait(&mu_);
    if (stopping_) return;
  }
}

ContentProofs::Stats ContentProofs::stats() const {
  return {issued_, proven_, refused_};
}

}  // namespace djinn::worker
