#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "common/net/bearer.h"
#include "common/net/bounded_call.h"
#include "common/net/channel_options.h"
#include "common/net/grpc_status.h"
#include "common/net/protocol_version.h"
#include "common/net/raw_connection.h"
#include "common/net/raw_message.h"
#include "common/net/server.h"
#include "common/net/server_address.h"
#include "common/net/unproven_connections.h"
#include "common/transport/message_scan.h"
#include "djinn/v1/execution.pb.h"
#include "djinn/v1/types.pb.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using ::testing::HasSubstr;

TEST(GrpcStatusTest, ErrorInfoSurvivesBothWays) {
  const absl::Status sent =
      MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_SESSIONS",
                "limit is 4", {{"limit", "4"}});
  const grpc::Status wire = ToGrpcStatus(sent);
  EXPECT_EQ(wire.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(FromGrpcStatus(wire), sent);
  EXPECT_EQ(ErrorReason(FromGrpcStatus(wire)), "TOO_MANY_SESSIONS");
  EXPECT_EQ(ErrorMetadataValue(FromGrpcStatus(wire), "limit"), "4");
}

TEST(RawMessageTest, ThereAndBackAndWhatIsNone) {
  v1::SessionLimits limits;
  limits.set_inline_bytes(3);
  grpc::ByteBuffer buffer = ToRawMessage(limits);
  v1::SessionLimits again;
  EXPECT_TRUE(ParseRawMessage(&buffer, &again).ok());
  EXPECT_EQ(again.inline_bytes(), 3);
  const grpc::Slice noise(std::string(11, '\xff'));
  buffer = grpc::ByteBuffer(&noise, 1);
  const absl::Status status = ParseRawMessage(&buffer, &again);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorReason(status), "PROTOCOL_VIOLATION");
  EXPECT_THAT(std::string(status.message()), HasSubstr("11 bytes"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("SessionLimits"));
  // No bytes at all are an empty message.
  buffer = grpc::ByteBuffer(&noise, 0);
  EXPECT_TRUE(ParseRawMessage(&buffer, &again).ok());
}

TEST(RawMessageTest, MessageThatTakesTooMuchMemoryIsNotParsed) {
  v1::ControlRequest request;
  // An empty node takes two bytes on the wire.
  std::string nodes;
  for (int i = 0; i < 2 << 20; ++i) nodes += std::string("\x1a\0", 2);
  ASSERT_TRUE(request.mutable_ordered()
                  ->mutable_define_graph()
                  ->mutable_graph()
                  ->ParseFromString(nodes.substr(0, 200)));
  ASSERT_EQ(request.ordered().define_graph().graph().nodes_size(), 100);
  const auto wrap = [](char field, const std::string& body) {
    std::string out(1, field);
    for (size_t rest = body.size();; rest >>= 7) {
      out.push_back(static_cast<char>((rest & 127) | (rest > 127 ? 128 : 0)));
      if (rest <= 127) break;
    }
    return out + body;
  };
  const grpc::Slice slice(wrap('\x12', wrap('\x1a', wrap('\x12', nodes))));
  grpc::ByteBuffer buffer(&slice, 1);
  const absl::Status status = ParseRawMessage(&buffer, &request);
  EXPECT_EQ(ErrorReason(status), "PROTOCOL_VIOLATION");
  EXPECT_THAT(std::string(status.message()), HasSubstr("too much memory"));
}

TEST(RawMessageTest, UnknownFieldsOfALongMessageAreNotKept) {
  v1::ControlRequest request;
  request.GetReflection()->MutableUnknownFields(&request)->AddLengthDelimited(
      1000, std::string(kMinScannedBytes, 'x'));
  grpc::ByteBuffer buffer = ToRawMessage(request);
  v1::ControlRequest parsed;
  ASSERT_TRUE(ParseRawMessage(&buffer, &parsed).ok());
  EXPECT_EQ(parsed.ByteSizeLong(), 0u);
}

