#include "gpu_worker/store/content_proofs.h"

#include <time.h>

#include <algorithm>
#include <utility>

#include "common/hash/hash.h"

namespace djinn::worker {
namespace {

// Takes about ten milliseconds.
constexpr uint64_t kPieceBytes = 64 << 20;

// Returns the bytes whose MAC is computed when there is no candidate.
absl::string_view NobodysBytes() {
  static const std::string* const bytes = new std::string(8 << 20, '\0');
  return *bytes;
}

absl::Duration ThreadTime() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return absl::DurationFromTimespec(now);
}

}  // namespace

ContentChallenge::~ContentChallenge() {
  if (outstanding_ != nullptr) --*outstanding_;
}

void ContentChallenge::Answer(std::string mac) {
  {
    MutexLock lock(&mu_);
    if (answer_.has_value() || expired_) return;
    answer_ = std::move(mac);
    if (!SettledLocked()) return;
  }
  settled_();
}

void ContentChallenge::Expire() {
  {
    MutexLock lock(&mu_);
    if (SettledLocked()) return;
    expired_ = true;
  }
  settled_();
}

bool ContentChallenge::answered() const {
  MutexLock lock(&mu_);
  return answer_.has_value();
}

bool ContentChallenge::settled() const {
  MutexLock lock(&mu_);
  return SettledLocked();
}

std::shared_ptr<Buffer> ContentChallenge::Take() {
  MutexLock lock(&mu_);
  std::shared_ptr<Buffer> proven;
  if (expired_) return proven;
  for (auto& [buffer, mac] : expected_) {
    // A MAC that OpenSSL could not compute is empty, and equals no answer.
    if (buffer == nullptr || mac.empty()) continue;
    if (TokensEqual(*answer_, mac)) proven = buffer;
  }
  expected_.clear();
  return proven;
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
    std::string tenant, uint64_t size_bytes,
    std::vector<std::shared_ptr<Buffer>> candidates,
    std::function<void()> settled, std::function<void(absl::Duration)> charge) {
  if (outstanding_->fetch_add(1) >= max_outstanding_) {
    --*outstanding_;
    ++refused_;
    return nullptr;
  }
  std::shared_ptr<ContentChallenge> challenge(new ContentChallenge);
  challenge->outstanding_ = outstanding_;
  challenge->tenant_ = std::move(tenant);
  challenge->key_ = random_->Bytes(kContentKeyBytes);
  challenge->settled_ = std::move(settled);
  challenge->charge_ = std::move(charge);
  challenge->size_bytes_ = size_bytes;
  const auto add = [&](std::shared_ptr<Buffer> buffer, SharedBytes bytes) {
    challenge->works_.push_back(
        {std::move(buffer), std::move(bytes), ContentMac(challenge->key_)});
  };
  for (std::shared_ptr<Buffer>& candidate : candidates) {
    absl::StatusOr<SharedBytes> bytes = device_->HostBytes(candidate);
    if (bytes.ok()) add(std::move(candidate), *std::move(bytes));
  }
  if (challenge->works_.empty()) add(nullptr, {});
  ++issued_;
  Put(challenge);
  return challenge;
}

void ContentProofs::Put(const std::shared_ptr<ContentChallenge>& challenge) {
  MutexLock lock(&mu_);
  auto& queue = queues_[challenge->tenant_];
  if (queue.empty()) turns_.push_back(challenge->tenant_);
  queue.push_back(challenge);
  changed_.Signal();
}

std::shared_ptr<ContentChallenge> ContentProofs::Next() {
  MutexLock lock(&mu_);
  while (!turns_.empty()) {
    const auto queue = queues_.find(turns_.front());
    turns_.pop_front();
    std::shared_ptr<ContentChallenge> challenge = queue->second.front().lock();
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
  const std::shared_ptr<ContentChallenge> challenge = Next();
  if (challenge == nullptr) return false;
  const absl::Duration start = ThreadTime();
  const bool last = Compute(challenge.get());
  challenge->charge_(ThreadTime() - start);
  if (!last) {
    Put(challenge);
    return true;
  }
  bool settled;
  {
    MutexLock lock(&challenge->mu_);
    for (ContentChallenge::Work& work : challenge->works_) {
      challenge->expected_.emplace_back(std::move(work.buffer),
                                        work.mac.Finish());
    }
    challenge->works_.clear();
    settled = challenge->answer_.has_value() && !challenge->expired_;
    challenge->computed_ = true;
  }
  if (settled) challenge->settled_();
  return true;
}

bool ContentProofs::Compute(ContentChallenge* challenge) {
  const uint64_t from = challenge->done_bytes_;
  const uint64_t count = std::min(challenge->size_bytes_ - from, kPieceBytes);
  for (ContentChallenge::Work& work : challenge->works_) {
    if (work.buffer != nullptr) {
      work.mac.Add(work.bytes.bytes.substr(from, count));
      continue;
    }
    const absl::string_view nobodys = NobodysBytes();
    for (uint64_t done = 0; done < count; done += nobodys.size()) {
      work.mac.Add(nobodys.substr(0, count - done));
    }
  }
  challenge->done_bytes_ += count;
  return challenge->done_bytes_ == challenge->size_bytes_;
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
