#include "tests/bench/floors.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "tests/bench/statistics.h"

namespace djinn::bench {
namespace {

// The finaliser of splitmix64.
uint64_t Mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

uint64_t Word(uint64_t seed, size_t offset) {
  return Mix(Mix(seed + 0x9e3779b97f4a7c15) + offset);
}

// The first words of a message: a mark, which the answer repeats, and the size
// of the answer.
struct Header {
  uint32_t mark;
  uint32_t reply_bytes;
};
constexpr char kMethod[] = "/djinn.bench.Echo/Exchange";

grpc::ByteBuffer Message(Header header, size_t size) {
  std::string bytes(size, '\0');
  std::memcpy(bytes.data(), &header, sizeof(header));
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

// Returns the message's header. The mark is 0 for a message that is too short.
Header HeaderOf(const grpc::ByteBuffer& message) {
  Header header = {};
  grpc::Slice slice;
  if (message.Length() >= sizeof(header) &&
      message.DumpToSingleSlice(&slice).ok()) {
    std::memcpy(&header, slice.begin(), sizeof(header));
  }
  return header;
}

class EchoReactor final : public grpc::ServerGenericBidiReactor {
 public:
  EchoReactor() { StartRead(&in_); }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    const Header header = HeaderOf(in_);
    out_ = Message(header, header.reply_bytes);
    StartWrite(&out_);
  }
  void OnWriteDone(bool ok) override {
    if (ok) StartRead(&in_);
  }
  void OnDone() override { delete this; }

  grpc::ByteBuffer in_, out_;
};

class EchoService final : public grpc::CallbackGenericService {
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext*) override {
    return new EchoReactor;
  }
};

// Passes the client's callbacks to the one thread that waits for them.
class StreamReactor final
    : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // Writes and waits for an answer. Returns false if the stream broke.
  bool Exchange(grpc::ByteBuffer out, grpc::ByteBuffer* in) {
    out_ = std::move(out);
    pending_ = 2;
    StartRead(in);
    StartWrite(&out_);
    for (int left = 2; left > 0; left = pending_) pending_.wait(left);
    return !broken_;
  }
  void AwaitDone() { done_.wait(false); }

 private:
  void OnReadDone(bool ok) override { OnOperation(ok); }
  void OnWriteDone(bool ok) override { OnOperation(ok); }
  void OnOperation(bool ok) {
    if (!ok) broken_ = true;
    --pending_;
    pending_.notify_one();
  }
  void OnDone(const grpc::Status&) override {
    done_ = true;
    done_.notify_one();
  }

  grpc::ByteBuffer out_;
  std::atomic<int> pending_{0};
  std::atomic<bool> broken_{false}, done_{false};
};

// The near end sends this before the bytes themselves.
struct Transfer {
  uint64_t size = 0;
  uint64_t seed = 0;
};
constexpr char kDone = 'd', kEqual = 'e', kOther = 'o';

bool SendAll(int socket, const void* bytes, size_t size) {
  const char* next = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t sent = send(socket, next, size, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    next += sent;
    size -= static_cast<size_t>(sent);
  }
  return true;
}

bool ReceiveAll(int socket, void* bytes, size_t size) {
  return recv(socket, bytes, size, MSG_WAITALL) == static_cast<ssize_t>(size) ||
         size == 0;
}

// Receives as ReceiveAll() does, but for sizes beyond what one call returns.
bool ReceiveMuch(int socket, char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t got = recv(socket, bytes, size, 0);
    if (got <= 0) return false;
    bytes += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

// Returns memory without pages yet; null when there is none.
char* MapFresh(size_t size) {
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<char*>(memory);
}

absl::Status Broken() { return absl::UnavailableError("the raw socket broke"); }

}  // namespace

void Fill(uint64_t seed, void* bytes, size_t size) {
  char* out = static_cast<char*>(bytes);
  for (size_t offset = 0; offset < size; offset += sizeof(uint64_t)) {
    const uint64_t word = Word(seed, offset);
    std::memcpy(out + offset, &word, sizeof(word));
  }
}

bool IsFilled(uint64_t seed, const void* bytes, size_t size) {
  const char* in = static_cast<const char*>(bytes);
  for (size_t offset = 0; offset < size; offset += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, in + offset, sizeof(word));
    if (word != Word(seed, offset)) return false;
  }
  return true;
}

