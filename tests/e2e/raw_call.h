// Makes a gRPC call whose messages are arbitrary bytes.
#ifndef TESTS_E2E_RAW_CALL_H_
#define TESTS_E2E_RAW_CALL_H_

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/net/bearer.h"
#include "common/net/channel_options.h"
#include "common/net/grpc_status.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"
#include "tests/e2e/wire_client.h"

namespace djinn {

// Sends the messages and then nothing further. Returns the status with which
// the server ends the call, or DeadlineExceeded if the server does not end it.
inline absl::Status CallRaw(const std::string& address,
                            const std::string& method,
                            const std::vector<std::string>& messages,
                            const std::string& token = "") {
  grpc::GenericStub stub(MakeChannel(address).value());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kWirePatience);
  if (!token.empty()) PutBearer(token, &context);
  grpc::CompletionQueue queue;
  void* tag;
  bool ok;
  const auto call = stub.PrepareCall(&context, method, &queue);
  call->StartCall(nullptr);
  queue.Next(&tag, &ok);
  for (const std::string& message : messages) {
    if (!ok) break;
    const grpc::Slice slice(message);
    call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    queue.Next(&tag, &ok);
  }
  grpc::ByteBuffer answer;
  do {
    call->Read(&answer, nullptr);
    queue.Next(&tag, &ok);
  } while (ok);
  grpc::Status status;
  call->Finish(&status, nullptr);
  queue.Next(&tag, &ok);
  return FromGrpcStatus(status);
}

}  // namespace djinn

#endif  // TESTS_E2E_RAW_CALL_H_
