// Runs single operator calls through the operator library and compares them,
// bit for bit, with the same calls made directly.
//
//   ProgramTester tester;
//   tester.ExpectLikeEager("aten::add", "Tensor", {a, b});
//
// For one thread.
#ifndef GPU_WORKER_DEVICE_CPU_PROGRAM_TESTER_H_
#define GPU_WORKER_DEVICE_CPU_PROGRAM_TESTER_H_

#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/dispatch/Dispatcher.h"
#include "ATen/core/stack.h"
#include "absl/status/status.h"
#include "common/srg/graph.h"
#include "gpu_worker/device/cpu/cpu_device.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/device/operator_library.h"

namespace djinn::worker {

// A call as a client would send it, with its values.
struct EncodedCall {
  srg::Graph graph;
  // Buffers by slot; null for results' slots.
  std::vector<std::shared_ptr<Buffer>> slots;
  std::vector<double> floats;
  std::vector<std::string> scalar_tensors;

  const srg::Node& node() const { return graph.nodes[0]; }
  srg::Node& node() { return graph.nodes[0]; }
  NodeInput input() const { return {slots, floats, scalar_tensors}; }
};

// A call's outcome: its status and, if OK, its results.
struct CallOutcome {
  absl::Status status;
  std::vector<NodeResult> results;
};

class ProgramTester {
 public:
  // Uses two threads and a GiB unless the options say otherwise.
  explicit ProgramTester(CpuDeviceOptions options = {});

  Device* device() { return device_.get(); }
  OperatorLibrary* library() { return device_->operators(); }

  // Encodes the call as a graph of one node. Missing trailing arguments take
  // the schema's defaults. Tensors become bound slots, one per storage; wrapped
  // numbers become scalar tensors; generators (the default one included, if the
  // operator draws from it) become generator slots in their present state.
  // `results` are the expected ones.
  EncodedCall Encode(const std::string& name, const std::string& overload,
                     torch::jit::Stack arguments,
                     const std::vector<at::Tensor>& results);

  // Compiles and runs the call.
  CallOutcome Run(const EncodedCall& call);

  // Makes the call directly on copies of its operands, then through the
  // library, and expects the same results, metadata, written operands and
  // generator states. Advances the generators as the direct call does. Returns
  // the outcome.
  CallOutcome ExpectLikeEager(const std::string& name,
                              const std::string& overload,
                              torch::jit::Stack arguments);
  // Does the same for an operator of PyTorch, and expects success.
  void ExpectGood(const std::string& op, const torch::jit::Stack& arguments,
                  const std::string& overload = "");

  // Makes the call directly and through the library. Expects both to fail with
  // PyTorch's text, and all buffers that the call does not write to stay
  // unchanged.
  absl::Status ExpectFailsLikeEager(const std::string& name,
                                    const std::string& overload,
                                    torch::jit::Stack arguments);

  // Returns the result as a tensor over its buffer.
  static at::Tensor TensorOf(const NodeResult& result);
  static std::string BytesOf(const Buffer& buffer);

 private:
  std::unique_ptr<Device> device_;
};

c10::OperatorHandle FindOperator(const std::string& name,
                                 const std::string& overload);

// Returns the operator's arguments with defaults for those that are missing.
torch::jit::Stack WithDefaults(const c10::OperatorHandle& op,
                               torch::jit::Stack arguments);

// Returns whether dtype, sizes and every element's bits are the same.
bool SameBits(const at::Tensor& a, const at::Tensor& b);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_PROGRAM_TESTER_H_