TEST(RawMessageTest, SeveralTogether) {
  v1::ControlRequest first, empty, long_one;
  first.set_acknowledged_reply(7);
  first.mutable_ordered()->set_sequence(1);
  long_one.mutable_ordered()->mutable_install()->set_inline_value(
      std::string(300, 'x'));
  const google::protobuf::MessageLite* const together[] = {&first, &empty,
                                                           &long_one};
  const grpc::Slice slice =
      EncodeTogether(together, v1::ControlRequest::kFollowingFieldNumber);
  v1::ControlRequest expected = first;
  *expected.add_following() = empty;
  *expected.add_following() = long_one;
  v1::ControlRequest parsed;
  ASSERT_TRUE(
      parsed.ParseFromArray(slice.begin(), static_cast<int>(slice.size())));
  EXPECT_EQ(parsed.SerializeAsString(), expected.SerializeAsString());
  const grpc::Slice alone =
      EncodeTogether({together, 1}, v1::ControlRequest::kFollowingFieldNumber);
  EXPECT_EQ(std::string(alone.begin(), alone.end()), first.SerializeAsString());
}

TEST(GrpcStatusTest, PlainAndOkStatuses) {
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  EXPECT_TRUE(FromGrpcStatus(grpc::Status::OK).ok());
  const absl::Status plain = absl::NotFoundError("no such graph");
  EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(plain)), plain);
}

TEST(GrpcStatusTest, LongTextsAndPayloadsAreCut) {
  const grpc::Status wire = ToGrpcStatus(MakeError(
      absl::StatusCode::kInternal, "OPERATOR_FAILED", std::string(1 << 20, 'x'),
      {{"big", std::string(1 << 20, 'y')}}));
  EXPECT_LT(wire.error_message().size() + wire.error_details().size(),
            static_cast<size_t>(kMaxMetadataBytes) / 2);
}

TEST(GrpcStatusTest, GarbageDetailsAreDropped) {
  const absl::Status status = FromGrpcStatus(
      grpc::Status(grpc::StatusCode::ABORTED, "text", "\xff\xff garbage"));
  EXPECT_EQ(status, absl::AbortedError("text"));
}

TEST(ServerAddressTest, LocalAddressesNeedNoFlag) {
  for (const char* address :
       {"127.0.0.1:0", "127.3.2.1:80", "localhost:7000", "[::1]:7000",
        "unix:/run/djinn/c.sock", "unix:relative.sock"}) {
    EXPECT_EQ(CheckAddress(address, false), absl::OkStatus()) << address;
  }
}

TEST(ServerAddressTest, OtherHostsNeedInsecure) {
  for (const char* address :
       {"0.0.0.0:7000", "10.0.0.1:7000", "[::]:7000", "gpu.example.com:7000",
        "127.0.0.1.example.com:7000"}) {
    const absl::Status status = CheckAddress(address, false);
    EXPECT_EQ(ErrorReason(status), "INSECURE_ADDRESS") << address;
    EXPECT_THAT(std::string(status.message()), HasSubstr(address));
    EXPECT_TRUE(CheckAddress(address, true).ok()) << address;
  }
}

TEST(ServerAddressTest, MalformedAddresses) {
  for (const char* address :
       {"", "localhost", ":7000", "localhost:http", "localhost:70000",
        "::1:7000", "[::1:7000", "unix:", "dns:///localhost:1"}) {
    EXPECT_EQ(ErrorReason(CheckAddress(address, true)), "MALFORMED_ADDRESS")
        << address;
  }
  EXPECT_EQ(ErrorReason(CheckAddress("unix:/" + std::string(200, 'p'), false)),
            "MALFORMED_ADDRESS");
}

TEST(ProtocolVersionTest, AMismatchNamesBothVersions) {
  EXPECT_TRUE(CheckProtocolVersion(kProtocolVersion, "client").ok());
  const absl::Status status = CheckProtocolVersion(7, "client");
  EXPECT_EQ(ErrorReason(status), "PROTOCOL_VERSION");
  EXPECT_EQ(status.message(),
            "this side speaks protocol version 1, the client version 7");
  // A peer that states no version is refused.
  EXPECT_FALSE(CheckProtocolVersion(0, "client").ok());
}

TEST(ProtoDurationTest, ThereAndBack) {
  for (const absl::Duration value :
       {absl::ZeroDuration(), absl::Milliseconds(1500), absl::Minutes(10),
        -absl::Milliseconds(1500)}) {
    EXPECT_EQ(FromProtoDuration(ToProtoDuration(value)), value);
  }
}

TEST(ServerTest, PicksAFreePortAndRefusesItTwice) {
  ServerOptions options;
  options.address = "127.0.0.1:0";
  auto server = Server::Start(options);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_NE((*server)->address(), options.address);
  options.address = (*server)->address();
  EXPECT_EQ(ErrorReason(Server::Start(options).status()), "CANNOT_LISTEN");
}

