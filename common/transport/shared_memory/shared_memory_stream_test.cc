#include "common/transport/shared_memory/shared_memory_stream.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/patience.h"
#include "common/transport/shared_memory/testing.h"
#include "gtest/gtest.h"

namespace djinn::shared_memory {
namespace {

// Both ends of a stream, started.
class StartedStreamTest : public testing::Test {
 protected:
  StartedStreamTest() {
    pair_.client->Start(&client_);
    pair_.worker->Start(&worker_);
  }

  Client client_;
  Worker worker_;
  Pair pair_;
};

TEST_F(StartedStreamTest, CarriesMessagesAndChunksBothWaysToACleanEnd) {
  for (uint64_t i = 0; i < 500; ++i) {
    ASSERT_TRUE(pair_.client->Send(Request(i)).ok());
    ASSERT_TRUE(pair_.client->SendBulk(4, i, Bytes(absl::StrCat(i))).ok());
    if (!pair_.worker->Send(Response(i))) worker_.WaitRoom(1);
  }
  // The chunk is received before the end, although no thread waited for it.
  ASSERT_TRUE(pair_.client->SendBulk(4, 500, Bytes("500")).ok());
  pair_.client->Close(absl::OkStatus());
  EXPECT_TRUE(worker_.WaitClosed().ok());
  EXPECT_TRUE(client_.WaitClosed().ok());
  const auto requests = worker_.WaitMessages(500);
  const auto responses = client_.WaitMessages(500);
  const auto chunks = worker_.WaitChunks(501);
  for (uint64_t i = 0; i < 500; ++i) {
    EXPECT_EQ(requests[i].ordered().sequence(), i);
    EXPECT_EQ(responses[i].completed_sequence(), i);
    EXPECT_EQ(chunks[i], absl::StrCat("4@", i, ":", i));
  }
  EXPECT_FALSE(pair_.client->Send(Request(1)).ok());
}

TEST_F(StartedStreamTest, AMessageMayBeLargerThanTheRing) {
  const auto large = Request(1, 100000);
  ASSERT_TRUE(pair_.client->Send(large).ok());
  ASSERT_TRUE(pair_.client->Send(Request(2)).ok());
  const auto requests = worker_.WaitMessages(2);
  EXPECT_EQ(requests[0].SerializeAsString(), large->SerializeAsString());
  EXPECT_EQ(requests[1].ordered().sequence(), 2);
}

TEST_F(StartedStreamTest, ChunksOfManySizesArriveWhole) {
  std::vector<std::string> expected;
  for (size_t i = 0; i < 300; ++i) {
    const std::string payload(i * 13 % 4000, static_cast<char>('a' + i % 26));
    expected.push_back(absl::StrCat("9@", i, ":", payload));
    ASSERT_TRUE(pair_.client->SendBulk(9, i, Bytes(payload)).ok());
  }
  EXPECT_EQ(worker_.WaitChunks(300), expected);
}

TEST_F(StartedStreamTest, AReasonReachesTheOtherSideWhole) {
  const absl::Status why = MakeError(absl::StatusCode::kUnavailable, "DRAINING",
                                     "the worker stops", {{"key", "value"}});
  pair_.worker->Close(why);
  EXPECT_EQ(client_.WaitClosed(), why);
  EXPECT_EQ(worker_.WaitClosed(), why);
}

TEST_F(StartedStreamTest, AReasonsTextMayBeAnyBytesAndIsCutToFit) {
  const std::string text = "\xff\xc3" + std::string(5000, 'x');
  pair_.worker->Close(
      MakeError(absl::StatusCode::kInternal, "SESSION_LOST", text));
  const absl::Status closed = client_.WaitClosed();
  EXPECT_EQ(ErrorReason(closed), "SESSION_LOST");
  EXPECT_GT(closed.message().size(), 500);
  EXPECT_EQ(closed.message(), text.substr(0, closed.message().size()));
}

TEST(SharedMemoryStreamTest, SenderOfManyChunksHearsOfRoom) {
  Client client;
  Worker worker;
  SharedMemoryEnd::Options options;
  options.bulk_burst = 3;
  options.bulk_queue_limit = 1000;
  Pair pair(options);
  pair.client->Start(&client);
  pair.worker->Start(&worker);
  uint64_t sent = 1;
  while (pair.worker->SendBulk(1, sent, Bytes("x"))) ++sent;
  worker.WaitRoom(1);
  EXPECT_EQ(client.WaitChunks(sent).size(), sent);
}

TEST(SharedMemoryStreamTest, AStreamThatIsNotStartedCanRefuse) {
  Client client;
  Pair pair;
  pair.client->Start(&client);
  pair.worker->Close(MakeError(absl::StatusCode::kResourceExhausted,
                               "TOO_MANY_CONNECTIONS", "enough"));
  pair.worker.reset();
  EXPECT_EQ(ErrorReason(client.WaitClosed()), "TOO_MANY_CONNECTIONS");
}

TEST(SharedMemoryStreamTest, TheWorkersEndSaysWhenItIsFullAndWhenItHasRoom) {
  Client client;
  Worker worker;
  SharedMemoryEnd::Options options;
  options.queue_limit = 4;
  Pair pair(options);
  client.Hold(true);
  pair.client->Start(&client);
  pair.worker->Start(&worker);
  uint64_t sent = 1;
  while (pair.worker->Send(Response(sent))) ++sent;
  // More than the queue holds, because the ring was filled first.
  EXPECT_GT(sent, 4);
  client.Hold(false);
  worker.WaitRoom(1);
  EXPECT_EQ(client.WaitMessages(sent).size(), sent);
}

TEST(SharedMemoryStreamTest, AClientWaitsForRoomAndClosingEndsTheWait) {
  Client client;
  Worker worker;
  Pair pair;
  worker.Hold(true);
  pair.client->Start(&client);
  pair.worker->Start(&worker);
  ASSERT_TRUE(pair.client->Send(Request(1)).ok());
  // The worker is still in the first callback, and this message does not fit.
  std::thread sender(
      [&] { EXPECT_FALSE(pair.client->Send(Request(2, 100000)).ok()); });
  pair.client->Close(absl::CancelledError("enough"));
  sender.join();
  worker.Hold(false);
  EXPECT_EQ(worker.WaitClosed().message(), "enough");
}

TEST(SharedMemoryStreamTest, AClientGivesUpOnAWorkerThatTakesNothing) {
  Client client;
  SharedMemoryEnd::Options options;
  options.stuck_write = absl::Milliseconds(50);
  options.close_timeout = absl::Milliseconds(50);
  Pair pair(options);  // the worker's end is never started
  pair.client->Start(&client);
  absl::Status status;
  for (int i = 0; i < 100 && status.ok(); ++i) {
    status = pair.client->Send(Request(1, 1000));
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  const absl::Status closed = client.WaitClosed();
  EXPECT_EQ(closed.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(closed.message(), "the peer took nothing for 50ms");
  EXPECT_EQ(ErrorReason(closed), "");
}

TEST(SharedMemoryStreamTest, APeerThatIsGoneIsUnavailableAfterItsLastWords) {
  Client client;
  Sockets sockets = MakeSockets();
  {
    SharedConnection worker =
        SharedConnection::Offer(std::move(sockets.worker), kSmall, kIncarnation)
            .value();
    const SharedRegion::Ring ring = worker.region.control(SharedSide::kWorker);
    FrameRingWriter writer(ring.state, ring.data, ring.bytes);
    writer.Write({}, Response(7)->SerializeAsString());
  }
  const auto stream = MakeSharedMemoryClientStream(
      AcceptFrom(std::move(sockets.client)), MakeEvent().value());
  stream->Start(&client);
  EXPECT_EQ(client.WaitMessages(1)[0].completed_sequence(), 7);
  const absl::Status closed = client.WaitClosed();
  EXPECT_EQ(closed.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ErrorReason(closed), "");
}

TEST(SharedMemoryStreamTest, ClosingAClientThatWaitsForItsGreetingReturns) {
  Client client;
  Sockets sockets = MakeSockets();
  const auto stream = MakeSharedMemoryClientStream(
      AcceptFrom(std::move(sockets.client)), MakeEvent().value());
  stream->Start(&client);
  stream->Close(absl::OkStatus());
  EXPECT_EQ(client.WaitClosed().code(), absl::StatusCode::kCancelled);
}

SharedConnection AcceptNow(Descriptor socket) {
  const Descriptor never = MakeEvent().value();
  return SharedConnection::Accept(std::move(socket), kIncarnation, never.get(),
                                  absl::Seconds(30))
      .value();
}

class RegionPoolTest : public testing::Test {
 protected:
  // Returns the reason why the pool has no region for a further connection, or
  // an empty text.
  std::string Refusal() {
    return ErrorReason(
        pool_->Offer(MakeSockets().worker, kIncarnation).status());
  }

  const std::unique_ptr<RegionPool> pool_ = RegionPool::Make(kSmall, 1).value();
  Sockets sockets_ = MakeSockets();
  std::optional<SharedConnection> worker_ =
      pool_->Offer(std::move(sockets_.worker), kIncarnation).value();
  std::optional<SharedConnection> client_ =
      AcceptNow(std::move(sockets_.client));
};

TEST_F(RegionPoolTest, RegionIsLentAgainWhenBothSidesAreGone) {
  *client_->region.sleep(SharedSide::kWorker) = kAsleepAtWord;
  EXPECT_EQ(*worker_->region.sleep(SharedSide::kWorker), kAsleepAtWord);
  client_->region.control(SharedSide::kClient).data[7] = 'x';
  EXPECT_EQ(Refusal(), "TOO_MANY_CONNECTIONS");
  worker_.reset();
  client_.reset();
  Sockets next = MakeSockets();
  const SharedConnection worker =
      pool_->Offer(std::move(next.worker), kIncarnation).value();
  const SharedConnection client = AcceptNow(std::move(next.client));
  EXPECT_EQ(*client.region.sleep(SharedSide::kWorker), kAwake);
  EXPECT_EQ(client.region.control(SharedSide::kClient).data[7], '\0');
  *client.region.sleep(SharedSide::kClient) = kAsleepAtSocket;
  EXPECT_EQ(*worker.region.sleep(SharedSide::kClient), kAsleepAtSocket);
}

TEST_F(RegionPoolTest, RegionStaysWithAClientThatLearnsOfTheEndLate) {
  worker_.reset();
  EXPECT_EQ(Refusal(), "TOO_MANY_CONNECTIONS");
  char byte;
  EXPECT_EQ(recv(client_->socket.get(), &byte, 1, MSG_DONTWAIT), 0);
  EXPECT_EQ(Refusal(), "TOO_MANY_CONNECTIONS");
  client_.reset();
  EXPECT_EQ(Refusal(), "");
}

TEST_F(RegionPoolTest, RegionStaysWithAWorkerWhoseClientIsGone) {
  client_.reset();
  EXPECT_EQ(Refusal(), "TOO_MANY_CONNECTIONS");
  worker_.reset();
  EXPECT_EQ(Refusal(), "");
}

// Attacks the worker's end as a hostile client would.
class HostileClientTest : public testing::Test {
 protected:
  HostileClientTest() {
    Sockets sockets = MakeSockets();
    SharedMemoryEnd::Options options;
    options.max_message_bytes = 10000;
    options.close_timeout = absl::Milliseconds(50);
    stream_ = MakeSharedMemoryWorkerStream(
        SharedConnection::Offer(std::move(sockets.worker), kSmall, kIncarnation)
            .value(),
        options);
    const Descriptor never = MakeEvent().value();
    connection_ =
        SharedConnection::Accept(std::move(sockets.client), kIncarnation,
                                 never.get(), absl::Seconds(30))
            .value();
    const SharedRegion::Ring control =
        connection_.region.control(SharedSide::kClient);
    control_.emplace(control.state, control.data, control.bytes);
    const SharedRegion::Ring bulk =
        connection_.region.bulk(SharedSide::kClient);
    bulk_.emplace(bulk.state, bulk.data, bulk.bytes);
  }

  std::string ReasonOfTheEnd() {
    stream_->Start(&worker_);
    return ErrorReason(worker_.WaitClosed());
  }

  Worker worker_;
  std::unique_ptr<WorkerStream> stream_;
  SharedConnection connection_;
  std::optional<FrameRingWriter> control_;
  std::optional<FrameRingWriter> bulk_;
};

TEST_F(HostileClientTest, AnImpossibleIndex) {
  connection_.region.bulk(SharedSide::kClient).state->written = ~uint64_t{31};
  EXPECT_EQ(ReasonOfTheEnd(), "RING_CORRUPT");
}

TEST_F(HostileClientTest, AnEndOfTheProcessWithoutAGoodbye) {
  connection_.socket = Descriptor();
  EXPECT_EQ(ReasonOfTheEnd(), "CLIENT_GONE");
}

TEST_F(HostileClientTest, BytesThatAreNoMessage) {
  control_->Write({}, "\xff\xff\xff");
  EXPECT_EQ(ReasonOfTheEnd(), "PROTOCOL_VIOLATION");
}

TEST_F(HostileClientTest, AMessageWithoutAnEnd) {
  FrameHeader header;
  header.more = 1;
  stream_->Start(&worker_);
  // Sends as fast as the worker reads.
  for (int i = 0; i < 11; ++i) {
    for (Patience patience; !control_->Fits(1000).value();) patience.Yield();
    control_->Write(header, std::string(1000, 'x'));
    send(connection_.socket.get(), "", 1, MSG_DONTWAIT);
  }
  EXPECT_EQ(ErrorReason(worker_.WaitClosed()), "MESSAGE_TOO_LARGE");
}

TEST_F(HostileClientTest, AChunkAmongMessages) {
  FrameHeader header;
  header.kind = FrameKind::kChunk;
  control_->Write(header, "bytes");
  EXPECT_EQ(ReasonOfTheEnd(), "RING_CORRUPT");
}

TEST_F(HostileClientTest, AMessageAmongChunks) {
  bulk_->Write({}, "bytes");
  EXPECT_EQ(ReasonOfTheEnd(), "RING_CORRUPT");
}

TEST_F(HostileClientTest, AnEndWithoutAStatus) {
  FrameHeader header;
  header.kind = FrameKind::kEnd;
  control_->Write(header, "\xff\xff");
  EXPECT_EQ(ReasonOfTheEnd(), "RING_CORRUPT");
}

TEST_F(HostileClientTest, ChunksWithoutEndDoNotKeepTheWorkerFromClosing) {
  const SharedRegion::Ring ring = connection_.region.bulk(SharedSide::kClient);
  FrameHeader header;
  header.kind = FrameKind::kChunk;
  while (bulk_->Fits(0).value()) bulk_->Write(header, "");
  std::atomic<uint32_t>* const sleeping =
      connection_.region.sleep(SharedSide::kWorker);
  std::atomic<bool> ended{false};
  std::thread flood([&] {
    while (!ended) {
      // The index claims that every frame is there already.
      ring.state->written = ring.state->read + ring.bytes;
      if (sleeping->exchange(0) == 0) continue;
      send(connection_.socket.get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
  });
  stream_->Start(&worker_);
  worker_.WaitChunks(1000);
  stream_->Close(absl::UnavailableError("enough"));
  EXPECT_EQ(worker_.WaitClosed().message(), "enough");
  ended = true;
  flood.join();
}

TEST_F(HostileClientTest, AReaderThatWasNeverThere) {
  connection_.region.control(SharedSide::kWorker).state->read = 12345;
  stream_->Start(&worker_);
  stream_->Send(Response(1));
  EXPECT_EQ(ErrorReason(worker_.WaitClosed()), "RING_CORRUPT");
}

// Sends greetings that a client must refuse.
class GreetingTest : public testing::Test {
 protected:
  absl::Status Accept() {
    const Descriptor never = MakeEvent().value();
    return SharedConnection::Accept(std::move(sockets_.client), kIncarnation,
                                    never.get(), absl::Milliseconds(50))
        .status();
  }
  // Sends a greeting for `bytes` of memory in rings of one page each, with
  // `file`.
  void Greet(uint32_t version, uint32_t ring_bytes, int file,
             uint64_t incarnation = kIncarnation) {
    struct {
      char magic[8] = {'d', 'j', 'i', 'n', 'n', 's', 'h', 'm'};
      uint32_t numbers[4] = {};
      uint64_t incarnation = 0;
    } greeting;
    greeting.incarnation = incarnation;
    greeting.numbers[0] = version;
    greeting.numbers[1] = greeting.numbers[2] = ring_bytes;
    iovec data = {&greeting, sizeof(greeting)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &file, sizeof(file));
    ASSERT_GT(sendmsg(sockets_.worker.get(), &message, 0), 0);
  }
  static Descriptor File(off_t bytes, int seals) {
    Descriptor file(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(ftruncate(file.get(), bytes), 0);
    EXPECT_EQ(fcntl(file.get(), F_ADD_SEALS, seals), 0);
    return file;
  }

  static constexpr uint32_t kVersion = 2;
  static constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  Sockets sockets_ = MakeSockets();
};

TEST_F(GreetingTest, ASealedFileOfTheRightSizeIsTaken) {
  const Descriptor file = File(5 * 4096, kSeals);
  Greet(kVersion, 4096, file.get());
  EXPECT_TRUE(Accept().ok());
}

TEST_F(GreetingTest, FilesThatDoNotFitAreRefused) {
  struct Case {
    const char* fault;
    off_t bytes;
    int seals;
    uint32_t ring_bytes;
  };
  for (const Case& bad : {
           Case{"the file could shrink", 5 * 4096, F_SEAL_GROW | F_SEAL_SEAL,
                4096},
           Case{"another size than the file's", 4 * 4096, kSeals, 4096},
           Case{"impossible rings", 4096, kSeals, 0},
       }) {
    sockets_ = MakeSockets();
    const Descriptor file = File(bad.bytes, bad.seals);
    Greet(kVersion, bad.ring_bytes, file.get());
    EXPECT_EQ(ErrorReason(Accept()), "SHARED_MEMORY_REFUSED") << bad.fault;
  }
}

TEST_F(GreetingTest, AnotherVersionIsNamed) {
  const Descriptor file = File(5 * 4096, kSeals);
  Greet(9, 4096, file.get());
  const absl::Status status = Accept();
  EXPECT_EQ(ErrorReason(status), "SHARED_MEMORY_REFUSED");
  EXPECT_EQ(status.message(),
            "shared memory: the worker's version is 9, this side's 2");
}

TEST_F(GreetingTest, AnotherWorkerIsRefused) {
  const Descriptor file = File(5 * 4096, kSeals);
  Greet(kVersion, 4096, file.get(), kIncarnation + 1);
  EXPECT_EQ(Accept().message(),
            "shared memory: another worker is at this path");
}

TEST_F(GreetingTest, SomebodyElsesSocketIsRefused) {
  ASSERT_EQ(send(sockets_.worker.get(), "HTTP/1.1 400", 12, 0), 12);
  EXPECT_EQ(ErrorReason(Accept()), "SHARED_MEMORY_REFUSED");
}

TEST_F(GreetingTest, SilentOrAbsentPeerIsUnavailable) {
  EXPECT_EQ(Accept().message(), "the worker does not answer");
  sockets_ = MakeSockets();
  sockets_.worker = Descriptor();
  EXPECT_EQ(Accept().message(), "the worker closed the socket");
}

}  // namespace
}  // namespace djinn::shared_memory
