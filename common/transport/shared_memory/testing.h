// Connects two ends in one process, and records what they receive.
#ifndef COMMON_TRANSPORT_SHARED_MEMORY_TESTING_H_
#define COMMON_TRANSPORT_SHARED_MEMORY_TESTING_H_

#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/patience.h"
#include "common/transport/shared_memory/shared_memory_stream.h"
#include "djinn/v1/execution.pb.h"
#include "gtest/gtest.h"

namespace djinn::shared_memory {

inline constexpr RingSizes kSmall = {.control = 4096, .bulk = 8192};
inline constexpr uint64_t kIncarnation = 7;

struct Sockets {
  Descriptor worker;
  Descriptor client;
};

inline Sockets MakeSockets() {
  int fds[2];
  EXPECT_EQ(
      socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds),
      0);
  return {Descriptor(fds[0]), Descriptor(fds[1])};
}

inline SharedMemoryEnd::OpenFunction AcceptFrom(Descriptor socket) {
  auto shared = std::make_shared<Descriptor>(std::move(socket));
  return [shared](int wake) {
    return SharedConnection::Accept(std::move(*shared), kIncarnation, wake,
                                    absl::Seconds(30));
  };
}

struct Pair {
  explicit Pair(SharedMemoryEnd::Options options = {},
                const RingSizes& sizes = kSmall) {
    Sockets sockets = MakeSockets();
    worker = MakeSharedMemoryWorkerStream(
        SharedConnection::Offer(std::move(sockets.worker), sizes, kIncarnation)
            .value(),
        options);
    client = MakeSharedMemoryClientStream(AcceptFrom(std::move(sockets.client)),
                                          MakeEvent().value(), options);
  }
  std::unique_ptr<WorkerStream> worker;
  std::unique_ptr<ClientStream> client;
};

// Records received messages. It can block its thread for a test.
template <typename Base, typename In>
class Recorder : public Base {
 public:
  void OnMessage(In message) override {
    MutexLock lock(&mu_);
    while (held_) changed_.Wait(&mu_);
    messages_.push_back(std::move(message));
    changed_.SignalAll();
  }
  void OnBulk(uint64_t transfer_id, uint64_t offset,
              absl::Span<const absl::string_view> pieces) override {
    MutexLock lock(&mu_);
    std::string chunk = absl::StrCat(transfer_id, "@", offset, ":");
    for (const absl::string_view piece : pieces) {
      chunk.append(piece.data(), piece.size());
    }
    chunks_.push_back(std::move(chunk));
    changed_.SignalAll();
  }
  void OnClosed(absl::Status status) override {
    MutexLock lock(&mu_);
    closed_ = std::move(status);
    changed_.SignalAll();
  }

  void Hold(bool held) {
    MutexLock lock(&mu_);
    held_ = held;
    changed_.SignalAll();
  }
  size_t count() {
    MutexLock lock(&mu_);
    return messages_.size();
  }
  std::vector<In> WaitMessages(size_t count) {
    MutexLock lock(&mu_);
    for (Patience patience; messages_.size() < count;)
      patience.Wait(&changed_, &mu_);
    return messages_;
  }
  std::vector<std::string> WaitChunks(size_t count) {
    MutexLock lock(&mu_);
    for (Patience patience; chunks_.size() < count;)
      patience.Wait(&changed_, &mu_);
    return chunks_;
  }
  absl::Status WaitClosed() {
    MutexLock lock(&mu_);
    for (Patience patience; !closed_.has_value();)
      patience.Wait(&changed_, &mu_);
    return *closed_;
  }

 protected:
  Mutex mu_;
  CondVar changed_;

 private:
  bool held_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<In> messages_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> chunks_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::Status> closed_ ABSL_GUARDED_BY(mu_);
};

using Client = Recorder<ClientStreamReceiver, v1::ControlResponse>;

class Worker : public Recorder<WorkerStreamReceiver, v1::ControlRequest> {
 public:
  void OnRoom() override {
    MutexLock lock(&mu_);
    ++room_;
    changed_.SignalAll();
  }
  void OnBulkRoom() override { OnRoom(); }
  void WaitRoom(int count) {
    MutexLock lock(&mu_);
    for (Patience patience; room_ < count;) patience.Wait(&changed_, &mu_);
  }

 private:
  int room_ ABSL_GUARDED_BY(mu_) = 0;
};

inline std::shared_ptr<v1::ControlRequest> Request(uint64_t sequence,
                                                   size_t bytes = 0) {
  auto request = std::make_shared<v1::ControlRequest>();
  v1::Ordered* const ordered = request->mutable_ordered();
  ordered->set_sequence(sequence);
  if (bytes > 0) {
    ordered->mutable_install()->set_inline_value(std::string(bytes, 'v'));
  }
  return request;
}

inline std::shared_ptr<v1::ControlResponse> Response(uint64_t reply) {
  auto response = std::make_shared<v1::ControlResponse>();
  response->set_completed_sequence(reply);
  return response;
}

inline SharedBytes Bytes(std::string text) {
  auto owner = std::make_shared<const std::string>(std::move(text));
  return {*owner, owner};
}

}  // namespace djinn::shared_memory

#endif  // COMMON_TRANSPORT_SHARED_MEMORY_TESTING_H_
