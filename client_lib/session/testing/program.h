// Provides what tests of sessions have in common.
#ifndef CLIENT_LIB_SESSION_TESTING_PROGRAM_H_
#define CLIENT_LIB_SESSION_TESTING_PROGRAM_H_

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client_lib/session/testing/calls.h"
#include "client_lib/session/testing/fake_cluster.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "gtest/gtest.h"

namespace djinn {

inline absl::Status Record(VirtualDevice& device, uint32_t lane, Call call) {
  return device.Record(lane, &call);
}

inline absl::Status ReadByte(VirtualDevice& device, uint32_t lane,
                             const StoragePtr& storage) {
  std::string value(storage->size_bytes(), '?');
  return device.Read(lane, storage.get(), WholeView(*storage.get()),
                     value.data(), value.size());
}

// Releases the storage as the program's last handle does.
inline void Drop(StoragePtr storage) {
  storage->device()->MarkDead(storage.get());
}

inline std::string Pattern(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<char>(i * 31 + i / 7);
  }
  return bytes;
}

// A session on a fake cluster, and its first virtual device.
class DeviceTest : public testing::Test {
 protected:
  struct FakeTime {};
  explicit DeviceTest(v1::SessionLimits limits = FakeWorker::DefaultLimits())
      : cluster_(std::move(limits)), session_(cluster_.Open()) {}
  explicit DeviceTest(SessionOptions options)
      : session_(cluster_.Open(std::move(options))) {}
  // The session's time is clock_'s.
  DeviceTest(SessionOptions options, FakeTime)
      : session_(cluster_.Open(At(&clock_, std::move(options)))) {}

  // The worker's process ends, and another one takes its place.
  void Lose(int device = 0) {
    cluster_.coordinator().NoteRestart(device);
    cluster_.worker(device).Restart(/*other_incarnation=*/true);
  }

  // Returns a storage with these bytes, uploaded in lane 3.
  StoragePtr Uploaded(const std::string& bytes = "12345678") {
    StoragePtr storage = device_->NewStorage(bytes.size());
    EXPECT_TRUE(device_->Upload(3, storage.get(), {bytes, nullptr}).ok());
    return storage;
  }
  // Returns the result of a call with these operands.
  StoragePtr Called(int op, const std::vector<StoragePtr>& operands,
                    uint32_t lane = 0) {
    StoragePtr result = device_->NewStorage(8);
    std::vector<Use> uses;
    for (const StoragePtr& operand : operands)
      uses.push_back({operand, kReads});
    uses.push_back({result, kCreates});
    EXPECT_TRUE(Record(*device_, lane, MakeCall(op, uses)).ok());
    return result;
  }
  absl::StatusOr<std::string> ReadAll(const StoragePtr& storage) {
    return ReadAll(*device_, storage);
  }
  static absl::StatusOr<std::string> ReadAll(VirtualDevice& device,
                                             const StoragePtr& storage) {
    std::string value(storage->size_bytes(), '?');
    const absl::Status status =
        device.Read(1, storage.get(), WholeView(*storage.get()), value.data(),
                    value.size());
    if (!status.ok()) return status;
    return value;
  }

  FakeClock clock_;
  FakeCluster cluster_;
  std::unique_ptr<Session> session_;
  std::shared_ptr<VirtualDevice> device_ = *session_->Device(0);

 private:
  static SessionOptions At(FakeClock* clock, SessionOptions options) {
    options.clock = clock;
    return options;
  }
};

inline SessionOptions Recovering() {
  SessionOptions options;
  options.recovers = true;
  return options;
}

// Runs `work`, which blocks, while the fake clock advances about a hundred
// times as fast as real time.
template <typename Work>
void WhileTimePasses(FakeClock* clock, Work work) {
  Mutex mu;
  CondVar changed;
  bool done = false;
  std::thread thread([&] {
    work();
    MutexLock lock(&mu);
    done = true;
    changed.Signal();
  });
  {
    MutexLock lock(&mu);
    while (!done) {
      clock->Advance(absl::Milliseconds(100));
      changed.WaitWithTimeout(&mu, absl::Milliseconds(1));
    }
  }
  thread.join();
}

inline SessionOptions OptionsWith(
    FakeClock* clock, absl::Duration operation_timeout = absl::Hours(1)) {
  SessionOptions options;
  options.clock = clock;
  options.operation_timeout = operation_timeout;
  return options;
}

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_TESTING_PROGRAM_H_
