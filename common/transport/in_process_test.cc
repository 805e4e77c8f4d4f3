#include "common/transport/in_process.h"

#include <optional>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/patience.h"
#include "djinn/v1/execution.pb.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

template <typename Base, typename In>
class Recorder : public Base {
 public:
  void OnMessage(In message) override {
    MutexLock lock(&mu_);
    events_.push_back(message.ShortDebugString());
  }
  void OnBulk(uint64_t transfer_id, uint64_t offset,
              absl::Span<const absl::string_view> pieces) override {
    MutexLock lock(&mu_);
    std::string bytes;
    for (absl::string_view piece : pieces)
      bytes.append(piece.data(), piece.size());
    events_.push_back(std::to_string(transfer_id) + "@" +
                      std::to_string(offset) + ":" + bytes);
  }
  void OnClosed(absl::Status status) override {
    MutexLock lock(&mu_);
    closed_ = std::move(status);
    changed_.SignalAll();
  }
  absl::Status WaitClosed() {
    MutexLock lock(&mu_);
    for (Patience patience; !closed_.has_value();)
      patience.Wait(&changed_, &mu_);
    return *closed_;
  }
  std::vector<std::string> events() {
    MutexLock lock(&mu_);
    return events_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<std::string> events_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::Status> closed_ ABSL_GUARDED_BY(mu_);
};

std::shared_ptr<const v1::ControlRequest> Request(uint64_t sequence) {
  auto request = std::make_shared<v1::ControlRequest>();
  request->mutable_ordered()->set_sequence(sequence);
  return request;
}

TEST(InProcessTest, DeliversInOrderThenTheCleanEnd) {
  Recorder<ClientStreamReceiver, v1::ControlResponse> client;
  Recorder<WorkerStreamReceiver, v1::ControlRequest> worker;
  InProcessPair pair = MakeInProcessPair();
  pair.client->Start(&client);
  pair.worker->Start(&worker);
  ASSERT_TRUE(pair.client->Send(Request(1)).ok());
  auto owner = std::make_shared<std::string>("abc");
  ASSERT_TRUE(pair.client->SendBulk(4, 8, {*owner, owner}).ok());
  ASSERT_TRUE(pair.client->Send(Request(2)).ok());
  pair.client->Close(absl::OkStatus());
  EXPECT_TRUE(worker.WaitClosed().ok());
  EXPECT_TRUE(client.WaitClosed().ok());
  EXPECT_EQ(worker.events(),
            (std::vector<std::string>{"ordered { sequence: 1 }", "4@8:abc",
                                      "ordered { sequence: 2 }"}));
}

TEST(InProcessTest, AnErrorReachesBothEndsAndLaterSends) {
  Recorder<ClientStreamReceiver, v1::ControlResponse> client;
  Recorder<WorkerStreamReceiver, v1::ControlRequest> worker;
  InProcessPair pair = MakeInProcessPair();
  pair.client->Start(&client);
  pair.worker->Start(&worker);
  pair.worker->Close(absl::UnavailableError("draining"));
  EXPECT_EQ(client.WaitClosed().message(), "draining");
  EXPECT_EQ(worker.WaitClosed().message(), "draining");
  EXPECT_EQ(pair.client->Send(Request(1)).message(), "draining");
}

// Counts its calls, and can block on request.
class SlowClient : public ClientStreamReceiver {
 public:
  void OnMessage(v1::ControlResponse) override {
    MutexLock lock(&mu_);
    while (held_) changed_.Wait(&mu_);
    ++messages_;
    changed_.SignalAll();
  }
  void OnBulk(uint64_t, uint64_t,
              absl::Span<const absl::string_view>) override {}
  void OnClosed(absl::Status) override {}
  void LetGo() {
    MutexLock lock(&mu_);
    held_ = false;
    changed_.SignalAll();
  }
  void WaitMessages(int count) {
    MutexLock lock(&mu_);
    for (Patience patience; messages_ < count;) patience.Wait(&changed_, &mu_);
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool held_ ABSL_GUARDED_BY(mu_) = true;
  int messages_ ABSL_GUARDED_BY(mu_) = 0;
};

class RoomListener : public WorkerStreamReceiver {
 public:
  void OnMessage(v1::ControlRequest) override {}
  void OnBulk(uint64_t, uint64_t,
              absl::Span<const absl::string_view>) override {}
  void OnClosed(absl::Status) override {}
  void OnRoom() override {
    MutexLock lock(&mu_);
    room_ = true;
    changed_.SignalAll();
  }
  void WaitRoom() {
    MutexLock lock(&mu_);
    for (Patience patience; !room_;) patience.Wait(&changed_, &mu_);
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool room_ ABSL_GUARDED_BY(mu_) = false;
};

TEST(InProcessTest, TheWorkersEndSaysWhenItIsFullAndWhenItHasRoom) {
  SlowClient client;
  RoomListener worker;
  InProcessPair pair = MakeInProcessPair(2);
  pair.client->Start(&client);
  pair.worker->Start(&worker);
  const auto response = std::make_shared<v1::ControlResponse>();
  int sent = 1;
  while (pair.worker->Send(response)) ++sent;
  // The client may have received one already.
  EXPECT_GE(sent, 2);
  EXPECT_LE(sent, 3);
  client.LetGo();
  worker.WaitRoom();
  client.WaitMessages(sent);
}

TEST(InProcessTest, DestroyingOneEndClosesTheOther) {
  Recorder<ClientStreamReceiver, v1::ControlResponse> client;
  Recorder<WorkerStreamReceiver, v1::ControlRequest> worker;
  InProcessPair pair = MakeInProcessPair();
  pair.client->Start(&client);
  pair.worker->Start(&worker);
  pair.client.reset();
  EXPECT_TRUE(worker.WaitClosed().ok());
}

}  // namespace
}  // namespace djinn