class GrpcPingPong::Impl {
 public:
  explicit Impl(const std::string& address) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
    builder.RegisterCallbackGenericService(&service_);
    builder.SetMaxReceiveMessageSize(-1);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return;
    grpc::ChannelArguments arguments;
    // The environment's web proxy is not meant for peers on this host.
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetMaxReceiveMessageSize(-1);
    stub_ = std::make_unique<grpc::GenericStub>(grpc::CreateCustomChannel(
        absl::StrReplaceAll(address, {{":0", absl::StrCat(":", port)}}),
        grpc::InsecureChannelCredentials(), arguments));
    context_.set_wait_for_ready(true);
    stub_->PrepareBidiStreamingCall(&context_, kMethod, {}, &stream_);
    // The hold keeps the stream alive until the last operation, because writes
    // overlap with reads.
    stream_.AddHold();
    stream_.StartCall();
  }

  ~Impl() {
    if (server_ == nullptr) return;
    context_.TryCancel();
    stream_.RemoveHold();
    stream_.AwaitDone();
    server_->Shutdown();
  }

  bool started() const { return server_ != nullptr; }

  absl::Status Exchange(size_t request_bytes, size_t reply_bytes, int count,
                        std::vector<double>* seconds) {
    for (int i = 0; i < count; ++i) {
      // Each answer differs from the previous one, so that a stale answer is
      // detected.
      const Header header = {++marks_, static_cast<uint32_t>(reply_bytes)};
      grpc::ByteBuffer request = Message(header, request_bytes), reply;
      const double start = WallNow();
      if (!stream_.Exchange(std::move(request), &reply)) {
        return absl::UnavailableError("the bare gRPC stream broke");
      }
      seconds->push_back(WallNow() - start);
      if (reply.Length() != reply_bytes ||
          HeaderOf(reply).mark != header.mark) {
        return absl::DataLossError("the bare gRPC server answered wrongly");
      }
    }
    return absl::OkStatus();
  }

 private:
  EchoService service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::GenericStub> stub_;
  grpc::ClientContext context_;
  StreamReactor stream_;
  uint32_t marks_ = 0;
};

absl::StatusOr<std::unique_ptr<GrpcPingPong>> GrpcPingPong::Start(
    const std::string& address) {
  auto impl = std::make_unique<Impl>(address);
  if (!impl->started()) {
    return absl::UnavailableError("cannot listen on " + address);
  }
  std::unique_ptr<GrpcPingPong> stream(new GrpcPingPong(std::move(impl)));
  std::vector<double> ignored;
  DJINN_RETURN_IF_ERROR(stream->Exchange(8, 8, 1, &ignored));
  return stream;
}

GrpcPingPong::GrpcPingPong(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}

GrpcPingPong::~GrpcPingPong() = default;

absl::Status GrpcPingPong::Exchange(size_t request_bytes, size_t reply_bytes,
                                    int count, std::vector<double>* seconds) {
  if (request_bytes < sizeof(Header) || reply_bytes < sizeof(Header)) {
    return absl::InvalidArgumentError("a message has at least 8 bytes");
  }
  return impl_->Exchange(request_bytes, reply_bytes, count, seconds);
}

absl::StatusOr<std::unique_ptr<RawSocket>> RawSocket::Start() {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const absl::Cleanup close_listener = [listener] { close(listener); };
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof(address);
  if (bind(listener, any, length) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, any, &length) != 0) {
    return absl::ErrnoToStatus(errno, "cannot listen on loopback");
  }
  const int near = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(near, any, length) != 0) {
    close(near);
    return absl::ErrnoToStatus(errno, "connect");
  }
  const int far = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  const int on = 1;
  for (const int socket : {near, far}) {
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  return std::unique_ptr<RawSocket>(new RawSocket(near, far));
}

RawSocket::RawSocket(int near, int far)
    : near_(near), far_(far), server_([this] { Serve(); }) {}

RawSocket::~RawSocket() {
  shutdown(near_, SHUT_RDWR);
  server_.join();
  close(near_);
  close(far_);
}

void RawSocket::Serve() {
  Transfer transfer;
  while (ReceiveAll(far_, &transfer, sizeof(transfer))) {
    char* const memory = MapFresh(transfer.size);
    if (memory == nullptr || !SendAll(far_, &kDone, 1) ||
        !ReceiveMuch(far_, memory, transfer.size) ||
        !SendAll(far_, &kDone, 1)) {
      break;
    }
    const bool equal = IsFilled(transfer.seed, memory, transfer.size);
    munmap(memory, transfer.size);
    if (!SendAll(far_, equal ? &kEqual : &kOther, 1)) break;
  }
  shutdown(far_, SHUT_RDWR);
}

absl::StatusOr<double> RawSocket::Move(uint64_t seed, size_t size) {
  char* const memory = MapFresh(size);
  if (memory == nullptr) return Broken();
  const absl::Cleanup unmap = [&] { munmap(memory, size); };
  Fill(seed, memory, size);
  const Transfer transfer = {size, seed};
  char answer;
  // The first answer says that the far end has its memory.
  if (!SendAll(near_, &transfer, sizeof(transfer)) ||
      !ReceiveAll(near_, &answer, 1)) {
    return Broken();
  }
  const double start = WallNow();
  if (!SendAll(near_, memory, size) || !ReceiveAll(near_, &answer, 1)) {
    return Broken();
  }
  const double seconds = WallNow() - start;
  if (!ReceiveAll(near_, &answer, 1)) return Broken();
  if (answer != kEqual) {
    return absl::DataLossError("the raw socket carried other bytes");
  }
  return seconds;
}

}  // namespace djinn::bench
