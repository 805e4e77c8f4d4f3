#include "tests/schedules/network.h"

#include <chrono>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "djinn/v1/execution.pb.h"

namespace djinn::schedules {
namespace {

absl::Status Broken() { return absl::UnavailableError("the network broke"); }

}  // namespace

void TakeTime(int turns) {
  for (int i = 0; i < turns; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(1));
  }
}

// A connection, which may outlive the client's end of it.
class Connection : public ClientStreamReceiver {
 public:
  Connection(std::unique_ptr<ClientStream> inner, const Fault& fault,
             uint64_t told_memory_bytes)
      : fault_(fault),
        told_memory_bytes_(told_memory_bytes),
        stream_(inner.get()),
        inner_(std::move(inner)) {}

  ~Connection() override { Shut(); }

  void Start(ClientStreamReceiver* receiver) {
    {
      MutexLock lock(&delivery_mu_);
      receiver_ = receiver;
    }
    if (stream_ != nullptr) {
      stream_->Start(this);
    } else {
      Break();
    }
    // If it broke earlier, there was no receiver to notify.
    if (broken()) Tell(Broken());
  }

  // Sends a message or chunk of the client.
  template <typename SendIt>
  absl::Status Send(SendIt send) {
    const bool now = Reached(/*up=*/true);
    if (now && !fault_.after) Break();
    absl::Status sent;
    if (!broken()) sent = send(stream_);
    if (now && fault_.after) Break();
    // A client that has not noticed the break sees no error.
    return broken() && fault_.client_notices_after == 0 ? Broken() : sent;
  }

  // Closes the stream unless the connection is broken; for a broken connection,
  // Break() notifies the client.
  void Close(absl::Status status) {
    if (!broken() && stream_ != nullptr) stream_->Close(std::move(status));
  }

  void Break() {
    MutexLock lock(&mu_);
    if (broken_ || left_) return;
    broken_ = true;
    // Notifies in a separate thread, because the caller may be one of the
    // client's threads.
    notice_ = std::thread([this] {
      TakeTime(fault_.client_notices_after);
      Tell(Broken());
    });
    if (stream_ != nullptr && !fault_.worker_notices_late) {
      stream_->Close(Broken());
    }
  }

  // Disconnects the client's end, which receives only the end of the connection
  // from now on. Returns whether the worker has not noticed the break yet.
  bool Leave() {
    bool half_open;
    {
      MutexLock lock(&mu_);
      half_open = broken_ && stream_ != nullptr && fault_.worker_notices_late;
    }
    if (half_open) {
      AwaitNotice();
    } else {
      Shut();
    }
    return half_open;
  }

 private:
  void OnMessage(v1::ControlResponse message) override {
    if (told_memory_bytes_ > 0 && message.has_hello()) {
      message.mutable_hello()->mutable_limits()->set_memory_bytes(
          told_memory_bytes_);
    }
    Deliver([&](ClientStreamReceiver* receiver) {
      receiver->OnMessage(std::move(message));
    });
  }

  void OnBulk(uint64_t transfer_id, uint64_t offset,
              absl::Span<const absl::string_view> pieces) override {
    Deliver([&](ClientStreamReceiver* receiver) {
      receiver->OnBulk(transfer_id, offset, pieces);
    });
  }

  void OnClosed(absl::Status status) override {
    // Break() notifies the client of a broken connection.
    if (!broken()) Tell(std::move(status));
  }

  template <typename DeliverIt>
  void Deliver(DeliverIt deliver) {
    TakeTime(fault_.late_turns);
    const bool now = Reached(/*up=*/false);
    if (now && !fault_.after) Break();
    {
      MutexLock lock(&delivery_mu_);
      if (receiver_ != nullptr && !broken()) deliver(receiver_);
    }
    if (now && fault_.after) Break();
  }

  // Counts a message in this direction. Returns whether the fault occurs at
  // this message.
  bool Reached(bool up) {
    MutexLock lock(&mu_);
    return fault_.breaks && up == fault_.up && seen_++ == fault_.message;
  }

  bool broken() {
    MutexLock lock(&mu_);
    return broken_;
  }

