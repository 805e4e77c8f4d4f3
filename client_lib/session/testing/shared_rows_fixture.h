// Captures and executes graphs in fast mode on a device of two workers that
// divides rows.
#ifndef CLIENT_LIB_SESSION_TESTING_SHARED_ROWS_FIXTURE_H_
#define CLIENT_LIB_SESSION_TESTING_SHARED_ROWS_FIXTURE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client_lib/session/model/execution_flag.h"
#include "client_lib/session/testing/program.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn {

class SharedRowsFixture : public ::testing::Test {
 protected:
  static constexpr uint32_t kLane = 3;
  // Each row is one byte.
  static constexpr uint64_t kRows = 12;

  SharedRowsFixture() {
    SetFastExecution(true);
    SessionOptions options;
    options.device_workers[0] = 2;
    options.copy_operator = TestOperator(/*op=*/900);
    cluster_.coordinator().LetSpan(2);
    session_ = cluster_.Open(std::move(options));
    device_ = *session_->Device(0);
    weights_ = Uploaded(8);
    // The first call makes the device request its second worker.
    Call(5, {{weights_, kWrites}});
    EXPECT_EQ(device_->Placement()->worker_id, "w0+w1");
  }
  ~SharedRowsFixture() override {
    SetFastExecution(false);
    session_ = nullptr;
  }

  StoragePtr Uploaded(uint64_t bytes) {
    StoragePtr storage = device_->NewStorage(bytes);
    const auto pattern = std::make_shared<std::string>(Pattern(bytes));
    EXPECT_EQ(device_->Upload(kLane, storage.get(), {*pattern, pattern}),
              absl::OkStatus());
    return storage;
  }
  void Call(int op, const std::vector<Use>& touches) {
    EXPECT_EQ(Record(*device_, kLane, MakeCall(op, touches)), absl::OkStatus());
  }

  absl::StatusOr<std::shared_ptr<const CapturedGraph>> Finish(
      const StoragePtr& input, const StoragePtr& output) {
    RemoteStorage* const given[] = {input.get()};
    RemoteStorage* const outputs[] = {output.get()};
    return device_->graphs().Finish(kLane, given, outputs, 1);
  }
  absl::StatusOr<StoragePtr> Replay(
      const std::shared_ptr<const CapturedGraph>& captured_graph,
      const StoragePtr& input) {
    RemoteStorage* const given[] = {input.get()};
    auto outputs =
        device_->graphs().Replay(kLane, captured_graph, given, nullptr);
    if (!outputs.ok()) return outputs.status();
    return outputs->at(0);
  }
  // Returns the sizes of the runs that the worker received so far.
  std::vector<int64_t> Sizes(int worker) {
    EXPECT_EQ(device_->Synchronize(), absl::OkStatus());
    std::vector<int64_t> sizes;
    for (const v1::Run& run : cluster_.worker(worker).seen().runs) {
      if (run.size() != 0) sizes.push_back(run.size());
    }
    return sizes;
  }
  int Count(int worker, v1::Ordered::ActionCase action) {
    int count = 0;
    for (const v1::Ordered& message : cluster_.worker(worker).seen().received) {
      count += message.action_case() == action;
    }
    return count;
  }

  FakeCluster cluster_;
  std::unique_ptr<Session> session_;
  std::shared_ptr<VirtualDevice> device_;
  StoragePtr weights_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_TESTING_SHARED_ROWS_FIXTURE_H_
