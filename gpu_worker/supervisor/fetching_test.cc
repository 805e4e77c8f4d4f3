// Tests fetches of an executor through its supervisor over a socket.
#include "gpu_worker/supervisor/fetching.h"

#include <sys/socket.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/base/patience.h"
#include "grpc/grpc.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

// Fetches of the supervisor, whose outcomes the test decides.
class FakePulls : public PullSource {
 public:
  void Start(const std::string& worker_id, const v1::PullRequest& request,
             std::shared_ptr<PullReceiver> receiver) override {
    MutexLock lock(&mu_);
    worker_id_ = worker_id;
    request_ = request;
    receivers_.push_back(std::move(receiver));
    changed_.SignalAll();
  }
  void Cancel(const PullReceiver* /*receiver*/) override {
    MutexLock lock(&mu_);
    ++cancelled_;
    changed_.SignalAll();
  }
  bool Knows(const std::string& /*worker_id*/) const override { return true; }

  // Waits for the fetch with this number.
  std::shared_ptr<PullReceiver> Await(size_t number) {
    MutexLock lock(&mu_);
    for (Patience patience; receivers_.size() <= number;) {
      patience.Wait(&changed_, &mu_);
    }
    return receivers_[number];
  }
  void AwaitCancel() {
    MutexLock lock(&mu_);
    for (Patience patience; cancelled_ == 0;) patience.Wait(&changed_, &mu_);
  }
  std::string worker_id() {
    MutexLock lock(&mu_);
    return worker_id_;
  }
  v1::PullRequest request() {
    MutexLock lock(&mu_);
    return request_;
  }
  size_t started() {
    MutexLock lock(&mu_);
    return receivers_.size();
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::string worker_id_ ABSL_GUARDED_BY(mu_);
  v1::PullRequest request_ ABSL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<PullReceiver>> receivers_ ABSL_GUARDED_BY(mu_);
  int cancelled_ ABSL_GUARDED_BY(mu_) = 0;
};

class Bytes : public PullReceiver {
 public:
  void OnWaiting() override { waited = true; }
  absl::Status OnBytes(uint64_t offset, absl::string_view bytes) override {
    EXPECT_EQ(offset, received.size());
    received.append(bytes.data(), bytes.size());
    return absl::OkStatus();
  }
  // MessageCall::Receive() returns outcomes.
  void OnComplete() override { ADD_FAILURE(); }
  void OnShared(std::shared_ptr<Buffer>) override { ADD_FAILURE(); }
  void OnPoisoned(v1::ErrorDetail) override { ADD_FAILURE(); }
  void OnFailed(absl::Status) override { ADD_FAILURE(); }

  bool waited = false;
  std::string received;
};

class FetchingTest : public testing::Test {
 protected:
  // Keeps gRPC for the whole process, as other servers and channels do in a
  // worker. Its end waits for threads that poll for ten seconds.
  static void SetUpTestSuite() { grpc_init(); }

  FetchingTest() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
                         ends),
              0);
    serving_ = server_.Serve(3, Descriptor(ends[0]));
    peers_ = MakeSupervisorPeers(Descriptor(ends[1]));
  }

  std::unique_ptr<PeerCall> Open(const std::string& worker,
                                 const std::string& session = "s1",
                                 uint64_t size = 8) {
    v1::Peer peer;
    peer.set_worker_id(worker);
    v1::PullRequest request;
    request.set_session_id(session);
    request.set_ticket("ticket");
    request.set_size_bytes(size);
    request.set_worker_incarnation(7);
    return peers_->Open(peer, request).value();
  }
  // Returns the reason for which the fetch failed.
  std::string Refusal(const std::string& worker, const std::string& session) {
    Bytes bytes;
    return ErrorReason(Open(worker, session)->Receive(8, &bytes).status());
  }

  FakePulls pulls_;
  FetchingServer server_{"w0", &pulls_,
                         [](uint64_t executor, const std::string& session) {
                           return executor == 3 && session == "s1";
                         }};
  std::shared_ptr<void> serving_;
  std::unique_ptr<PeerConnector> peers_;
};

TEST_F(FetchingTest, BytesComeThroughTheSupervisor) {
  // More than a socket holds.
  const std::string value(3 << 20, 'v');
  std::thread supervisor([&] {
    const auto receiver = pulls_.Await(0);
    receiver->OnWaiting();
    for (size_t at = 0; at < value.size(); at += 1 << 18) {
      EXPECT_TRUE(
          receiver->OnBytes(at, absl::string_view(value).substr(at, 1 << 18))
              .ok());
    }
    receiver->OnComplete();
  });
  const auto call = Open("w1", "s1", value.size());
  Bytes bytes;
  const auto outcome = call->Receive(value.size(), &bytes);
  supervisor.join();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_FALSE(outcome->has_value());
  EXPECT_TRUE(bytes.waited);
  EXPECT_EQ(bytes.received, value);
  EXPECT_EQ(pulls_.worker_id(), "w1");
  EXPECT_EQ(pulls_.request().ticket(), "ticket");
  EXPECT_EQ(pulls_.request().worker_incarnation(), 7);
}

