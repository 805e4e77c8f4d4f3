// Tests a client that waits for one value after the other, and then stops
// waiting: the worker reads its next message while the value is still being
// computed.
#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/net/bounded_call.h"
#include "common/net/channel_options.h"
#include "common/net/grpc_status.h"
#include "common/net/server.h"
#include "gpu_worker/service/execution_service.h"
#include "gpu_worker/testing/core_fixture.h"

namespace djinn::worker {
namespace {

// A relative path, because test directories' names are too long for a socket.
constexpr char kAddress[] = "unix:waiting_client_test.sock";
// More values than after which a worker assumes that the client waits.
constexpr int kRequests = 20;

class WaitingClientTest : public WorkerCoreTest {
 protected:
  WaitingClientTest()
      : service_(core_.get(), "", &pacer_clock_),
        server_(*Server::Start({kAddress, false, {&service_}, {}})),
        call_(*MakeChannel(kAddress, {}), "/djinn.v1.Execution/Control") {
    Grant(Lease("s1", "t1"));
    v1::ControlRequest hello;
    *hello.mutable_hello() = HelloFor("s1");
    EXPECT_TRUE(call_.WriteMessage(hello));
    v1::Ordered create;
    create.mutable_create_storage()->set_storage(1);
    create.mutable_create_storage()->set_size_bytes(2 * sizeof(float));
    Say(create);
    FakeGraph fill;
    fill.FillInPlace(fill.Bound(), 2);
    v1::Ordered define;
    define.mutable_define_graph()->set_graph_id(1);
    *define.mutable_define_graph()->mutable_graph() = srg::ToProto(fill.get());
    Say(define);
  }
  ~WaitingClientTest() override {
    call_.Cancel();
    core_->Shutdown();
    server_->Shutdown(absl::ZeroDuration());
  }

  void Say(v1::Ordered message) {
    v1::ControlRequest request;
    message.set_sequence(++sequence_);
    *request.mutable_ordered() = std::move(message);
    request.set_acknowledged_reply(handled_);
    EXPECT_TRUE(call_.WriteMessage(request));
  }
  // Fills the storage, and requests its bytes.
  void Ask(float value) {
    v1::Ordered run;
    run.mutable_run()->set_graph_id(1);
    run.mutable_run()->add_float_holes(value);
    run.mutable_run()->set_mode(v1::EXECUTION_MODE_STRICT);
    v1::Binding* const binding = run.mutable_run()->add_bindings();
    binding->set_storage(1);
    binding->set_base_version(version_++);
    binding->set_writes(1);
    Say(run);
    v1::Ordered read;
    read.mutable_read()->set_storage(1);
    read.mutable_read()->set_version(version_);
    *read.mutable_read()->mutable_view() = srg::ToProto(FakeGraph::View(0, 2));
    Say(read);
  }
  Floats Answer() {
    for (;;) {
      while (!responses_.empty()) {
        const v1::ControlResponse response = std::move(responses_.front());
        responses_.pop_front();
        if (response.reply_number() != 0) handled_ = response.reply_number();
        if (response.has_read()) return FloatsOf(response.read().value());
      }
      v1::ControlResponse received;
      absl::Status invalid;
      if (!call_.ReadMessage(&received, &invalid)) return {};
      responses_.push_back(received);
      // The messages in `following` come after it.
      responses_.insert(responses_.end(), received.following().begin(),
                        received.following().end());
    }
  }

  FakeClock pacer_clock_;
  ExecutionService service_;
  std::unique_ptr<Server> server_;
  BoundedCall call_;
  // Received and not yet handled.
  std::deque<v1::ControlResponse> responses_;
  uint64_t sequence_ = 0;
  uint64_t version_ = 1;
  uint64_t handled_ = 0;
};

TEST_F(WaitingClientTest, IsHeardBeforeItsAnswer) {
  for (int i = 1; i <= kRequests; ++i) {
    Ask(i);
    ASSERT_EQ(Answer(), Floats(2, i));
  }
  NodeGate gate(&device_, 1);
  Ask(0);
  gate.WaitReached(1);
  // The worker refuses this message once it has read it.
  const grpc::Slice nonsense("\xff\xff");
  ASSERT_TRUE(call_.Write({&nonsense, 1}));
  std::atomic<bool> over{false};
  std::thread time([&] {
    while (!over) {
      pacer_clock_.Advance(ReadPacer::kPatience);
      std::this_thread::yield();
    }
  });
  EXPECT_EQ(Answer(), Floats());
  EXPECT_EQ(ErrorReason(FromGrpcStatus(call_.Finish())), "PROTOCOL_VIOLATION");
  over = true;
  time.join();
}

TEST_F(WaitingClientTest, GetsItsAnswersWhileTimeStandsStill) {
  for (int i = 1; i <= kRequests; ++i) {
    Ask(i);
    EXPECT_EQ(Answer(), Floats(2, i));
  }
  // The client requests several values at once.
  for (int i = 1; i <= kRequests; ++i) {
    for (const float value : {1, 2, 3, 4}) Ask(value);
    for (const float value : {1, 2, 3, 4}) {
      EXPECT_EQ(Answer(), Floats(2, value));
    }
  }
}

}  // namespace
}  // namespace djinn::worker
