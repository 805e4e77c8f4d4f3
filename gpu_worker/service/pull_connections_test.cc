// Tests values that one worker fetches from another one over shared memory.
// Both ends are in one process, with a real socket between them.
#include "gpu_worker/service/pull_connections.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/base/patience.h"
#include "common/transport/shared_memory/shared_memory_end.h"
#include "common/transport/stream.h"
#include "gpu_worker/pull/shared_memory_peers.h"
#include "gpu_worker/service/shared_memory_server.h"
#include "gpu_worker/testing/core_fixture.h"
#include "gpu_worker/testing/core_peers.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

// More than a ring holds, and not a multiple of a chunk.
constexpr int64_t kElements = (6 << 20) / sizeof(float) + 5;
constexpr uint64_t kAll = ~uint64_t{0};

// Collects the bytes; can keep them waiting.
class Receiver : public PullReceiver {
 public:
  void OnWaiting() override {
    MutexLock lock(&mu_);
    ++waits_;
    changed_.SignalAll();
  }
  absl::Status OnBytes(uint64_t offset, absl::string_view bytes) override {
    MutexLock lock(&mu_);
    EXPECT_EQ(offset, bytes_.size());
    bytes_.append(bytes.data(), bytes.size());
    changed_.SignalAll();
    while (bytes_.size() >= takes_) changed_.Wait(&mu_);
    if (then_ != nullptr) then_();
    return refusal_;
  }
  void OnComplete() override {}
  void OnShared(std::shared_ptr<Buffer>) override {}
  void OnPoisoned(v1::ErrorDetail) override {}
  void OnFailed(absl::Status) override {}

  // Limits what it takes, but for the rest of the last piece.
  void Take(uint64_t bytes) {
    MutexLock lock(&mu_);
    takes_ = bytes;
    changed_.SignalAll();
  }
  // Sets the function that is called with all bytes.
  void Then(std::function<void()> then) {
    MutexLock lock(&mu_);
    then_ = std::move(then);
  }
  void RefuseWith(absl::Status refusal) {
    MutexLock lock(&mu_);
    refusal_ = std::move(refusal);
  }
  void AwaitBytes(uint64_t bytes = 1) {
    MutexLock lock(&mu_);
    for (Patience patience; bytes_.size() < bytes;)
      patience.Wait(&changed_, &mu_);
  }
  std::string bytes() {
    MutexLock lock(&mu_);
    return bytes_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  int waits_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t takes_ ABSL_GUARDED_BY(mu_) = kAll;
  std::function<void()> then_ ABSL_GUARDED_BY(mu_);
  absl::Status refusal_ ABSL_GUARDED_BY(mu_);
  std::string bytes_ ABSL_GUARDED_BY(mu_);
};

// Answers its first request with four bytes, and takes nothing after it.
class BusyWorker : public SharedMemoryEnd::Handler {
 public:
  explicit BusyWorker(SharedConnection connection)
      : end_(SharedSide::kWorker, {}, std::move(connection)) {
    end_.Start(/*open=*/nullptr, this);
  }
  ~BusyWorker() override {
    MutexLock lock(&mu_);
    over_ = true;
    changed_.SignalAll();
  }
  absl::Status OnBytes(absl::string_view) override {
    end_.SendBulk(/*transfer_id=*/1, /*offset=*/0, {"four", nullptr});
    MutexLock lock(&mu_);
    while (!over_) changed_.Wait(&mu_);
    return absl::OkStatus();
  }
  void OnBulk(uint64_t, uint64_t,
              absl::Span<const absl::string_view>) override {}
  void OnClosed(absl::Status) override {}

 private:
  Mutex mu_;
  CondVar changed_;
  bool over_ ABSL_GUARDED_BY(mu_) = false;
  // Declared last, so that it ends before the fields that its callbacks use.
  SharedMemoryEnd end_;
};

class PullConnectionsTest : public WorkerCoreTest {
 protected:
  using Received = absl::StatusOr<std::optional<v1::ErrorDetail>>;