TEST(ServerTest, RefusesOpenAddressUnlessToldOtherwise) {
  ServerOptions options;
  options.address = "0.0.0.0:0";
  EXPECT_EQ(ErrorReason(Server::Start(options).status()), "INSECURE_ADDRESS");
  EXPECT_EQ(ErrorReason(MakeChannel("10.0.0.1:80").status()),
            "INSECURE_ADDRESS");
}

// Calls with encoded messages, because the stubs of these services are not
// packaged.
absl::StatusOr<std::string> CallByHand(
    const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
    const std::string& message, const std::string& token = "") {
  grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer> stub(channel);
  const grpc::Slice slice(message);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  grpc::ClientContext context;
  if (!token.empty()) PutBearer(token, &context);
  grpc::CompletionQueue queue;
  auto call = stub.PrepareUnaryCall(&context, method, request, &queue);
  call->StartCall();
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag;
  bool ok;
  queue.Next(&tag, &ok);
  if (!status.ok()) return FromGrpcStatus(status);
  grpc::Slice answer;
  response.DumpToSingleSlice(&answer).ok();
  return std::string(reinterpret_cast<const char*>(answer.begin()),
                     answer.size());
}

absl::StatusOr<std::string> CallByHand(const std::string& address,
                                       const std::string& method,
                                       const std::string& message,
                                       const std::string& token = "") {
  return CallByHand(MakeChannel(address).value(), method, message, token);
}

absl::StatusOr<std::string> CheckHealth(const std::string& address,
                                        const std::string& service) {
  return CallByHand(address, "/grpc.health.v1.Health/Check",
                    "\x0a" + std::string(1, service.size()) + service);
}

TEST(ServerTest, ServesAListenerThatItWasGivenOnceItIsTold) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener, 8), 0);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  ServerOptions options;
  options.address = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  options.listener = listener;
  auto server = Server::Start(options);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ((*server)->address(), options.address);
  // A connection that waits is served, too.
  std::thread early(
      [&] { EXPECT_TRUE(CheckHealth(options.address, "").ok()); });
  (*server)->Accept();
  early.join();
  EXPECT_TRUE(CheckHealth(options.address, "").ok());
  server->reset();
  close(listener);
}

TEST(ServerTest, ServesReflection) {
  ServerOptions options;
  options.address = "127.0.0.1:0";
  auto server = Server::Start(options);
  ASSERT_TRUE(server.ok()) << server.status();
  // An encoded list_services with an empty value.
  const auto services = CallByHand(
      (*server)->address(),
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
      std::string("\x3a\0", 2));
  ASSERT_TRUE(services.ok()) << services.status();
  EXPECT_THAT(*services, HasSubstr("grpc.health.v1.Health"));
}

TEST(ServerTest, ServesHealth) {
  ServerOptions options;
  options.address = "localhost:0";
  options.health_services = {"djinn.v1.Session"};
  auto server = Server::Start(options);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string& address = (*server)->address();
  const std::string serving = "\x08\x01";
  EXPECT_EQ(CheckHealth(address, "djinn.v1.Session").value(), serving);
  EXPECT_EQ(CheckHealth(address, "").value(), serving);
  EXPECT_EQ(CheckHealth(address, "no.such.Service").status().code(),
            absl::StatusCode::kNotFound);
}

