#include "common/transport/in_process.h"

#include <deque>
#include <optional>
#include <string>
#include <thread>
#include <variant>

#include "absl/status/status.h"
#include "common/mutex.h"

namespace djinn {
namespace {

struct Chunk {
  uint64_t transfer_id;
  uint64_t offset;
  SharedBytes payload;
};

// One direction: a bounded queue and its end.
template <typename Message>
class Pipe {
 public:
  explicit Pipe(size_t limit) : limit_(limit) {}

  absl::Status Push(std::variant<Message, Chunk> item) {
    MutexLock lock(&mu_);
    while (!end_.has_value() && items_.size() >= limit_) room_.Wait(&mu_);
    if (end_.has_value()) {
      return end_->ok() ? absl::CancelledError("stream is closed") : *end_;
    }
    items_.push_back(std::move(item));
    available_.Signal();
    return absl::OkStatus();
  }

  // Ends the direction. A clean end lets queued items through; an error drops
  // them, as a broken connection would.
  void End(absl::Status status) {
    MutexLock lock(&mu_);
    if (end_.has_value()) return;
    if (!status.ok()) items_.clear();
    end_ = std::move(status);
    room_.SignalAll();
    available_.SignalAll();
  }

  // The next item, or the final status once nothing is left.
  std::variant<Message, Chunk, absl::Status> Pop() {
    MutexLock lock(&mu_);
    while (items_.empty() && !end_.has_value()) available_.Wait(&mu_);
    if (items_.empty()) return *end_;
    std::variant<Message, Chunk> item = std::move(items_.front());
    items_.pop_front();
    room_.Signal();
    if (auto* chunk = std::get_if<Chunk>(&item)) return std::move(*chunk);
    return std::move(std::get<Message>(item));
  }

 private:
  const size_t limit_;
  Mutex mu_;
  CondVar room_;
  CondVar available_;
  std::deque<std::variant<Message, Chunk>> items_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mu_);
};

template <typename Out, typename In>
class InProcessStream : public Stream<Out, In> {
 public:
  InProcessStream(std::shared_ptr<Pipe<Out>> out, std::shared_ptr<Pipe<In>> in)
      : out_(std::move(out)), in_(std::move(in)) {}

  ~InProcessStream() override {
    Close(absl::OkStatus());
    if (delivery_.joinable()) delivery_.join();
  }

  void Start(StreamReceiver<In>* receiver) override {
    delivery_ = std::thread([this, receiver] { Deliver(receiver); });
  }

  absl::Status Send(Out message) override {
    return out_->Push(std::move(message));
  }

  absl::Status SendBulk(uint64_t transfer_id, uint64_t offset,
                        SharedBytes payload) override {
    return out_->Push(Chunk{transfer_id, offset, std::move(payload)});
  }

  void Close(absl::Status status) override {
    out_->End(status);
    in_->End(std::move(status));
  }

 private:
  void Deliver(StreamReceiver<In>* receiver) {
    for (;;) {
      std::variant<In, Chunk, absl::Status> item = in_->Pop();
      if (auto* chunk = std::get_if<Chunk>(&item)) {
        const absl::string_view piece = chunk->payload.bytes;
        receiver->OnBulk(chunk->transfer_id, chunk->offset,
                         absl::MakeConstSpan(&piece, 1));
      } else if (auto* message = std::get_if<In>(&item)) {
        receiver->OnMessage(std::move(*message));
      } else {
        // The other direction ends too: a stream never half-closes for long.
        absl::Status status = std::get<absl::Status>(item);
        out_->End(status);
        receiver->OnClosed(std::move(status));
        return;
      }
    }
  }

  const std::shared_ptr<Pipe<Out>> out_;
  const std::shared_ptr<Pipe<In>> in_;
  std::thread delivery_;
};

}  // namespace

InProcessPair MakeInProcessPair(size_t queue_limit) {
  auto up = std::make_shared<Pipe<v1::ControlRequest>>(queue_limit);
  auto down = std::make_shared<Pipe<v1::ControlResponse>>(queue_limit);
  return {
      std::make_unique<
          InProcessStream<v1::ControlRequest, v1::ControlResponse>>(up, down),
      std::make_unique<
          InProcessStream<v1::ControlResponse, v1::ControlRequest>>(down, up)};
}

}  // namespace djinn
