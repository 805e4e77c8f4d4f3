#include "common/net/bounded_call.h"

#include <thread>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/net/raw_message.h"
#include "grpc/byte_buffer.h"
#include "grpc/byte_buffer_reader.h"
#include "grpc/grpc.h"
#include "grpc/slice.h"
#include "grpc/support/log.h"
#include "grpc/support/time.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"

namespace djinn {
namespace {

// Interval at which a thread that waits for a write checks for cancellation.
constexpr int kLookMilliseconds = 50;

constexpr absl::string_view kStatusDetails = "grpc-status-details-bin";

gpr_timespec Never() { return gpr_inf_future(GPR_CLOCK_MONOTONIC); }
gpr_timespec Now() { return gpr_now(GPR_CLOCK_MONOTONIC); }
gpr_timespec NextLook() {
  return gpr_time_add(Now(),
                      gpr_time_from_millis(kLookMilliseconds, GPR_TIMESPAN));
}

int64_t Nanoseconds() {
  return absl::ToInt64Nanoseconds(Clock::Real()->Monotonic());
}

absl::string_view View(const grpc_slice& slice) {
  return {reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)),
          GRPC_SLICE_LENGTH(slice)};
}

grpc_byte_buffer* MakeBuffer(absl::Span<const grpc::Slice> message) {
  absl::InlinedVector<grpc_slice, 2> slices;
  for (const grpc::Slice& slice : message) slices.push_back(slice.c_slice());
  grpc_byte_buffer* const buffer =
      grpc_raw_byte_buffer_create(slices.data(), slices.size());
  for (const grpc_slice& slice : slices) grpc_slice_unref(slice);
  return buffer;
}

// Converts and destroys the buffer.
void ToSlices(grpc_byte_buffer* buffer, std::vector<grpc::Slice>* slices) {
  grpc_byte_buffer_reader reader;
  if (grpc_byte_buffer_reader_init(&reader, buffer) != 0) {
    grpc_slice slice;
    while (grpc_byte_buffer_reader_next(&reader, &slice) != 0) {
      slices->emplace_back(slice, grpc::Slice::STEAL_REF);
    }
    grpc_byte_buffer_reader_destroy(&reader);
  }
  grpc_byte_buffer_destroy(buffer);
}

class Metadata {
 public:
  Metadata() { grpc_metadata_array_init(&array_); }
  ~Metadata() { grpc_metadata_array_destroy(&array_); }
  Metadata(const Metadata&) = delete;
  Metadata& operator=(const Metadata&) = delete;

  grpc_metadata_array* get() { return &array_; }
  std::string Find(absl::string_view key) const {
    for (size_t i = 0; i < array_.count; ++i) {
      if (View(array_.metadata[i].key) == key) {
        return std::string(View(array_.metadata[i].value));
      }
    }
    return "";
  }

 private:
  grpc_metadata_array array_;
};

}  // namespace

// The objects that gRPC uses until the last operation has ended. They are
// released in this order: the call, the queue, the channel.
struct BoundedCall::State {
  enum class Outcome { kPending, kDone, kFailed };

  ~State() {
    for (const grpc_metadata& header : headers_to_send) {
      grpc_slice_unref(header.key);
      grpc_slice_unref(header.value);
    }
  }

  // Waits for the operation until the deadline.
  Outcome Await(const void* tag, gpr_timespec deadline) {
    const grpc_event event = grpc_completion_queue_pluck(
        queue.cq(), const_cast<void*>(tag), deadline, nullptr);
    if (event.type != GRPC_OP_COMPLETE) return Outcome::kPending;
    return event.success != 0 ? Outcome::kDone : Outcome::kFailed;
  }
  // Waits for the write that is under way.
  Outcome AwaitWrite(gpr_timespec deadline) {
    const Outcome outcome = Await(&sending, deadline);
    if (outcome == Outcome::kPending) return outcome;
    if (sending != nullptr) {
      grpc_byte_buffer_destroy(std::exchange(sending, nullptr));
    }
    writing = false;
    return outcome;
  }
  grpc_call* call() { return context.c_call(); }
  void Start(absl::Span<const grpc_op> operations, const void* tag) {
    // Fails only when the operations contradict each other.
    GPR_ASSERT(grpc_call_start_batch(call(), operations.data(),
                                     operations.size(), const_cast<void*>(tag),
                                     nullptr) == GRPC_CALL_OK);
  }

