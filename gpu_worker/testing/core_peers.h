// Two worker cores in one process, one of which pulls from the other, for
// tests.
#ifndef GPU_WORKER_TESTING_CORE_PEERS_H_
#define GPU_WORKER_TESTING_CORE_PEERS_H_

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"
#include "common/hash/crc32c.h"
#include "gpu_worker/core/worker_core.h"
#include "gpu_worker/pull/offer_table.h"
#include "gpu_worker/pull/peer_call.h"
#include "gpu_worker/testing/core_fixture.h"

namespace djinn::worker {

inline std::string Ticket(char c) {
  return std::string(OfferTable::kTicketBytes, c);
}

// A call to a core, as a transport would make it.
class CoreCall : public MessageCall, public OfferClaimant {
 public:
  // Size of the chunks that it delivers.
  static constexpr size_t kChunkBytes = 64 << 10;

  // `waits` counts the responses that an offer is not there yet. `pace` is
  // called before each chunk that follows another one.
  CoreCall(WorkerCore* core, std::atomic<int>* waits,
           std::function<void()> pace)
      : core_(core), waits_(*waits), pace_(std::move(pace)) {}

  void StillWaiting() override {
    MutexLock lock(&mu_);
    responses_.emplace_back().mutable_waiting();
    changed_.SignalAll();
  }
  void Give(std::shared_ptr<const OfferedBytes> offered) override {
    MutexLock lock(&mu_);
    if (offered->poison != nullptr) {
      *responses_.emplace_back().mutable_poisoned() = *offered->poison;
    } else {
      const absl::string_view all =
          core_->device()->HostBytes(offered->buffer)->bytes;
      for (size_t at = 0; at < all.size(); at += kChunkBytes) {
        const absl::string_view bytes = all.substr(at, kChunkBytes);
        v1::PullChunk* const chunk = responses_.emplace_back().mutable_chunk();
        chunk->set_offset(at);
        chunk->set_payload(bytes.data(), bytes.size());
        chunk->set_crc32c(Crc32c(bytes));
      }
    }
    over_ = true;
    changed_.SignalAll();
  }
  void Refuse(absl::Status why) override {
    MutexLock lock(&mu_);
    end_ = std::move(why);
    over_ = true;
    changed_.SignalAll();
  }

  bool Read(v1::PullResponse* response) override {
    MutexLock lock(&mu_);
    while (responses_.empty() && !over_) changed_.Wait(&mu_);
    if (responses_.empty()) return false;
    *response = std::move(responses_.front());
    responses_.pop_front();
    waits_ += response->has_waiting();
    if (pace_ != nullptr && response->chunk().offset() > 0) pace_();
    return true;
  }
  absl::Status Finish() override {
    MutexLock lock(&mu_);
    return end_;
  }
  void Cancel() override {
    core_->AbandonPull(this);
    Refuse(absl::CancelledError("cancelled"));
  }
  bool encrypted() const override { return false; }

 private:
  WorkerCore* const core_;
  std::atomic<int>& waits_;
  const std::function<void()> pace_;
  Mutex mu_;
  CondVar changed_;
  std::deque<v1::PullResponse> responses_ ABSL_GUARDED_BY(mu_);
  bool over_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status end_ ABSL_GUARDED_BY(mu_);
};

class CorePeers : public PeerConnector {
 public:
  explicit CorePeers(WorkerCore* core) : core_(core) {}
  absl::StatusOr<std::unique_ptr<PeerCall>> Open(
      const v1::Peer&, const v1::PullRequest& request) override {
    ++asked_;
    if (hook_ != nullptr) hook_(asked_);
    auto call = std::make_shared<CoreCall>(core_, &waits_, pace_);
    core_->Pull(request, call);
    return std::make_unique<Shared>(std::move(call));
  }
  int asked() const { return asked_; }
  // Sets a function that is called before each call with the number of calls,
  // this one included. Set it before the first call.
  void SetHook(std::function<void(int)> hook) { hook_ = std::move(hook); }
  // Sets the `pace` of each CoreCall. Set it before the first call.
  void SetPace(std::function<void()> pace) { pace_ = std::move(pace); }
  int waits() const { return waits_; }

 private:
  // Shares the call, because the core may hold the claimant longer.
  class Shared : public PeerCall {
   public:
    explicit Shared(std::shared_ptr<CoreCall> call) : call_(std::move(call)) {}
    ~Shared() override { call_->Cancel(); }
    absl::StatusOr<std::optional<v1::ErrorDetail>> Receive(
        uint64_t size, PullReceiver* receiver) override {
      return call_->Receive(size, receiver);
    }
    void Cancel() override { call_->Cancel(); }

   private:
    const std::shared_ptr<CoreCall> call_;
  };

  WorkerCore* const core_;
  std::function<void(int)> hook_;
  std::function<void()> pace_;
  std::atomic<int> asked_{0};
  std::atomic<int> waits_{0};
};

// w0 is the fixture's core; w1 fetches from it.
class TwoCoresTest : public WorkerCoreTest {
 protected:
  TwoCoresTest() { StartOther(); }
  ~TwoCoresTest() override { other_->Shutdown(); }

  void StartOther() {
    WorkerCoreOptions options;
    options.worker_id = "w1";
    options.housekeeping_interval = absl::Milliseconds(2);
    other_ = std::make_unique<WorkerCore>(options, &other_device_, &clock_,
                                          &random_);
    peers_ = std::make_unique<CorePeers>(core_.get());
    other_->SetPeers(peers_.get());
    v1::DesiredState desired;
    v1::Peer* const peer = desired.add_peers();
    peer->set_worker_id("w0");
    peer->set_incarnation(core_->incarnation());
    other_->Apply(desired);
  }
  // Opens the session on w1.
  std::unique_ptr<TestClient> OpenThere(const std::string& session = "s1",
                                        const std::string& tenant = "t1") {
    return OpenThere(Lease(session, tenant));
  }
  std::unique_ptr<TestClient> OpenThere(const v1::LeaseClaims& lease) {
    Grant(lease, "w1", absl::Seconds(1000000), other_.get());
    InProcessPair pair = MakeInProcessPair();
    other_->Attach(std::move(pair.worker));
    auto client = std::make_unique<TestClient>(std::move(pair.client));
    v1::ClientHello hello = HelloFor(lease.session_id());
    hello.set_worker_incarnation(other_->incarnation());
    client->Hello(hello);
    EXPECT_EQ(client->WaitHello().worker_id(), "w1");
    return client;
  }

  FakeDevice other_device_{16 << 20};
  std::unique_ptr<CorePeers> peers_;
  std::unique_ptr<WorkerCore> other_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_TESTING_CORE_PEERS_H_
