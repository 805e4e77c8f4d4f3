#include "gpu_worker/registry/grpc_registry.h"

#include <memory>
#include <string>
#include <thread>

#include "common/net/frozen_peer.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

class GrpcRegistryTest : public testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(Sockets, GrpcRegistryTest, testing::Bool(),
                         [](const auto& info) -> std::string {
                           return info.param ? "Tcp" : "Unix";
                         });

TEST_P(GrpcRegistryTest, CancelEndsCallsToAFrozenCoordinator) {
  FrozenPeer coordinator(/*tcp=*/GetParam());
  const auto registry = *MakeGrpcRegistry({coordinator.address(),
                                           [] { return std::string("join"); },
                                           ChannelSecurity()});
  std::unique_ptr<RegistryStream> stream = registry->Open();
  v1::WorkerState state;
  // More bytes than sockets hold.
  state.set_worker_id(std::string(16 << 20, 'w'));
  EXPECT_TRUE(stream->Write(state));
  std::thread writer([&] { EXPECT_FALSE(stream->Write(state)); });
  v1::DesiredState desired;
  std::thread reader([&] { EXPECT_FALSE(stream->Read(&desired)); });
  coordinator.WaitForBytes(64 << 10);
  stream->Cancel();
  writer.join();
  reader.join();
  EXPECT_EQ(stream->Finish().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace djinn::worker