  PullConnectionsTest() {
    char folder[] = "/tmp/pull-connections-XXXXXX";
    EXPECT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
    path_ = absl::StrCat(folder_, "/socket");
    connections_ = std::make_unique<PullConnections>(core_.get());
    Listen();
    auto other = std::make_unique<CorePeers>(core_.get());
    other_ = other.get();
    peers_->SetOther(std::move(other));
  }
  ~PullConnectionsTest() override {
    peers_.reset();
    server_.reset();
    connections_.reset();
    unlink(path_.c_str());
    rmdir(folder_.c_str());
  }

  void Listen(RingSizes ring_sizes = PullConnections::kRingSizes) {
    SharedMemoryServer::Options options;
    options.path = path_;
    options.ring_sizes = ring_sizes;
    options.incarnation = core_->incarnation();
    options.serve = [this](SharedConnection connection) {
      if (serve_ != nullptr) {
        return std::exchange(serve_, nullptr)(std::move(connection));
      }
      connections_->Add(std::move(connection));
    };
    server_ = SharedMemoryServer::Start(std::move(options)).value();
  }
  v1::Peer Peer() {
    v1::Peer peer;
    peer.set_worker_id("w0");
    peer.set_incarnation(core_->incarnation());
    return peer;
  }
  std::unique_ptr<PeerCall> Ask(char ticket, uint64_t bytes) {
    v1::PullRequest request;
    request.set_session_id("s1");
    request.set_ticket(Ticket(ticket));
    request.set_size_bytes(bytes);
    request.set_worker_incarnation(core_->incarnation());
    return peers_->Open(Peer(), request).value();
  }
  Received Fetch(char ticket, uint64_t bytes, Receiver* receiver) {
    return Ask(ticket, bytes)->Receive(bytes, receiver);
  }
  // Opens a session whose storage 1 is filled with sevens.
  std::unique_ptr<TestClient> OpenWithSevens() {
    std::unique_ptr<TestClient> client = Open();
    FakeGraph s;
    s.FillInPlace(s.Bound(), kElements);
    client->Define(1, s.get());
    client->Create(1, kBytes);
    client->Run(1, {1}, {7});
    return client;
  }
  static std::string Sevens() { return FloatBytes(Floats(kElements, 7)); }

  static constexpr uint64_t kBytes = kElements * sizeof(float);