TEST_F(FetchingTest, RootErrorAndFailureReachTheExecutor) {
  std::thread supervisor([&] {
    v1::ErrorDetail error;
    error.set_reason("OPERATOR_FAILED");
    pulls_.Await(0)->OnPoisoned(error);
    pulls_.Await(1)->OnFailed(
        MakeError(absl::StatusCode::kNotFound, "OFFER_UNKNOWN", "no offer"));
  });
  Bytes bytes;
  const auto poisoned = Open("w1")->Receive(8, &bytes);
  ASSERT_TRUE(poisoned.ok()) << poisoned.status();
  ASSERT_TRUE(poisoned->has_value());
  EXPECT_EQ((*poisoned)->reason(), "OPERATOR_FAILED");
  EXPECT_EQ(Refusal("w1", "s1"), "OFFER_UNKNOWN");
  supervisor.join();
}

TEST_F(FetchingTest, ExecutorFetchesForItsOwnSessionsOnly) {
  EXPECT_EQ(Refusal("w1", "s2"), "NO_SUCH_SESSION");
  EXPECT_EQ(Refusal("w0", "s1"), "NO_SUCH_SESSION");
  EXPECT_EQ(pulls_.started(), 0u);
}

TEST_F(FetchingTest, CancelledCallIsCancelledAtTheOtherWorker) {
  const auto call = Open("w1");
  std::thread supervisor([&] {
    const auto receiver = pulls_.Await(0);
    call->Cancel();
    pulls_.AwaitCancel();
    // The thread that fetches may still have bytes.
    EXPECT_FALSE(receiver->OnBytes(0, "late").ok());
    receiver->OnFailed(absl::CancelledError("given up"));
  });
  Bytes bytes;
  EXPECT_FALSE(call->Receive(8, &bytes).ok());
  supervisor.join();
}

TEST_F(FetchingTest, FetchesThatEndedLeaveRoomForOthers) {
  // The source keeps every receiver, as PeerPulls may for a while.
  std::thread supervisor([&] {
    for (size_t i = 0; i < FetchingServer::kMaxCalls + 1; ++i) {
      pulls_.Await(i)->OnFailed(
          MakeError(absl::StatusCode::kNotFound, "OFFER_UNKNOWN", "no offer"));
    }
  });
  for (size_t i = 0; i < FetchingServer::kMaxCalls + 1; ++i) {
    ASSERT_EQ(Refusal("w1", "s1"), "OFFER_UNKNOWN") << i;
  }
  supervisor.join();
}

TEST_F(FetchingTest, FetchBeyondTheLimitWaitsAndCanBeGivenUp) {
  // The client knows the limit once it has an answer.
  EXPECT_EQ(Refusal("w1", "s2"), "NO_SUCH_SESSION");
  std::vector<std::unique_ptr<PeerCall>> calls;
  std::vector<std::thread> readers;
  const auto begin = [&] {
    calls.push_back(Open("w1"));
    readers.emplace_back([call = calls.back().get()] {
      Bytes bytes;
      EXPECT_FALSE(call->Receive(8, &bytes).ok());
    });
  };
  for (size_t i = 0; i < FetchingServer::kMaxCalls; ++i) begin();
  const auto last = pulls_.Await(FetchingServer::kMaxCalls - 1);
  begin();
  calls.back()->Cancel();
  readers.back().join();
  readers.pop_back();
  EXPECT_EQ(pulls_.started(), FetchingServer::kMaxCalls);
  // The next one gets the place of one that ends.
  begin();
  last->OnFailed(absl::NotFoundError("no offer"));
  (void)pulls_.Await(FetchingServer::kMaxCalls);
  for (const auto& call : calls) call->Cancel();
  for (std::thread& reader : readers) reader.join();
}

TEST_F(FetchingTest, EndOfTheExecutorEndsItsFetches) {
  const auto call = Open("w1");
  const auto receiver = pulls_.Await(0);
  serving_.reset();
  EXPECT_FALSE(receiver->OnBytes(0, "late").ok());
  Bytes bytes;
  EXPECT_FALSE(call->Receive(8, &bytes).ok());
}

}  // namespace
}  // namespace djinn::worker
