// A service that links libdjinn_client.so and, as shared libraries, Debian's
// gRPC, protobuf and Abseil. It has the same protos as Djinn, so that two
// copies of one descriptor meet if anything is shared. It answers calls of its
// own before, while and after it computes on a cluster, and exits with 0 if
// both worked.
#include <ATen/ATen.h>
#include <google/protobuf/util/json_util.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "djinn/djinn.h"
#include "djinn/v1/types.pb.h"
#include "google/protobuf/descriptor.h"

namespace {

void Require(bool condition, const std::string& what) {
  if (condition) return;
  std::cerr << "failed: " << what << "\n";
  std::exit(1);
}

// Calls a method that the server lacks. The answer comes from the server.
void CallOwnServer(const std::string& address) {
  auto channel =
      grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::seconds(60));
  context.set_wait_for_ready(true);
  grpc::CompletionQueue queue;
  grpc::GenericStub stub(channel);
  auto call = stub.PrepareUnaryCall(&context, "/host.Service/Absent",
                                    grpc::ByteBuffer(), &queue);
  call->StartCall();
  grpc::ByteBuffer reply;
  grpc::Status status;
  call->Finish(&reply, &status, nullptr);
  void* tag;
  bool ok;
  Require(queue.Next(&tag, &ok), "the host's own queue");
  Require(status.error_code() == grpc::StatusCode::UNIMPLEMENTED,
          "the host's own call: " + status.error_message());
}

void UseOwnProtobuf() {
  const auto* const type =
      google::protobuf::DescriptorPool::generated_pool()->FindMessageTypeByName(
          "djinn.v1.ErrorDetail");
  Require(type == djinn::v1::ErrorDetail::descriptor(),
          "the host's own descriptor");
  djinn::v1::ErrorDetail message;
  message.set_message("text");
  std::string json;
  Require(google::protobuf::util::MessageToJsonString(message, &json).ok() &&
              json.find("text") != std::string::npos,
          "the host's own JSON: " + json);
}

void ComputeRemotely() {
  auto cluster =
      djinn::EmbeddedCluster::Start({.workers = 1, .worker_threads = 1});
  Require(cluster.ok(), std::string(cluster.status().message()));
  absl::Status status = djinn::Connect((*cluster)->connect_options());
  Require(status.ok(), std::string(status.message()));
  const auto a = at::arange(12, at::kFloat).reshape({3, 4});
  const auto product = at::mm(a.to(djinn::Device()), a.t().to(djinn::Device()));
  Require(at::equal(product.cpu(), at::mm(a, a.t())), "the product");
  // An error crosses from the library's Abseil to the host's, and is freed
  // there.
  const absl::Status again = djinn::Connect((*cluster)->connect_options());
  Require(again.code() == absl::StatusCode::kAlreadyExists &&
              djinn::Error::FromStatus(again).reason() == "SESSION_OPEN",
          "the error: " + std::string(again.message()));
  status = djinn::Close();
  Require(status.ok(), std::string(status.message()));
}

}  // namespace

int main() {
  // The library to preload is loaded by now; the cluster must not load it.
  unsetenv("LD_PRELOAD");
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  grpc::EnableDefaultHealthCheckService(true);
  // Answers every call with UNIMPLEMENTED. gRPC refuses to start a server that
  // has neither a service nor a queue that somebody polls.
  grpc::CallbackGenericService no_method;
  builder.RegisterCallbackGenericService(&no_method);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  Require(server != nullptr, "the host's own server");
  const std::string address = "127.0.0.1:" + std::to_string(port);
  for (int i = 0; i < 2; ++i) {
    UseOwnProtobuf();
    CallOwnServer(address);
    ComputeRemotely();
  }
  UseOwnProtobuf();
  CallOwnServer(address);
  server->Shutdown();
  std::cout << "both worked\n";
  return 0;
}
