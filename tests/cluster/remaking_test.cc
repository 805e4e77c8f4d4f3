// Tests that a worker rematerializes a value, with the same bits, when the
// network to the worker that has the value becomes slow.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client_lib/cluster/embedded_cluster.h"
#include "djinn/djinn.h"
#include "djinn/v1/admin.pb.h"
#include "gtest/gtest.h"
#include "tests/chaos/fault_proxy.h"
#include "tests/e2e/admin_client.h"
#include "tests/e2e/eventually.h"

namespace djinn {
namespace {

constexpr uint64_t kWorkerMemory = uint64_t{112} << 20;
// A product of two 16 MiB operands takes 8,192 operations for each byte of its
// 256 KiB result.
constexpr int64_t kRows = 256, kInner = 16384;
constexpr uint64_t kValueBytes = kRows * kRows * sizeof(float);
// At this speed it takes eight seconds to fetch the value.
constexpr uint64_t kSlow = 32 << 10;

// Computes four products. On any processor they take much longer than a
// transfer over the fast network, and much less than one over the slow network.
at::Tensor Make(const at::Tensor& left, const at::Tensor& right,
                double factor) {
  at::Tensor value = at::mm(left, right);
  for (int i = 0; i < 3; ++i) value = at::addmm(value, left, right, factor);
  return value;
}

class RemakingTest : public testing::Test {
 protected:
  RemakingTest() {
    const char* const base = std::getenv("TMPDIR");
    folder_ = absl::StrCat(base == nullptr ? "/tmp" : base, "/remake-XXXXXX");
    if (mkdtemp(folder_.data()) == nullptr) std::abort();
    ClusterOptions options;
    options.workers = 2;
    options.worker_memory_bytes = kWorkerMemory;
    options.worker_threads = 1;
    options.calibrate = true;
    for (const char* name : {"/0", "/1"}) {
      options.advertise.push_back(absl::StrCat("unix:", folder_, name));
    }
    cluster_ = ClusterProcesses::Start(options).value();
    for (size_t i = 0; i < 2; ++i) {
      networks_.push_back(std::make_unique<FaultProxy>(
          absl::StrCat(folder_, "/", i), cluster_->worker_socket(i)));
    }
    at::set_num_threads(1);
    ConnectOptions connect;
    connect.coordinator = cluster_->coordinator_address();
    connect.token_file = cluster_->token_file();
    EXPECT_EQ(Connect(connect), absl::OkStatus());
  }
  ~RemakingTest() override {
    EXPECT_EQ(Close(), absl::OkStatus());
    networks_.clear();
    rmdir(folder_.c_str());
  }

  std::string folder_;
  std::unique_ptr<ClusterProcesses> cluster_;
  std::vector<std::unique_ptr<FaultProxy>> networks_;
};

TEST_F(RemakingTest, WhenTheLinkIsSlowedValuesAreRematerialized) {
  const c10::InferenceMode no_gradients;
  at::manual_seed(5);
  const at::Tensor left = at::randn({kRows, kInner}),
                   right = at::randn({kInner, kRows}),
                   resident = at::randn({3 * kRows, kInner}),
                   large = at::randn({3 * kRows, kInner});
  const c10::Device device = Device();
  const at::Tensor here = resident.to(device);
  const at::Tensor remote_left = left.to(device),
                   remote_right = right.to(device);
  // The first worker has no room for this tensor, so it is on the second one.
  const at::Tensor there = large.to(device);
  const std::vector<std::string> workers =
      absl::StrSplit(WhereIs(0)->worker_id, '+');
  ASSERT_EQ(workers.size(), 2u);
  size_t first;
  ASSERT_TRUE(
      absl::SimpleAtoi(workers[0].substr(workers[0].size() - 1), &first));
  FaultProxy& network = *networks_[first];
  // The second worker now also has the operands, and has measured the link.
  (void)(there.slice(0, 0, kRows) + remote_left).sum().item<float>();
  (void)(there.slice(0, 0, kRows) + remote_right.t()).sum().item<float>();

  // Computes a value on the worker of `here` and uses the value on the worker
  // of `there`. Returns how many bytes the first worker sent and received
  // meanwhile.
  const auto use_there = [&](double factor) {
    (void)here.sum().item<float>();
    const uint64_t before = network.bytes();
    const at::Tensor value = Make(remote_left, remote_right, factor);
    const at::Tensor result =
        (there.slice(0, 0, kRows).slice(1, 0, kRows) + value).cpu();
    const at::Tensor expected =
        large.slice(0, 0, kRows).slice(1, 0, kRows) + Make(left, right, factor);
    EXPECT_TRUE(at::equal(result, expected)) << factor;
    return network.bytes() - before;
  };

  for (const double factor : {0.5, 0.3}) {
    EXPECT_GE(use_there(factor), kValueBytes);
  }
  EXPECT_EQ(GetStatistics().values_rematerialized, 0u);
  EXPECT_GE(GetStatistics().fetched_not_worth_it, 1u);

  network.Throttle(kSlow);
  // The slow link was not measured yet.
  EXPECT_GE(use_there(0.7), kValueBytes);
  EXPECT_EQ(GetStatistics().values_rematerialized, 0u);
  for (const double factor : {1.1, 1.3, 1.7}) {
    EXPECT_LT(use_there(factor), kValueBytes / 4);
  }
  EXPECT_EQ(GetStatistics().values_rematerialized, 3u);
  EXPECT_EQ(GetStatistics().bytes_not_fetched, 3 * kValueBytes);

  // Operators see the link, too.
  const AdminClient admin(cluster_->coordinator_address(),
                          cluster_->admin_token_file());
  EXPECT_TRUE(Eventually([&] {
    const v1::WorkerInfo second = admin.Worker(workers[1]);
    return second.links_size() == 1 &&
           second.links(0).worker_id() == workers[0] &&
           second.links(0).bytes_per_second() < 10 * kSlow;
  }));
}

}  // namespace
}  // namespace djinn
