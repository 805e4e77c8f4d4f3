#include "tests/bench/ping_pong_peer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "grpcpp/grpcpp.h"
#include "tests/bench/ping_pong.grpc.pb.h"
#include "tests/bench/stopwatch.h"

namespace djinn::bench {

class PingPongStream::Impl {
 public:
  explicit Impl(const std::string& address) {
    grpc::ChannelArguments arguments;
    // The environment's web proxy is not meant for peers on this host.
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetMaxReceiveMessageSize(-1);
    stub_ = PingPong::NewStub(grpc::CreateCustomChannel(
        address, grpc::InsecureChannelCredentials(), arguments));
    context_.set_wait_for_ready(true);
    stream_ = stub_->Exchange(&context_);
  }

  ~Impl() {
    stream_->WritesDone();
    while (stream_->Read(&pong_)) {
    }
    stream_->Finish();
  }

  absl::Status Exchange(size_t request_bytes, size_t reply_bytes, int count,
                        std::vector<double>* seconds) {
    ping_.set_reply_bytes(static_cast<uint32_t>(reply_bytes));
    ping_.mutable_payload()->assign(request_bytes, '\0');
    for (int i = 0; i < count; ++i) {
      // Not always the same answer, so that a stale one is seen.
      const char mark = static_cast<char>(++marks_);
      ping_.mutable_payload()->front() = mark;
      const double start = WallNow();
      if (!stream_->Write(ping_) || !stream_->Read(&pong_)) {
        return absl::UnavailableError("the bare gRPC stream broke");
      }
      seconds->push_back(WallNow() - start);
      if (pong_.payload().size() != reply_bytes ||
          pong_.payload().front() != mark) {
        return absl::DataLossError("the bare gRPC server answered wrongly");
      }
    }
    return absl::OkStatus();
  }

 private:
  std::unique_ptr<PingPong::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<Ping, Pong>> stream_;
  Ping ping_;
  Pong pong_;
  unsigned marks_ = 0;
};

absl::StatusOr<std::unique_ptr<PingPongStream>> PingPongStream::Open(
    const std::string& address) {
  auto stream = std::unique_ptr<PingPongStream>(
      new PingPongStream(std::make_unique<Impl>(address)));
  std::vector<double> ignored;
  DJINN_RETURN_IF_ERROR(stream->Exchange(1, 1, 1, &ignored));
  return stream;
}

PingPongStream::PingPongStream(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}

PingPongStream::~PingPongStream() = default;

absl::Status PingPongStream::Exchange(size_t request_bytes, size_t reply_bytes,
                                      int count, std::vector<double>* seconds) {
  if (request_bytes == 0 || reply_bytes == 0) {
    return absl::InvalidArgumentError("a ping has at least one byte");
  }
  return impl_->Exchange(request_bytes, reply_bytes, count, seconds);
}

absl::StatusOr<std::unique_ptr<PingPongPeer>> PingPongPeer::Start() {
  DJINN_ASSIGN_OR_RETURN(
      auto server, ChildProcess::Start(SiblingProgram("ping_pong_server"), {}));
  std::unique_ptr<PingPongPeer> peer(new PingPongPeer(std::move(server)));
  for (int i = 0; i < 4; ++i) {
    DJINN_ASSIGN_OR_RETURN(const std::string line, peer->server_->ReadLine());
    const size_t space = line.find(' ');
    if (space == std::string::npos) {
      return absl::InternalError(absl::StrCat("unexpected: ", line));
    }
    DJINN_ASSIGN_OR_RETURN(auto stream,
                           PingPongStream::Open(line.substr(space + 1)));
    peer->streams_.emplace(line.substr(0, space), std::move(stream));
  }
  return peer;
}

}  // namespace djinn::bench