  // Makes the last callback.
  void Tell(absl::Status status) {
    MutexLock lock(&delivery_mu_);
    if (ClientStreamReceiver* const receiver =
            std::exchange(receiver_, nullptr)) {
      receiver->OnClosed(std::move(status));
    }
  }

  void Shut() {
    bool broken;
    {
      MutexLock lock(&mu_);
      left_ = true;
      broken = broken_;
    }
    if (inner_ != nullptr) {
      stream_->Close(broken ? Broken() : absl::CancelledError("destroyed"));
    }
    inner_.reset();
    AwaitNotice();
  }

  void AwaitNotice() {
    if (notice_.joinable()) notice_.join();
  }

  const Fault fault_;
  const uint64_t told_memory_bytes_;
  ClientStream* const stream_;
  // Held during callbacks to the client, which happen one at a time.
  Mutex delivery_mu_;
  ClientStreamReceiver* receiver_ ABSL_GUARDED_BY(delivery_mu_) = nullptr;
  Mutex mu_;
  int seen_ ABSL_GUARDED_BY(mu_) = 0;
  bool broken_ ABSL_GUARDED_BY(mu_) = false;
  bool left_ ABSL_GUARDED_BY(mu_) = false;
  std::thread notice_;
  std::unique_ptr<ClientStream> inner_;
};

class FaultyStream : public ClientStream {
 public:
  FaultyStream(std::shared_ptr<Connection> connection, Network* network)
      : connection_(std::move(connection)), network_(network) {}

  ~FaultyStream() override {
    if (connection_->Leave()) network_->KeepHalfOpen(std::move(connection_));
  }

  absl::string_view transport() const override { return "in-process"; }
  void Start(ClientStreamReceiver* receiver) override {
    connection_->Start(receiver);
  }
  absl::Status Send(
      std::shared_ptr<const v1::ControlRequest> message) override {
    return connection_->Send(
        [&](ClientStream* inner) { return inner->Send(std::move(message)); });
  }
  absl::Status SendBulk(uint64_t transfer_id, uint64_t offset,
                        SharedBytes payload) override {
    return connection_->Send([&](ClientStream* inner) {
      return inner->SendBulk(transfer_id, offset, std::move(payload));
    });
  }
  void Close(absl::Status status) override {
    connection_->Close(std::move(status));
  }

 private:
  std::shared_ptr<Connection> connection_;
  Network* const network_;
};

Network::Network(std::vector<Fault> faults, uint64_t told_memory_bytes)
    : faults_(std::move(faults)), told_memory_bytes_(told_memory_bytes) {}

Network::~Network() = default;

std::unique_ptr<ClientStream> Network::Connect(
    int device, std::unique_ptr<ClientStream> inner) {
  Fault fault;
  std::shared_ptr<Connection> connection;
  {
    MutexLock lock(&mu_);
    const int stream = streams_[device]++;
    for (const Fault& candidate : faults_) {
      if (candidate.device == device && candidate.stream == stream) {
        fault = candidate;
      }
    }
    if (fault.refused || unplugged_[device]) inner.reset();
    connection = std::make_shared<Connection>(std::move(inner), fault,
                                              told_memory_bytes_);
    live_.emplace_back(device, connection);
  }
  return std::make_unique<FaultyStream>(std::move(connection), this);
}

void Network::Break(int device) {
  std::vector<std::shared_ptr<Connection>> breaking;
  {
    MutexLock lock(&mu_);
    for (const auto& [owner, weak] : live_) {
      if (device >= 0 && owner != device) continue;
      if (auto connection = weak.lock()) {
        breaking.push_back(std::move(connection));
      }
    }
  }
  for (const auto& connection : breaking) connection->Break();
}

void Network::Unplug(int device) {
  {
    MutexLock lock(&mu_);
    unplugged_[device] = true;
  }
  Break(device);
}

void Network::KeepHalfOpen(std::shared_ptr<Connection> connection) {
  MutexLock lock(&mu_);
  half_open_.push_back(std::move(connection));
}

void Network::NoticeAll() {
  std::vector<std::shared_ptr<Connection>> noticed;
  MutexLock lock(&mu_);
  noticed.swap(half_open_);
}

}  // namespace djinn::schedules