  std::shared_ptr<grpc::Channel> channel;
  grpc::CompletionQueue queue{grpc_completion_queue_create_for_pluck(nullptr)};
  grpc::ClientContext context;

  std::vector<grpc_metadata> headers_to_send;

  // Whether a write is under way. Its tag is the address of `sending`.
  bool writing = false;
  grpc_byte_buffer* sending = nullptr;

  Metadata headers;
  bool headers_asked = false;
  // True while a read is in progress. Its tag is the address of `received`.
  bool reading = false;
  grpc_byte_buffer* received = nullptr;
};

BoundedCall::BoundedCall(std::shared_ptr<grpc::Channel> channel,
                         const std::string& method, const Headers& headers)
    : state_(std::make_unique<State>()) {
  state_->channel = std::move(channel);
  for (const auto& [key, value] : headers) {
    grpc_metadata& header = state_->headers_to_send.emplace_back();
    header.key = grpc_slice_from_copied_buffer(key.data(), key.size());
    header.value = grpc_slice_from_copied_buffer(value.data(), value.size());
  }
  grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer> stub(
      state_->channel);
  // Only the call is used, which lives in the context; gRPC's stream object is
  // not.
  (void)stub.PrepareCall(&state_->context, method, &state_->queue);
}

BoundedCall::~BoundedCall() {
  Cancel();
  MutexLock lock(&write_mu_);
  if (Settle(/*wait=*/false)) return;
  std::thread([state = std::move(state_)] {
    (void)state->AwaitWrite(Never());
  }).detach();
}

bool BoundedCall::Write(absl::Span<const grpc::Slice> message) {
  MutexLock lock(&write_mu_);
  if (!Settle(/*wait=*/true) || writes_over_ || cancelled_) return false;
  BeginWrite(message);
  return true;
}

bool BoundedCall::WriteMessage(const google::protobuf::Message& message) {
  const grpc::Slice slice(message.ByteSizeLong());
  message.SerializeWithCachedSizesToArray(const_cast<uint8_t*>(slice.begin()));
  return Write({&slice, 1});
}

bool BoundedCall::EndWrites() {
  // A writer may be waiting with the lock.
  if (!write_mu_.TryLock()) return false;
  const bool free = Settle(/*wait=*/false);
  if (free && !writes_over_) {
    writes_over_ = true;
    BeginWrite({});
  }
  write_mu_.Unlock();
  return free;
}

bool BoundedCall::Settle(bool wait) {
  while (state_->writing) {
    const State::Outcome outcome =
        state_->AwaitWrite(wait ? NextLook() : Now());
    if (outcome == State::Outcome::kFailed) writes_over_ = true;
    if (outcome != State::Outcome::kPending) {
      writing_since_ = 0;
    } else if (!wait || cancelled_) {
      return false;
    }
  }
  return true;
}

void BoundedCall::BeginWrite(absl::Span<const grpc::Slice> message) {
  absl::InlinedVector<grpc_op, 2> operations;
  if (!begun_) {
    begun_ = true;
    grpc_op& headers = operations.emplace_back();
    headers.op = GRPC_OP_SEND_INITIAL_METADATA;
    headers.data.send_initial_metadata.metadata =
        state_->headers_to_send.data();
    headers.data.send_initial_metadata.count = state_->headers_to_send.size();
  }
  grpc_op& operation = operations.emplace_back();
  if (message.empty()) {
    operation.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
  } else {
    state_->sending = MakeBuffer(message);
    operation.op = GRPC_OP_SEND_MESSAGE;
    operation.data.send_message.send_message = state_->sending;
  }
  state_->writing = true;
  writing_since_ = Nanoseconds();
  state_->Start(operations, &state_->sending);
}

