#include "gpu_worker/service/shared_memory_server.h"

#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/patience.h"
#include "common/transport/shared_memory/shared_region.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

class SharedMemoryServerTest : public testing::Test {
 protected:
  SharedMemoryServerTest() {
    char folder[] = "/tmp/shm-server-XXXXXX";
    EXPECT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
    path_ = absl::StrCat(folder_, "/socket");
    SharedMemoryServer::Options options;
    options.path = path_;
    options.ring_sizes = {.control = 4096, .bulk = 4096};
    options.serve = [this](SharedConnection) {
      MutexLock lock(&mu_);
      ++served_;
      changed_.SignalAll();
    };
    options.tick = [this] {
      MutexLock lock(&mu_);
      ++ticks_;
      changed_.SignalAll();
    };
    options.tick_interval = kInterval;
    options.clock = &clock_;
    server_ = SharedMemoryServer::Start(std::move(options)).value();
  }
  ~SharedMemoryServerTest() override {
    server_.reset();
    unlink(path_.c_str());
    rmdir(folder_.c_str());
  }

  // Connects a peer, and waits until it is served.
  void Connect() {
    MutexLock lock(&mu_);
    const int before = served_;
    const Descriptor socket = DialSharedMemory(path_).value();
    for (Patience patience; served_ == before;) patience.Wait(&changed_, &mu_);
  }
  void AwaitTick() {
    MutexLock lock(&mu_);
    for (Patience patience; ticks_ == 0;) patience.Wait(&changed_, &mu_);
  }
  int ticks() {
    MutexLock lock(&mu_);
    return ticks_;
  }

  // No test waits as long in real time.
  static constexpr absl::Duration kInterval = absl::Hours(1);

  FakeClock clock_;
  std::string folder_, path_;
  Mutex mu_;
  CondVar changed_;
  int served_ ABSL_GUARDED_BY(mu_) = 0;
  int ticks_ ABSL_GUARDED_BY(mu_) = 0;
  std::unique_ptr<SharedMemoryServer> server_;
};

TEST_F(SharedMemoryServerTest, TicksHoweverOftenPeersConnect) {
  for (int i = 0; i < 3; ++i) {
    clock_.Advance(kInterval / 4);
    Connect();
  }
  EXPECT_EQ(ticks(), 0);
  // The last connection was a quarter of the interval ago.
  clock_.Advance(kInterval / 4);
  Connect();
  AwaitTick();
}

}  // namespace
}  // namespace djinn::worker