  std::string folder_, path_;
  // Receives the next connection instead of connections_. Set it before that
  // connection.
  std::function<void(SharedConnection)> serve_;
  std::unique_ptr<PullConnections> connections_;
  std::unique_ptr<SharedMemoryServer> server_;
  // Independent of the core's clock, whose time advances by itself.
  FakeClock peers_clock_;
  std::unique_ptr<SharedMemoryPeers> peers_ =
      std::make_unique<SharedMemoryPeers>(&peers_clock_);
  CorePeers* other_ = nullptr;
};

TEST_F(PullConnectionsTest, UnknownPeerIsAskedOverTheNetwork) {
  const std::unique_ptr<TestClient> client = OpenWithSevens();
  client->Offer(1, Ticket('a'));
  Receiver receiver;
  ASSERT_TRUE(Fetch('a', kBytes, &receiver).ok());
  EXPECT_EQ(receiver.bytes(), Sevens());
  EXPECT_EQ(other_->asked(), 1);
  EXPECT_EQ(connections_->count(), 0u);
}

TEST_F(PullConnectionsTest, ValuesComeOverOneConnectionOneAfterTheOther) {
  const std::unique_ptr<TestClient> client = OpenWithSevens();
  peers_->Learn(Peer(), path_);
  for (const char ticket : {'a', 'b', 'c'}) {
    client->Offer(1, Ticket(ticket));
    Receiver receiver;
    const Received received = Fetch(ticket, kBytes, &receiver);
    ASSERT_TRUE(received.ok()) << received.status();
    EXPECT_FALSE(received->has_value());
    EXPECT_EQ(receiver.bytes(), Sevens());
  }
  EXPECT_EQ(other_->asked(), 0);
  EXPECT_EQ(connections_->count(), 1u);
  EXPECT_EQ(core_->offers().offers(), 0u);
}

TEST_F(PullConnectionsTest, OfferedBytesAreReleasedBeforeAllHaveArrived) {
  const std::unique_ptr<TestClient> client = Open();
  peers_->Learn(Peer(), path_);
  FakeGraph s;
  s.FillInPlace(s.Bound(), kElements);
  client->Define(1, s.get());
  for (uint64_t storage = 1; storage <= 20; ++storage) {
    const char ticket = static_cast<char>('a' + storage);
    client->Create(storage, kBytes);
    client->Run(1, {storage}, {7});
    client->Offer(storage, Ticket(ticket));
    ASSERT_TRUE(client->WaitCompleted(client->Free({storage})));
    Receiver receiver;
    EXPECT_TRUE(Fetch(ticket, kBytes, &receiver).ok());
    EXPECT_EQ(core_->ledger().usage().used, 0u) << storage;
  }
}

TEST_F(PullConnectionsTest, IdleConnectionEnds) {
  const std::unique_ptr<TestClient> client = OpenWithSevens();
  peers_->Learn(Peer(), path_);
  const auto fetch = [&](char ticket) {
    client->Offer(1, Ticket(ticket));
    Receiver receiver;
    EXPECT_TRUE(Fetch(ticket, kBytes, &receiver).ok());
  };
  fetch('a');
  peers_clock_.Advance(SharedMemoryPeers::kIdleTime - absl::Seconds(1));
  peers_->Tick();
  fetch('b');
  EXPECT_EQ(connections_->count(), 1u);
  peers_clock_.Advance(SharedMemoryPeers::kIdleTime);
  peers_->Tick();
  EXPECT_TRUE(WaitUntil([&] {
    connections_->Tick();
    return connections_->count() == 0;
  }));
  fetch('c');
  EXPECT_EQ(connections_->count(), 1u);
  EXPECT_EQ(other_->asked(), 0);
}

TEST_F(PullConnectionsTest, TwoAtATimeHaveAConnectionEach) {
  const std::unique_ptr<TestClient> client = OpenWithSevens();
  peers_->Learn(Peer(), path_);
  client->Offer(1, Ticket('a'));
  Receiver slow;
  slow.Take(1);
  std::thread first([&] { EXPECT_TRUE(Fetch('a', kBytes, &slow).ok()); });
  slow.AwaitBytes();
  client->Offer(1, Ticket('b'));
  Receiver receiver;
  EXPECT_TRUE(Fetch('b', kBytes, &receiver).ok());
  EXPECT_EQ(receiver.bytes(), Sevens());
  slow.Take(kAll);
  first.join();
  EXPECT_EQ(slow.bytes(), Sevens());
  EXPECT_EQ(connections_->count(), 2u);
}

TEST_F(PullConnectionsTest, ACallWaitsForItsOffer) {
  const std::unique_ptr<TestClient> client = OpenWithSevens();
  peers_->Learn(Peer(), path_);
  Receiver receiver;
  std::thread waits([&] { EXPECT_TRUE(Fetch('a', kBytes, &receiver).ok()); });
  ASSERT_TRUE(WaitUntil([&] { return connections_->count() == 1; }));
  client->Offer(1, Ticket('a'));
  waits.join();
  EXPECT_EQ(receiver.bytes(), Sevens());
}

TEST_F(PullConnectionsTest, ARefusalSaysWhyAndOthersGoOn) {
  const std::unique_ptr<TestClient> client = OpenWithSevens();
  peers_->Learn(Peer(), path_);
  client->Offer(1, Ticket('a'));
  Receiver receiver;
  EXPECT_EQ(ErrorReason(Fetch('a', 4, &receiver).status()), "SIZE_MISMATCH");
  EXPECT_EQ(receiver.bytes(), "");
  client->Offer(1, Ticket('b'));
  EXPECT_TRUE(Fetch('b', kBytes, &receiver).ok());
  EXPECT_EQ(receiver.bytes(), Sevens());
  EXPECT_EQ(other_->asked(), 0);
}

TEST_F(PullConnectionsTest, ARootErrorComesInTheBytesPlace) {
  const std::unique_ptr<TestClient> client = Open();
  peers_->Learn(Peer(), path_);
  FakeGraph s;
  s.FailInPlace(s.Bound(), 2);
  client->Define(1, s.get());
  client->Create(1, 8);
  client->Run(1, {1});
  client->Offer(1, Ticket('a'));
  Receiver receiver;
  const Received received = Fetch('a', 8, &receiver);
  ASSERT_TRUE(received.ok()) << received.status();
  ASSERT_TRUE(received->has_value());
  EXPECT_NE((*received)->error_id(), 0u);
}

TEST_F(PullConnectionsTest, ReceiversErrorEndsTheCall) {
  const std::unique_ptr<TestClient> client = OpenWithSevens();
  peers_->Learn(Peer(), path_);
  client->Offer(1, Ticket('a'));
  Receiver receiver;
  receiver.RefuseWith(absl::CancelledError("enough"));
  EXPECT_TRUE(absl::IsCancelled(Fetch('a', kBytes, &receiver).status()));
  EXPECT_LT(receiver.bytes().size(), kBytes);
}

TEST_F(PullConnectionsTest, ACancelledCallReturns) {
  const std::unique_ptr<TestClient> client = OpenWithSevens();
  peers_->Learn(Peer(), path_);
  Receiver receiver;
  const std::unique_ptr<PeerCall> call = Ask('a', kBytes);
  std::thread waits(
      [&] { EXPECT_FALSE(call->Receive(kBytes, &receiver).ok()); });
  ASSERT_TRUE(WaitUntil([&] { return connections_->count() == 1; }));
  call->Cancel();
  waits.join();
  EXPECT_EQ(receiver.bytes(), "");
}

TEST_F(PullConnectionsTest, ACallCancelledAtItsLastByteHarmsNoOther) {
  const std::unique_ptr<TestClient> client = OpenWithSevens();
  peers_->Learn(Peer(), path_);
  // The worker does not say goodbye soon.
  std::unique_ptr<BusyWorker> busy;
  serve_ = [&](SharedConnection connection) {
    busy = std::make_unique<BusyWorker>(std::move(connection));
  };
  Receiver first;
  const std::unique_ptr<PeerCall> call = Ask('a', 4);
  first.Then([&call] { call->Cancel(); });
  call->Receive(4, &first).IgnoreError();
  EXPECT_EQ(first.bytes(), "four");
  client->Offer(1, Ticket('b'));
  Receiver second;
  const Received received = Fetch('b', kBytes, &second);
  EXPECT_TRUE(received.ok()) << received.status();
  EXPECT_EQ(second.bytes(), Sevens());
  EXPECT_EQ(other_->asked(), 0);
}

TEST_F(PullConnectionsTest, ReceiverThatTakesNothingIsCutOff) {
  const std::unique_ptr<TestClient> client = OpenWithSevens();
  peers_->Learn(Peer(), path_);
  client->Offer(1, Ticket('a'));
  Receiver frozen;
  frozen.Take(1);
  absl::Status end;
  std::thread fetches([&] { end = Fetch('a', kBytes, &frozen).status(); });
  frozen.AwaitBytes();
  // The receiver takes nothing from one tick to the next.
  EXPECT_TRUE(WaitUntil([&] {
    connections_->Tick();
    return connections_->count() == 0;
  }));
  frozen.Take(kAll);
  fetches.join();
  EXPECT_TRUE(absl::IsUnavailable(end)) << end;
}

TEST_F(PullConnectionsTest, SlowReceiverIsNotCutOff) {
  const std::unique_ptr<TestClient> client = OpenWithSevens();
  peers_->Learn(Peer(), path_);
  server_.reset();
  // At most 2 MiB are sent beyond what was taken: in the ring, and in the
  // SharedMemoryEnd.
  Listen({.control = 64 << 10, .bulk = 2 * kBulkChunkBytes});
  client->Offer(1, Ticket('a'));
  Receiver slow;
  absl::Status end;
  slow.Take(1);
  std::thread fetches([&] { end = Fetch('a', kBytes, &slow).status(); });
  for (const uint64_t taken :
       {uint64_t{1}, uint64_t{5} << 19, 5 * kBytes / 6}) {
    slow.Take(taken);
    slow.AwaitBytes(taken);
    connections_->Tick();
  }
  slow.Take(kAll);
  fetches.join();
  EXPECT_TRUE(end.ok()) << end;
  EXPECT_EQ(slow.bytes(), Sevens());
}

TEST_F(PullConnectionsTest, WhereAnotherWorkerIsFoundItIsNotTriedAgain) {
  const std::unique_ptr<TestClient> client = OpenWithSevens();
  v1::Peer peer = Peer();
  peers_->Learn(peer, absl::StrCat(folder_, "/nobody"));
  for (const char ticket : {'a', 'b'}) {
    client->Offer(1, Ticket(ticket));
    Receiver receiver;
    EXPECT_TRUE(Fetch(ticket, kBytes, &receiver).ok());
    EXPECT_EQ(receiver.bytes(), Sevens());
    // The connector has tried the socket that the peer named.
    peers_->Learn(peer, path_);
  }
  EXPECT_EQ(other_->asked(), 2);
  EXPECT_EQ(connections_->count(), 0u);
}

TEST_F(PullConnectionsTest, PeerThatHangsUpIsRetriedLater) {
  const std::unique_ptr<TestClient> client = OpenWithSevens();
  peers_->Learn(Peer(), path_);
  // Listens in the server's place and hangs up, like a server that has too many
  // connections.
  server_.reset();
  std::optional<Descriptor> listener = ListenForSharedMemory(path_).value();
  std::thread hangs_up([&] {
    pollfd comes = {listener->get(), POLLIN, 0};
    poll(&comes, 1, /*timeout=*/-1);
    const Descriptor socket(accept(listener->get(), nullptr, nullptr));
  });
  const auto fetch = [&](char ticket) {
    client->Offer(1, Ticket(ticket));
    Receiver receiver;
    EXPECT_TRUE(Fetch(ticket, kBytes, &receiver).ok());
    EXPECT_EQ(receiver.bytes(), Sevens());
  };
  fetch('a');
  hangs_up.join();
  listener.reset();
  EXPECT_EQ(other_->asked(), 1);
  Listen();
  peers_clock_.Advance(SharedMemoryPeers::kPause - absl::Seconds(1));
  fetch('b');
  EXPECT_EQ(other_->asked(), 2);
  peers_clock_.Advance(absl::Seconds(1));
  fetch('c');
  EXPECT_EQ(other_->asked(), 2);
  EXPECT_EQ(connections_->count(), 1u);
}

TEST_F(PullConnectionsTest, AWorkerThatStopsEndsItsCalls) {
  const std::unique_ptr<TestClient> client = OpenWithSevens();
  peers_->Learn(Peer(), path_);
  Receiver receiver;
  absl::Status end;
  std::thread waits([&] { end = Fetch('a', kBytes, &receiver).status(); });
  ASSERT_TRUE(WaitUntil([&] { return connections_->count() == 1; }));
  server_.reset();
  connections_ = std::make_unique<PullConnections>(core_.get());
  waits.join();
  EXPECT_FALSE(end.ok());
}

TEST_F(PullConnectionsTest, StopNotifiesAllPeersBeforeItWaitsForOne) {
  const std::unique_ptr<TestClient> client = OpenWithSevens();
  // The first peer never says goodbye.
  auto connections =
      std::make_unique<PullConnections>(core_.get(), absl::Hours(1));
  connections_.swap(connections);
  std::optional<Descriptor> silent = DialSharedMemory(path_).value();
  ASSERT_TRUE(WaitUntil([&] { return connections_->count() == 1; }));
  peers_->Learn(Peer(), path_);
  Receiver receiver;
  absl::Status end;
  std::thread waits([&] { end = Fetch('a', kBytes, &receiver).status(); });
  ASSERT_TRUE(WaitUntil([&] { return connections_->count() == 2; }));
  server_.reset();
  std::thread stops([this] { connections_.reset(); });
  waits.join();
  EXPECT_FALSE(end.ok());
  silent.reset();
  stops.join();
}

}  // namespace
}  // namespace djinn::worker