BoundedCall::Received BoundedCall::ReadUntil(
    gpr_timespec deadline, std::vector<grpc::Slice>* message) {
  message->clear();
  if (!state_->reading) {
    absl::InlinedVector<grpc_op, 2> operations;
    if (!state_->headers_asked) {
      state_->headers_asked = true;
      grpc_op& operation = operations.emplace_back();
      operation.op = GRPC_OP_RECV_INITIAL_METADATA;
      operation.data.recv_initial_metadata.recv_initial_metadata =
          state_->headers.get();
    }
    grpc_op& operation = operations.emplace_back();
    operation.op = GRPC_OP_RECV_MESSAGE;
    operation.data.recv_message.recv_message = &state_->received;
    state_->reading = true;
    state_->Start(operations, &state_->received);
  }
  if (state_->Await(&state_->received, deadline) == State::Outcome::kPending) {
    return Received::kNothing;
  }
  state_->reading = false;
  if (state_->received == nullptr) return Received::kEnd;
  ToSlices(std::exchange(state_->received, nullptr), message);
  return Received::kMessage;
}

bool BoundedCall::Read(std::vector<grpc::Slice>* message) {
  return ReadUntil(Never(), message) == Received::kMessage;
}

BoundedCall::Received BoundedCall::TryReadMessage(
    absl::Duration patience, google::protobuf::Message* message,
    absl::Status* invalid) {
  const gpr_timespec deadline =
      patience == absl::InfiniteDuration()
          ? Never()
          : gpr_time_add(Now(),
                         gpr_time_from_nanos(absl::ToInt64Nanoseconds(patience),
                                             GPR_TIMESPAN));
  std::vector<grpc::Slice> slices;
  const Received received = ReadUntil(deadline, &slices);
  if (received != Received::kMessage) return received;
  grpc::ByteBuffer buffer(slices.data(), slices.size());
  *invalid = ParseRawMessage(&buffer, message);
  return invalid->ok() ? Received::kMessage : Received::kEnd;
}

bool BoundedCall::ReadMessage(google::protobuf::Message* message,
                              absl::Status* invalid) {
  return TryReadMessage(absl::InfiniteDuration(), message, invalid) ==
         Received::kMessage;
}

std::string BoundedCall::PeerHeader(absl::string_view key) const {
  return state_->headers.Find(key);
}

grpc::Status BoundedCall::Finish() {
  Metadata trailers;
  grpc_status_code code = GRPC_STATUS_UNKNOWN;
  grpc_slice text = grpc_empty_slice();
  grpc_op operation = {};
  operation.op = GRPC_OP_RECV_STATUS_ON_CLIENT;
  operation.data.recv_status_on_client.trailing_metadata = trailers.get();
  operation.data.recv_status_on_client.status = &code;
  operation.data.recv_status_on_client.status_details = &text;
  state_->Start({&operation, 1}, &code);
  (void)state_->Await(&code, Never());
  const grpc::Status status(static_cast<grpc::StatusCode>(code),
                            std::string(View(text)),
                            trailers.Find(kStatusDetails));
  grpc_slice_unref(text);
  return status;
}

void BoundedCall::Cancel() {
  cancelled_ = true;
  // Safe beside any other operation, and without effect after the end.
  grpc_call_cancel(state_->call(), nullptr);
}

absl::Duration BoundedCall::WritingFor() {
  if (write_mu_.TryLock()) {
    (void)Settle(/*wait=*/false);
    write_mu_.Unlock();
  }
  const int64_t since = writing_since_;
  return since == 0 ? absl::ZeroDuration()
                    : absl::Nanoseconds(Nanoseconds() - since);
}

}  // namespace djinn
