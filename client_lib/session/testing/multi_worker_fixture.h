// Provides what tests of multi-worker devices have in common.
#ifndef CLIENT_LIB_SESSION_TESTING_MULTI_WORKER_FIXTURE_H_
#define CLIENT_LIB_SESSION_TESTING_MULTI_WORKER_FIXTURE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client_lib/session/model/operator_table.h"
#include "client_lib/session/testing/program.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "gtest/gtest.h"

namespace djinn {

// Size of the tests' storages. Two fit into a worker, and one is too large to
// travel inline.
inline constexpr uint64_t kSize = 100'000;
// Error texts have ids in hexadecimal.
inline constexpr uint64_t kErrorId = 0x63;
inline constexpr char kErrorText[] = "63";

inline v1::SessionLimits SmallLimits(uint64_t size = kSize) {
  v1::SessionLimits limits = FakeWorker::DefaultLimits();
  limits.set_memory_bytes(size * 5 / 2);
  return limits;
}

// Runs a device that may have three workers, in a session that a test may open
// in its own way.
class MultiWorkerDeviceTest : public testing::Test {
 protected:
  explicit MultiWorkerDeviceTest(SessionOptions options = {},
                                 uint64_t size = kSize)
      : cluster_(SmallLimits(size)),
        session_(cluster_.Open(std::move(options))) {
    device_ = *session_->Device(0);
  }
  ~MultiWorkerDeviceTest() override { session_ = nullptr; }

  absl::Status Upload(const StoragePtr& storage) {
    const auto bytes =
        std::make_shared<std::string>(Pattern(storage->size_bytes()));
    return device_->Upload(0, storage.get(), {*bytes, bytes});
  }
  StoragePtr Uploaded(uint64_t size = kSize) {
    StoragePtr storage = device_->NewStorage(size);
    EXPECT_EQ(Upload(storage), absl::OkStatus());
    return storage;
  }
  // Returns three storages, of which the last is on the second worker.
  std::vector<StoragePtr> Span() {
    cluster_.coordinator().LetSpan(2);
    std::vector<StoragePtr> storages;
    for (int i = 0; i < 3; ++i) storages.push_back(Uploaded());
    return storages;
  }
  // Counts the worker's messages of this kind, after everything was executed.
  int Count(int worker, v1::Ordered::ActionCase action) {
    EXPECT_EQ(device_->Synchronize(), absl::OkStatus());
    int count = 0;
    for (const v1::Ordered& message : cluster_.worker(worker).seen().received) {
      count += message.action_case() == action;
    }
    return count;
  }

  static uint32_t Op(const char* name) {
    return OperatorTable::Global().Add({name, "", 1});
  }
  // Uses the value on the worker that has the storage.
  absl::Status UseWith(const StoragePtr& storage, const StoragePtr& value) {
    StoragePtr result = device_->NewStorage(8);
    DJINN_RETURN_IF_ERROR(Record(
        *device_, 0,
        MakeCall(1, {{storage, kReads}, {value, kReads}, {result, kCreates}})));
    const absl::Status status = ReadByte(*device_, 0, result);
    Drop(std::move(result));
    return status;
  }
  // Returns the operators of the worker's runs, by name.
  std::vector<std::string> Ran(int worker) {
    EXPECT_EQ(device_->Synchronize(), absl::OkStatus());
    std::map<uint64_t, v1::Graph> graphs;
    std::vector<std::string> names;
    for (const v1::Ordered& message : cluster_.worker(worker).seen().received) {
      if (message.has_define_graph()) {
        graphs[message.define_graph().graph_id()] =
            message.define_graph().graph();
      }
      if (!message.has_run()) continue;
      const v1::Graph& graph = graphs.at(message.run().graph_id());
      for (const v1::Node& node : graph.nodes()) {
        names.push_back(
            graph.operators(static_cast<int>(node.operator_index())).name());
      }
    }
    return names;
  }

  FakeCluster cluster_;
  std::unique_ptr<Session> session_;
  std::shared_ptr<VirtualDevice> device_;
};

// A base class, so that the clock exists before the session is opened.
struct WithClock {
  FakeClock clock_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_TESTING_MULTI_WORKER_FIXTURE_H_
