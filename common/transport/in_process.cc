#include "common/transport/in_process.h"

#include <deque>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "djinn/v1/execution.pb.h"

namespace djinn {
namespace {

struct Chunk {
  uint64_t transfer_id;
  uint64_t offset;
  SharedBytes payload;
};

// Tells a delivery thread that the other direction has room again.
struct Room {};

// One direction: a bounded queue and its end.
template <typename Message>
class Pipe {
 public:
  using Pointer = std::shared_ptr<const Message>;
  using Item = std::variant<Pointer, Chunk>;

  explicit Pipe(size_t limit) : limit_(limit) {}

  // Waits for room.
  absl::Status Push(Item item) {
    MutexLock lock(&mu_);
    while (!end_.has_value() && items_.size() >= limit_) room_.Wait(&mu_);
    if (end_.has_value()) {
      return end_->ok() ? absl::CancelledError("stream is closed") : *end_;
    }
    items_.push_back(std::move(item));
    available_.Signal();
    return absl::OkStatus();
  }

  // Always queues the item. Returns false when the queue is full now.
  bool Put(Item item) {
    MutexLock lock(&mu_);
    if (end_.has_value()) return true;
    items_.push_back(std::move(item));
    available_.Signal();
    stalled_ = items_.size() >= limit_;
    return !stalled_;
  }

  // Makes Pop() return a Room.
  void TellRoom() {
    MutexLock lock(&mu_);
    tell_room_ = true;
    available_.Signal();
  }

  // Ends the direction. After a clean end queued items are still delivered; an
  // error drops them, as a broken connection would.
  void End(absl::Status status) {
    MutexLock lock(&mu_);
    if (end_.has_value()) return;
    if (!status.ok()) items_.clear();
    end_ = std::move(status);
    room_.SignalAll();
    available_.SignalAll();
  }

  // Returns the next item, or the final status once nothing is left. Sets
  // `made_room` if a sender that was told that the queue is full may continue.
  std::variant<Pointer, Chunk, Room, absl::Status> Pop(bool* made_room) {
    MutexLock lock(&mu_);
    while (items_.empty() && !end_.has_value() && !tell_room_) {
      available_.Wait(&mu_);
    }
    *made_room = false;
    if (std::exchange(tell_room_, false)) return Room{};
    if (items_.empty()) return *end_;
    Item item = std::move(items_.front());
    items_.pop_front();
    room_.Signal();
    if (stalled_ && items_.size() < limit_) {
      stalled_ = false;
      *made_room = true;
    }
    if (auto* chunk = std::get_if<Chunk>(&item)) return std::move(*chunk);
    return std::move(std::get<Pointer>(item));
  }

 private:
  const size_t limit_;
  Mutex mu_;
  CondVar room_;
  CondVar available_;
  std::deque<Item> items_ ABSL_GUARDED_BY(mu_);
  bool stalled_ ABSL_GUARDED_BY(mu_) = false;
  bool tell_room_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mu_);
};

// The state that both ends share. `Out` is sent; `In` is delivered in a thread.
template <typename Out, typename In>
class End {
 public:
  End(std::shared_ptr<Pipe<Out>> out, std::shared_ptr<Pipe<In>> in)
      : out_(std::move(out)), in_(std::move(in)) {}
  ~End() {
    Close(absl::OkStatus());
    if (delivery_.joinable()) delivery_.join();
  }

  Pipe<Out>* out() const { return out_.get(); }

  // `on_room` runs in the delivery thread.
  template <typename OnRoom>
  void Start(StreamReceiver<In>* receiver, OnRoom on_room) {
    delivery_ = std::thread([this, receiver, on_room] {
      while (Deliver(receiver, on_room)) {
      }
    });
  }

  void Close(absl::Status status) {
    out_->End(status);
    in_->End(std::move(status));
  }

 private:
  template <typename OnRoom>
  bool Deliver(StreamReceiver<In>* receiver, const OnRoom& on_room) {
    bool made_room;
    auto item = in_->Pop(&made_room);
    if (made_room) out_->TellRoom();
    if (auto* chunk = std::get_if<Chunk>(&item)) {
      const absl::string_view piece = chunk->payload.bytes;
      receiver->OnBulk(chunk->transfer_id, chunk->offset,
                       absl::MakeConstSpan(&piece, 1));
    } else if (auto* message = std::get_if<typename Pipe<In>::Pointer>(&item)) {
      receiver->OnMessage(**message);
    } else if (std::holds_alternative<Room>(item)) {
      on_room();
    } else {
      // The other direction ends, too: a stream is never half-closed for long.
      absl::Status status = std::get<absl::Status>(item);
      out_->End(status);
      receiver->OnClosed(std::move(status));
      return false;
    }
    return true;
  }

  const std::shared_ptr<Pipe<Out>> out_;
  const std::shared_ptr<Pipe<In>> in_;
  std::thread delivery_;
};

using Requests = Pipe<v1::ControlRequest>;
using Responses = Pipe<v1::ControlResponse>;

class InProcessClient : public ClientStream {
 public:
  InProcessClient(std::shared_ptr<Requests> up, std::shared_ptr<Responses> down)
      : end_(std::move(up), std::move(down)) {}
  absl::string_view transport() const override { return "in-process"; }
  void Start(ClientStreamReceiver* receiver) override {
    end_.Start(receiver, [] {});
  }
  absl::Status Send(
      std::shared_ptr<const v1::ControlRequest> message) override {
    return end_.out()->Push(std::move(message));
  }
  absl::Status SendBulk(uint64_t transfer_id, uint64_t offset,
                        SharedBytes payload) override {
    return end_.out()->Push(Chunk{transfer_id, offset, std::move(payload)});
  }
  void Close(absl::Status status) override { end_.Close(std::move(status)); }

 private:
  End<v1::ControlRequest, v1::ControlResponse> end_;
};

class InProcessWorker : public WorkerStream {
 public:
  InProcessWorker(std::shared_ptr<Responses> down, std::shared_ptr<Requests> up)
      : end_(std::move(down), std::move(up)) {}
  void Start(WorkerStreamReceiver* receiver) override {
    end_.Start(receiver, [receiver] {
      receiver->OnRoom();
      receiver->OnBulkRoom();
    });
  }
  bool Send(std::shared_ptr<const v1::ControlResponse> message) override {
    return end_.out()->Put(std::move(message));
  }
  bool SendBulk(uint64_t transfer_id, uint64_t offset,
                SharedBytes payload) override {
    return end_.out()->Put(Chunk{transfer_id, offset, std::move(payload)});
  }
  void Close(absl::Status status) override { end_.Close(std::move(status)); }

 private:
  End<v1::ControlResponse, v1::ControlRequest> end_;
};

}  // namespace

InProcessPair MakeInProcessPair(size_t queue_limit) {
  auto up = std::make_shared<Requests>(queue_limit);
  auto down = std::make_shared<Responses>(queue_limit);
  return {std::make_unique<InProcessClient>(up, down),
          std::make_unique<InProcessWorker>(down, up)};
}

}  // namespace djinn
