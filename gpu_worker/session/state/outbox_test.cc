#include "gpu_worker/session/state/outbox.h"

#include <memory>
#include <utility>
#include <vector>

#include "djinn/v1/execution.pb.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

// Takes one message, and then another whenever it has room.
class NarrowStream : public WorkerStream {
 public:
  void Start(WorkerStreamReceiver*) override {}
  bool Send(std::shared_ptr<const v1::ControlResponse> message) override {
    taken.push_back(*message);
    return false;
  }
  bool SendBulk(uint64_t, uint64_t, SharedBytes) override { return false; }
  void Close(absl::Status) override {}

  std::vector<v1::ControlResponse> taken;
};

v1::ControlResponse News(uint64_t completed) {
  v1::ControlResponse news;
  news.set_completed_sequence(completed);
  return news;
}

TEST(OutboxTest, TheLatestNewsSayAllThatWasToBeSaid) {
  FakeClock clock;
  Traffic traffic;
  NarrowStream stream;
  Outbox outbox(1 << 20, &traffic, &clock, [] {});
  outbox.Attach(&stream, 1, {News(0)});
  ASSERT_EQ(stream.taken.size(), 1u);
  v1::ControlResponse first = News(1);
  first.mutable_window()->set_messages(7);
  first.set_content_room(5);
  outbox.PushNews(std::move(first));
  v1::ControlResponse second = News(2);
  second.set_content_room(0);
  outbox.PushNews(std::move(second));
  outbox.PushNews(News(3));
  outbox.OnRoom();
  ASSERT_EQ(stream.taken.size(), 2u);
  const v1::ControlResponse& said = stream.taken[1];
  EXPECT_EQ(said.completed_sequence(), 3u);
  EXPECT_EQ(said.window().messages(), 7u);
  EXPECT_TRUE(said.has_content_room());
  EXPECT_EQ(said.content_room(), 0u);
  outbox.Detach(&stream);
}

}  // namespace
}  // namespace djinn::worker
