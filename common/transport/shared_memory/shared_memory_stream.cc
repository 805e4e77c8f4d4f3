#include "common/transport/shared_memory/shared_memory_stream.h"

#include <string>
#include <utility>

#include "common/base/error.h"
#include "common/transport/arrival.h"
#include "common/transport/message_scan.h"
#include "djinn/v1/execution.pb.h"

namespace djinn {
namespace {

// Uses a buffer of the thread, which is kept for its capacity.
template <typename Message>
absl::string_view Serialize(const Message& message) {
  thread_local std::string bytes;
  message.SerializeToString(&bytes);
  return bytes;
}

// Delivers what an end receives to a stream's receiver.
template <typename In>
class Handler : public SharedMemoryEnd::Handler {
 public:
  explicit Handler(StreamReceiver<In>* receiver) : receiver_(receiver) {}

  absl::Status OnBytes(absl::string_view bytes) override {
    Arrival::Note();
    In message;
    MessageScan scan;
    if (bytes.size() >= kMinScannedBytes) {
      google::protobuf::io::CodedInputStream input(
          reinterpret_cast<const uint8_t*>(bytes.data()),
          static_cast<int>(bytes.size()));
      scan = ScanMessage(*In::descriptor(), kMaxParsedBytes, &input);
    }
    if (scan.parsed_bytes > kMaxParsedBytes) {
      return MakeError(absl::StatusCode::kInvalidArgument, "PROTOCOL_VIOLATION",
                       "a message that would take too much memory");
    }
    if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      return MakeError(absl::StatusCode::kInvalidArgument, "PROTOCOL_VIOLATION",
                       "bytes that are no message");
    }
    if (scan.has_unknown_fields) message.DiscardUnknownFields();
    receiver_->OnMessage(std::move(message));
    return absl::OkStatus();
  }
  void OnBulk(uint64_t transfer_id, uint64_t offset,
              absl::Span<const absl::string_view> pieces) override {
    receiver_->OnBulk(transfer_id, offset, pieces);
  }
  void OnClosed(absl::Status status) override {
    receiver_->OnClosed(std::move(status));
  }

 private:
  StreamReceiver<In>* const receiver_;
};

class WorkerHandler : public Handler<v1::ControlRequest> {
 public:
  explicit WorkerHandler(WorkerStreamReceiver* receiver)
      : Handler(receiver), receiver_(receiver) {}
  void OnRoom() override { receiver_->OnRoom(); }
  void OnBulkRoom() override { receiver_->OnBulkRoom(); }

 private:
  WorkerStreamReceiver* const receiver_;
};

class SharedMemoryClient : public ClientStream {
 public:
  SharedMemoryClient(SharedMemoryEnd::OpenFunction open, Descriptor wake,
                     SharedMemoryEnd::Options options)
      : open_(std::move(open)),
        end_(SharedSide::kClient, options, std::move(wake)) {}

  absl::string_view transport() const override { return "shared memory"; }
  bool is_near() const override { return true; }
  void Start(ClientStreamReceiver* receiver) override {
    handler_ = std::make_unique<Handler<v1::ControlResponse>>(receiver);
    end_.Start(std::move(open_), handler_.get());
  }
  absl::Status Send(
      std::shared_ptr<const v1::ControlRequest> message) override {
    return end_.SendAndWait(Serialize(*message));
  }
  absl::Status SendBulk(uint64_t transfer_id, uint64_t offset,
                        SharedBytes payload) override {
    return end_.SendBulkAndWait(transfer_id, offset, std::move(payload));
  }
  void Close(absl::Status status) override { end_.Close(std::move(status)); }
  bool Lead(absl::FunctionRef<bool()> done, absl::Duration patience) override {
    return end_.Lead(done, patience);
  }
  void Reclaim() override { end_.Reclaim(); }
  void Wake() override { end_.Wake(); }

 private:
  SharedMemoryEnd::OpenFunction open_;
  std::unique_ptr<SharedMemoryEnd::Handler> handler_;
  SharedMemoryEnd end_;
};

class SharedMemoryWorker : public WorkerStream {
 public:
  SharedMemoryWorker(SharedConnection connection,
                     SharedMemoryEnd::Options options)
      : end_(SharedSide::kWorker, options, std::move(connection)) {}

  void Start(WorkerStreamReceiver* receiver) override {
    handler_ = std::make_unique<WorkerHandler>(receiver);
    end_.Start(nullptr, handler_.get());
  }
  bool Send(std::shared_ptr<const v1::ControlResponse> message) override {
    return end_.Send(Serialize(*message));
  }
  bool SendBulk(uint64_t transfer_id, uint64_t offset,
                SharedBytes payload) override {
    return end_.SendBulk(transfer_id, offset, std::move(payload));
  }
  void Close(absl::Status status) override { end_.Close(std::move(status)); }
  bool Lead(absl::FunctionRef<bool()> done, absl::Duration patience) override {
    return end_.Lead(done, patience);
  }
  void Reclaim() override { end_.Reclaim(); }
  void Wake() override { end_.Wake(); }

 private:
  std::unique_ptr<SharedMemoryEnd::Handler> handler_;
  SharedMemoryEnd end_;
};

}  // namespace

std::unique_ptr<ClientStream> MakeSharedMemoryClientStream(
    SharedMemoryEnd::OpenFunction open, Descriptor wake,
    SharedMemoryEnd::Options options) {
  return std::make_unique<SharedMemoryClient>(std::move(open), std::move(wake),
                                              options);
}

std::unique_ptr<WorkerStream> MakeSharedMemoryWorkerStream(
    SharedConnection connection, SharedMemoryEnd::Options options) {
  return std::make_unique<SharedMemoryWorker>(std::move(connection), options);
}

}  // namespace djinn
