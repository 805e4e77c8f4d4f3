// Compares the results of programs on a remote device with those on the CPU:
// bit for bit, or within a tolerance on a device that sums in another order.
// Include it in one file of a test binary.
#ifndef TESTS_E2E_SAME_PROGRAM_H_
#define TESTS_E2E_SAME_PROGRAM_H_

#include <torch/torch.h>

#include <cstring>
#include <vector>

#include "tests/e2e/cluster_environment.h"

namespace djinn {

// Created before the tests run.
inline ClusterEnvironment* const environment = ClusterEnvironment::Get();

// The number of threads decides how a kernel splits its sums, so the CPU uses
// as many as the cluster's workers.
class ProgramTest : public SessionTest {
 protected:
  void SetUp() override {
    torch::set_num_threads(1);
    SessionTest::SetUp();
  }
};

inline void ExpectEqual(const torch::Tensor& remote,
                        const torch::Tensor& local) {
  ASSERT_EQ(remote.sizes(), local.sizes());
  EXPECT_EQ(remote.strides(), local.strides());
  ASSERT_EQ(remote.scalar_type(), local.scalar_type());
  const torch::Tensor here = remote.cpu().contiguous();
  const torch::Tensor expected = local.contiguous();
  // An empty tensor may have no address.
  if (expected.nbytes() == 0 ||
      std::memcmp(here.const_data_ptr(), expected.const_data_ptr(),
                  expected.nbytes()) == 0) {
    return;
  }
  if (WorkerDevice() != "cpu") {
    const auto wide = [](const torch::Tensor& tensor) {
      return tensor.is_complex()
                 ? torch::view_as_real(tensor).to(torch::kDouble)
                 : tensor.to(torch::kDouble);
    };
    const bool coarse = expected.element_size() <= 2;
    if (torch::allclose(wide(here), wide(expected), coarse ? 2e-2 : 2e-3,
                        coarse ? 2e-2 : 2e-4, /*equal_nan=*/true)) {
      return;
    }
  }
  const torch::Tensor difference =
      (here.to(torch::kDouble) - expected.to(torch::kDouble)).abs();
  ADD_FAILURE() << "differs, by at most " << difference.max().item<double>();
}

// Runs the program on the CPU and on the device with the same random inputs.
// `program` maps a torch::Device to the tensors to compare.
template <typename Program>
void ExpectSame(Program program) {
  torch::manual_seed(1);
  const std::vector<torch::Tensor> local = program(torch::Device(torch::kCPU));
  torch::manual_seed(1);
  const std::vector<torch::Tensor> remote = program(Device(0));
  ASSERT_EQ(local.size(), remote.size());
  for (size_t i = 0; i < local.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(remote[i].device(), Device(0));
    ExpectEqual(remote[i], local[i]);
  }
}

}  // namespace djinn

#endif  // TESTS_E2E_SAME_PROGRAM_H_
