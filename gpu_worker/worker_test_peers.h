// A coordinator that grants one lease, and a client's stream of generated
// stubs, for tests of a whole worker over gRPC.
#ifndef GPU_WORKER_WORKER_TEST_PEERS_H_
#define GPU_WORKER_WORKER_TEST_PEERS_H_

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "common/base/mutex.h"
#include "common/hash/crc32c.h"
#include "common/lease/testing/lease_authority.h"
#include "common/net/bearer.h"
#include "common/net/grpc_status.h"
#include "common/transport/stream.h"
#include "djinn/v1/execution.grpc.pb.h"
#include "djinn/v1/worker_registry.grpc.pb.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"

namespace djinn::worker {

// Grants one lease and remembers what the worker has reported.
class FakeCoordinator : public v1::WorkerRegistry::Service {
 public:
  grpc::Status Synchronize(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::DesiredState, v1::WorkerState>* stream)
      override {
    const absl::StatusOr<std::string> token = ExtractBearer(*context);
    if (!token.ok() || *token != "join") {
      return grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "token");
    }
    v1::WorkerState state;
    uint64_t revision = 0;
    while (stream->Read(&state)) {
      {
        MutexLock lock(&mu);
        Merge(state);
        changed.SignalAll();
      }
      if (revision > 0) continue;
      v1::DesiredState desired;
      desired.set_revision(++revision);
      v1::LeaseClaims claims = LeaseAuthority::Claims("l1", "s1", "t1");
      if (has_run_deadline) {
        claims.mutable_urgency()->mutable_run_deadline()->set_seconds(600);
      }
      const v1::SignedLease signed_lease =
          authority_.Issue(claims, state.worker_id(), state.incarnation());
      authority_.List(signed_lease, &desired);
      {
        MutexLock lock(&mu);
        lease_token = signed_lease.SerializeAsString();
      }
      stream->Write(desired);
    }
    return grpc::Status::OK;
  }

  template <typename Condition>
  v1::WorkerState Wait(Condition condition) {
    MutexLock lock(&mu);
    for (int i = 0; i < 200 && !condition(last); ++i) {
      changed.WaitWithTimeout(&mu, absl::Milliseconds(100));
    }
    EXPECT_TRUE(condition(last)) << last.ShortDebugString();
    return last;
  }

  // Set it before a worker joins.
  bool has_run_deadline = false;
  Mutex mu;
  CondVar changed;
  v1::WorkerState last ABSL_GUARDED_BY(mu);
  // The token of the lease granted last.
  std::string lease_token ABSL_GUARDED_BY(mu);

 private:
  // There is one lease, so the leases of a report replace the earlier ones.
  void Merge(const v1::WorkerState& state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (state.acknowledgement()) {
      last.set_applied_revision(state.applied_revision());
      return;
    }
    const v1::WorkerState before = last;
    last = state;
    if (!state.complete() && state.sessions().empty() &&
        state.released_lease_ids().empty()) {
      *last.mutable_sessions() = before.sessions();
    }
  }

  LeaseAuthority authority_;
};

// The client's end with generated stubs, to which the raw frames must conform.
class StubStream : public ClientStream {
 public:
  StubStream(const std::string& address, v1::BulkHello hello)
      : stub_(v1::Execution::NewStub(
            grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))),
        hello_(std::move(hello)) {}
  ~StubStream() override {
    Close(absl::OkStatus());
    if (control_reader_.joinable()) control_reader_.join();
    // Bulk ended with Control, unless the worker never accepted it.
    bulk_context_.TryCancel();
    if (bulk_reader_.joinable()) bulk_reader_.join();
  }
  absl::string_view transport() const override { return "gRPC"; }
  void Start(ClientStreamReceiver* receiver) override {
    control_ = stub_->Control(&control_context_);
    bulk_ = stub_->Bulk(&bulk_context_);
    v1::BulkChunk first;
    *first.mutable_hello() = hello_;
    bulk_->Write(first);
    bulk_reader_ = std::thread([this, receiver] {
      v1::BulkChunk chunk;
      while (bulk_->Read(&chunk)) {
        EXPECT_EQ(chunk.crc32c(), Crc32c(chunk.payload()));
        const absl::string_view piece = chunk.payload();
        receiver->OnBulk(chunk.transfer_id(), chunk.offset(), {piece});
      }
      bulk_status = FromGrpcStatus(bulk_->Finish());
    });
    control_reader_ = std::thread([this, receiver] {
      v1::ControlResponse response;
      while (control_->Read(&response)) {
        ++messages;
        auto following = std::move(*response.mutable_following());
        response.clear_following();
        receiver->OnMessage(response);
        for (const v1::ControlResponse& next : following) {
          receiver->OnMessage(next);
        }
      }
      receiver->OnClosed(FromGrpcStatus(control_->Finish()));
    });
  }
  absl::Status Send(
      std::shared_ptr<const v1::ControlRequest> message) override {
    return control_->Write(*message) ? absl::OkStatus()
                                     : absl::UnavailableError("broken");
  }
  absl::Status SendBulk(uint64_t transfer_id, uint64_t offset,
                        SharedBytes payload) override {
    v1::BulkChunk chunk;
    chunk.set_transfer_id(transfer_id);
    chunk.set_offset(offset);
    chunk.set_crc32c(Crc32c(payload.bytes) ^ (corrupt ? 1 : 0));
    chunk.set_payload(payload.bytes.data(), payload.bytes.size());
    return bulk_->Write(chunk) ? absl::OkStatus()
                               : absl::UnavailableError("broken");
  }
  void Close(absl::Status status) override {
    if (status.ok()) {
      if (!closed_) control_->WritesDone();
      closed_ = true;
    } else {
      control_context_.TryCancel();
    }
  }

  bool corrupt = false;
  absl::Status bulk_status;
  std::atomic<int> messages{0};  // on Control

 private:
  const std::unique_ptr<v1::Execution::Stub> stub_;
  const v1::BulkHello hello_;
  bool closed_ = false;
  grpc::ClientContext control_context_;
  grpc::ClientContext bulk_context_;
  std::unique_ptr<
      grpc::ClientReaderWriter<v1::ControlRequest, v1::ControlResponse>>
      control_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::BulkChunk, v1::BulkChunk>> bulk_;
  std::thread control_reader_;
  std::thread bulk_reader_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_WORKER_TEST_PEERS_H_