TEST(ServerTest, HealthFollowsSetServing) {
  ServerOptions options;
  options.address = "127.0.0.1:0";
  options.health_services = {"djinn.v1.Session"};
  options.serving = false;
  const auto server = Server::Start(options).value();
  const std::string serving = "\x08\x01", not_serving = "\x08\x02";
  const auto health = [&](const std::string& service) {
    return CheckHealth(server->address(), service).value();
  };
  EXPECT_EQ(health(""), not_serving);
  EXPECT_EQ(health("djinn.v1.Session"), not_serving);
  // A Watch call hears of each change.
  BoundedCall watch(grpc::CreateChannel(server->address(),
                                        grpc::InsecureChannelCredentials()),
                    "/grpc.health.v1.Health/Watch");
  const grpc::Slice request(
      "\x0a\x10"
      "djinn.v1.Session");
  ASSERT_TRUE(watch.Write({&request, 1}));
  const auto heard = [&watch] {
    std::vector<grpc::Slice> message;
    if (!watch.Read(&message)) return std::string("closed");
    std::string bytes;
    for (const grpc::Slice& slice : message) {
      bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
    return bytes;
  };
  EXPECT_EQ(heard(), not_serving);
  server->SetServing(true);
  EXPECT_EQ(heard(), serving);
  EXPECT_EQ(health(""), serving);
  EXPECT_EQ(health("djinn.v1.Session"), serving);
  server->SetServing(false);
  EXPECT_EQ(heard(), not_serving);
  watch.Cancel();
}

TEST(ServerTest, AnswersBesideMoreSilentConnectionsThanItKeeps) {
  // Both ends of each connection are in this process.
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  ServerOptions options;
  options.address = "127.0.0.1:0";
  auto server = Server::Start(options);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string& address = (*server)->address();
  std::vector<Socket> silent;
  for (int i = 0; i < 1100; ++i) {
    silent.push_back(ConnectTo(address));
    ASSERT_GE(silent.back().fd(), 0) << i;
  }
  EXPECT_EQ(CheckHealth(address, "").value(), "\x08\x01");
  // The oldest was closed for a later one. It never reached gRPC, which greets
  // each connection.
  EXPECT_EQ(ReadAll(silent.front()), "");
}

TEST(ServerTest, AnswersBesideMoreConnectionsWithoutATokenThanItKeeps) {
  UnprovenConnections unproven(64);
  ServerOptions options;
  options.address = "127.0.0.1:0";
  options.unproven = &unproven;
  // A proof that every server takes.
  options.is_operator = [](absl::string_view token) {
    return token == "admin";
  };
  auto server = Server::Start(options);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string& address = (*server)->address();
  // A health watch needs no token, and never ends by itself.
  BoundedCall watch(
      grpc::CreateChannel(address, grpc::InsecureChannelCredentials()),
      "/grpc.health.v1.Health/Watch");
  const grpc::Slice everything("\x0a\x00", 2);
  ASSERT_TRUE(watch.Write({&everything, 1}));
  std::vector<grpc::Slice> health;
  ASSERT_TRUE(watch.Read(&health));
  EXPECT_EQ(unproven.size(), 1u);
  // A call with a token, whose connection stays.
  const std::shared_ptr<grpc::Channel> channel = MakeChannel(address).value();
  const std::string method = "/grpc.channelz.v1.Channelz/GetServers";
  ASSERT_TRUE(CallByHand(channel, method, "", "admin").ok());
  EXPECT_EQ(unproven.size(), 1u);
  const std::vector<Socket> others = ConnectIdleClients(address, 100);
  // The health watch was the oldest, and was closed for a later one.
  while (watch.Read(&health)) {
  }
  AwaitHangUp(others.front());
  // A new connection without a token is served, too.
  EXPECT_EQ(
      CallByHand(MakeChannel(address, {.connection = 1}).value(),
                 "/grpc.health.v1.Health/Check", std::string("\x0a\x00", 2))
          .value(),
      "\x08\x01");
  EXPECT_TRUE(CallByHand(channel, method, "", "admin").ok());
  EXPECT_EQ(channel->GetState(/*try_to_connect=*/false), GRPC_CHANNEL_READY);
  EXPECT_LE(unproven.size(), 64u);
}

TEST(ServerTest, ServesChannelzToTheAdminTokenAlone) {
  ServerOptions options;
  options.address = "127.0.0.1:0";
  options.is_operator = [](absl::string_view token) {
    return token == "admin";
  };
  auto server = Server::Start(options);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string& address = (*server)->address();
  const std::string method = "/grpc.channelz.v1.Channelz/GetServers";
  const auto servers = CallByHand(address, method, "", "admin");
  ASSERT_TRUE(servers.ok()) << servers.status();
  EXPECT_THAT(*servers, HasSubstr("Server created"));
  for (const std::string token : {"", "admi", "other"}) {
    const absl::Status refused =
        CallByHand(address, method, "", token).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnauthenticated);
    EXPECT_EQ(ErrorReason(refused), "TOKEN_UNKNOWN");
  }
  // The guard does not affect other services.
  EXPECT_TRUE(CheckHealth(address, "").ok());

  // Channelz now exists for every server of this process.
  options.is_operator = nullptr;
  auto closed = Server::Start(options);
  ASSERT_TRUE(closed.ok()) << closed.status();
  for (const std::string token : {"", "admin"}) {
    EXPECT_EQ(ErrorReason(
                  CallByHand((*closed)->address(), method, "", token).status()),
              "TOKEN_UNKNOWN");
  }
}

}  // namespace
}  // namespace djinn
