// Executes runs of PyTorch's operators on a device through the worker's
// executor, as a session would. By default the device has a fake accelerator.
#ifndef GPU_WORKER_DEVICE_CUDA_TESTING_RUN_TESTER_H_
#define GPU_WORKER_DEVICE_CUDA_TESTING_RUN_TESTER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "common/srg/graph.h"
#include "gpu_worker/device/cuda/stream_device.h"
#include "gpu_worker/device/cuda/testing/eager_recorder.h"
#include "gpu_worker/device/cuda/testing/fake_accelerator.h"
#include "gpu_worker/plan/graph_cache.h"
#include "gpu_worker/plan/run_executor.h"
#include "gpu_worker/store/device_memory.h"

namespace djinn::worker {

using Floats = std::vector<float>;

// Builds a graph of aten operators over dense tensors.
class AtenGraph {
 public:
  static srg::TensorView View(uint32_t slot, srg::Dimensions sizes,
                              srg::DataType type = srg::DataType::kFloat32);

  uint32_t Bound() { return Slot(srg::Slot::Kind::kBound); }
  uint32_t Generator() { return Slot(srg::Slot::Kind::kGenerator); }
  uint32_t Created(uint64_t bytes) {
    return Slot(srg::Slot::Kind::kCreated, bytes);
  }
  uint32_t Result() { return Slot(srg::Slot::Kind::kResult); }
  uint32_t NumberOfTheHost() { return graph_.scalar_tensor_hole_count++; }
  srg::Argument Hole() { return srg::FloatHole{graph_.float_hole_count++}; }

  // Appends a call of an operator, such as "add" with overload "Tensor".
  srg::Node& Call(const std::string& op, const std::string& overload,
                  std::vector<srg::Argument> arguments,
                  std::vector<srg::Result> results = {});

  // The following functions append operators over floats of one dimension.
  uint32_t Add(uint32_t x, uint32_t y, int64_t count);
  uint32_t Multiply(uint32_t x, uint32_t y, int64_t count);
  void AddInPlace(uint32_t x, uint32_t y, int64_t count);
  // Selects rows of `table`, which has `rows` of `width`, by `count` indices.
  uint32_t Embedding(uint32_t table, uint32_t indices, int64_t rows,
                     int64_t width, int64_t count);

  const srg::Graph& get() const { return graph_; }

 private:
  uint32_t Slot(srg::Slot::Kind kind, uint64_t created_bytes = 0);

  srg::Graph graph_;
};

class RunTester {
 public:
  explicit RunTester(bool records = true, GraphStore::Options graphs = {});
  explicit RunTester(std::unique_ptr<Device> device);
  ~RunTester();

  // Returns the fake accelerator of a tester that was given no device.
  FakeAccelerator& accelerator() { return *accelerator_; }
  EagerRecorder& recorder() { return recorder_; }
  Device& device() { return *device_; }
  ExecutionCounters& counters() { return counters_; }

  std::shared_ptr<const Plan> Admit(const AtenGraph& graph);

  // Create storages and return their ids. Upload() uses the path of large
  // transfers.
  uint64_t Upload(const Floats& values);
  uint64_t UploadIndices(const std::vector<int64_t>& values);
  uint64_t SeededGenerator(uint64_t seed);
  // Puts the values into new memory and frees the old.
  void Replace(uint64_t storage, const Floats& values);
  // Writes the values to the same memory.
  void WriteInPlace(uint64_t storage, const Floats& values);
  void Free(uint64_t storage);
  const void* Address(uint64_t storage);

  // Runs the plan. `bound` are the storages of the slots that exist, in slot
  // order. Returns the storage of each slot; `final_slots` are freed.
  std::vector<uint64_t> Run(const Plan& plan, std::vector<uint64_t> bound,
                            std::vector<double> floats = {},
                            std::vector<uint32_t> final_slots = {});

  // Returns the bytes of a storage that is not poisoned.
  std::string Bytes(uint64_t storage);
  Floats Values(uint64_t storage);
  RootError Poison(uint64_t storage) { return storages_.Find(storage)->poison; }
  uint64_t Count(const std::string& event);

 private:
  uint64_t Install(const std::string& bytes);

  EagerRecorder recorder_;
  // The device's accelerator; null if the device was given.
  FakeAccelerator* accelerator_ = nullptr;
  std::unique_ptr<Device> device_;
  Ledger ledger_{uint64_t{1} << 28};
  std::unique_ptr<DeviceMemory> memory_;
  SessionQuota quota_{{.all = uint64_t{1} << 28}};
  GraphCache cache_{GraphCache::Options()};
  FakeRandomSource random_;
  RootErrors errors_{"w0", "t", &random_};
  ExecutionCounters counters_;
  std::atomic<bool> cancelled_{false};
  StorageTable storages_;
  uint64_t next_id_ = 1;
  uint64_t sequence_ = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_TESTING_RUN_TESTER_H_
