#include "gpu_worker/device/cuda/stream_device.h"

#include <string>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/ops/rand.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "gpu_worker/device/cuda/testing/run_tester.h"
#include "gpu_worker/device/memory_gauge.h"
#include "gpu_worker/device/torch/device_speed.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

// Tests a device that records no graphs.
class StreamDeviceTest : public testing::Test {
 protected:
  RunTester tester_{/*records=*/false};
};

TEST_F(StreamDeviceTest, OperatorsSeeWhatWasUploaded) {
  AtenGraph s;
  const uint32_t x = s.Bound(), y = s.Bound();
  const uint32_t sum = s.Add(x, y, 10);
  const auto plan = tester_.Admit(s);
  const Floats ten = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto ids =
      tester_.Run(*plan, {tester_.Upload(ten), tester_.Upload(ten)});
  EXPECT_EQ(tester_.Values(ids[sum]),
            (Floats{0, 2, 4, 6, 8, 10, 12, 14, 16, 18}));
}

TEST_F(StreamDeviceTest, ARunDoesNotWaitForUploadsOfOthers) {
  AtenGraph s;
  const uint32_t x = s.Bound();
  s.Add(x, x, 2);
  const auto plan = tester_.Admit(s);
  const uint64_t mine = tester_.Upload({1, 2});
  tester_.Upload({3, 4});
  tester_.Run(*plan, {mine});
  EXPECT_EQ(tester_.accelerator().pending(StreamId::kCopyIn), 1u);
}

TEST_F(StreamDeviceTest, ARunIsOverWhenAllOfItIsDone) {
  AtenGraph s;
  const uint32_t x = s.Bound();
  s.Add(x, x, 2);
  const auto plan = tester_.Admit(s);
  tester_.Run(*plan, {tester_.Upload({1, 2})});
  // The run waited for its operators although nothing read their results.
  EXPECT_EQ(tester_.accelerator().pending(StreamId::kCompute), 0u);
}

TEST_F(StreamDeviceTest, ItsSpeedCanBeMeasured) {
  const auto speed = MeasureDeviceSpeed(&tester_.device(), Clock::Real());
  ASSERT_TRUE(speed.ok()) << speed.status();
  EXPECT_GT(speed->flops_per_second(), 0);
  EXPECT_GT(speed->bytes_per_second(), 0);
  EXPECT_GT(speed->seconds_per_call(), 0);
  EXPECT_EQ(tester_.accelerator().pending(StreamId::kCompute), 0u);
}

TEST_F(StreamDeviceTest, FlagsAreReadBehindTheOperatorsThatSetThem) {
  AtenGraph s;
  const uint32_t table = s.Bound(), indices = s.Bound();
  s.Embedding(table, indices, 3, 2, 1);
  const auto plan = tester_.Admit(s);
  tester_.Run(*plan,
              {tester_.Upload({0, 1, 2, 3, 4, 5}), tester_.UploadIndices({1})});
  EXPECT_EQ(tester_.accelerator().read_too_early(), 0u);
  EXPECT_EQ(tester_.accelerator().pending(StreamId::kCompute), 0u);
}

TEST_F(StreamDeviceTest, OperatorThatTheGpuDoesNotCheckIsRefused) {
  AtenGraph s;
  const uint32_t x = s.Bound();
  s.Call("_masked_softmax", "",
         {AtenGraph::View(x, {1, 2}),
          AtenGraph::View(x, {1, 2}, srg::DataType::kBool), int64_t{1},
          int64_t{1}},
         {AtenGraph::View(s.Result(), {1, 2})});
  const absl::Status status =
      tester_.device().operators()->Compile(s.get()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(ErrorReason(status), "OPERATOR_REFUSED");
}

TEST_F(StreamDeviceTest, ResultsLieAsTheClientInferredThem) {
  AtenGraph s;
  const uint32_t x = s.Bound();
  const srg::TensorView view = AtenGraph::View(x, {2, 3});
  srg::TensorView columns = AtenGraph::View(s.Result(), {2, 3});
  columns.strides = {1, 2};
  s.Call("neg", "", {view}, {columns});
  srg::TensorView wide =
      AtenGraph::View(s.Result(), {2, 3}, srg::DataType::kFloat64);
  s.Call("neg", "", {view}, {wide});
  const auto ids =
      tester_.Run(*tester_.Admit(s), {tester_.Upload({1, 2, 3, 4, 5, 6})});
  EXPECT_EQ(tester_.Values(ids[columns.slot]),
            (Floats{-1, -4, -2, -5, -3, -6}));
  const std::vector<double> due = {-1, -2, -3, -4, -5, -6};
  EXPECT_EQ(tester_.Bytes(ids[wide.slot]),
            std::string(reinterpret_cast<const char*>(due.data()),
                        due.size() * sizeof(double)));
  EXPECT_EQ(tester_.counters().failed_nodes, 0u);
}

TEST_F(StreamDeviceTest, UnexpectedResultsAreDropped) {
  AtenGraph s;
  const uint32_t x = s.Bound();
  const uint32_t largest = s.Result();
  s.Call("max", "dim", {AtenGraph::View(x, {2, 3}), int64_t{1}, false},
         {AtenGraph::View(largest, {2}), srg::UndefinedResult()});
  const auto ids =
      tester_.Run(*tester_.Admit(s), {tester_.Upload({1, 7, 3, 9, 5, 6})});
  EXPECT_EQ(tester_.Values(ids[largest]), (Floats{7, 9}));
}

TEST_F(StreamDeviceTest, AResultOfOtherSizesIsAnError) {
  AtenGraph s;
  const uint32_t x = s.Bound();
  const uint32_t sum = s.Result();
  s.Call("neg", "", {AtenGraph::View(x, {2, 3})},
         {AtenGraph::View(sum, {3, 2})});
  const auto ids =
      tester_.Run(*tester_.Admit(s), {tester_.Upload({1, 2, 3, 4, 5, 6})});
  ASSERT_NE(tester_.Poison(ids[sum]), nullptr);
  EXPECT_EQ(tester_.Poison(ids[sum])->reason(), "METADATA_MISMATCH");
}

TEST_F(StreamDeviceTest, MisalignedOperandOfAVectorizedKernelIsRefused) {
  const auto compile = [&](int64_t offset, int64_t stride) {
    AtenGraph s;
    const auto operand = [&](srg::Dimensions sizes) -> srg::TensorView {
      return AtenGraph::View(s.Bound(), std::move(sizes));
    };
    const srg::TensorView x = operand({1, 2, 4});
    srg::TensorView bias = operand({12});
    bias.storage_offset = offset;
    bias.strides = {stride};
    s.Call("_native_multi_head_attention", "",
           {x, x, x, int64_t{4}, int64_t{2}, operand({12, 4}), bias,
            operand({4, 4}), operand({4}), std::monostate(), false, true,
            std::monostate()},
           {AtenGraph::View(s.Result(), {1, 2, 4}), srg::UndefinedResult()});
    return tester_.device().operators()->Compile(s.get()).status();
  };
  EXPECT_TRUE(compile(0, 1).ok()) << compile(0, 1);
  EXPECT_TRUE(compile(4, 1).ok());
  for (const absl::Status& status : {compile(1, 1), compile(0, 2)}) {
    EXPECT_EQ(ErrorReason(status), "MALFORMED_GRAPH") << status;
    EXPECT_NE(status.message().find("qkv_bias"), absl::string_view::npos);
  }
}

// Tests the steps of optimizers that process lists of tensors at once.
class FusedOptimizerTest : public StreamDeviceTest {
 protected:
  using List = std::vector<srg::TensorListEntry>;

  List Tensors(int count, srg::Dimensions sizes = {3},
               srg::DataType type = srg::DataType::kFloat32) {
    List list;
    for (int i = 0; i < count; ++i) {
      list.push_back(AtenGraph::View(graph_.Bound(), sizes, type));
    }
    return list;
  }
  srg::Argument Hole() { return graph_.Hole(); }

  // Compiles a call that writes its first `written` lists, and returns the
  // status.
  absl::Status Compile(const std::string& op, size_t written,
                       std::vector<srg::Argument> arguments) {
    std::vector<uint32_t> writes;
    for (size_t i = 0; i < written; ++i) {
      for (const auto& entry : std::get<List>(arguments[i])) {
        writes.push_back(std::get<srg::TensorView>(entry).slot);
      }
    }
    graph_.Call(op, "", std::move(arguments)).writes = writes;
    const absl::Status status =
        tester_.device().operators()->Compile(graph_.get()).status();
    graph_ = AtenGraph();
    return status;
  }
  absl::Status CompileAdam(int averages, List steps, bool amsgrad = false,
                           int greatest = 0) {
    const List self = Tensors(2), grads = Tensors(2), means = Tensors(averages),
               squares = Tensors(2), most = Tensors(greatest);
    return Compile(
        "_fused_adamw_", 5,
        {self, grads, means, squares, most, steps, Hole(), Hole(), Hole(),
         Hole(), Hole(), amsgrad, false, std::monostate(), std::monostate()});
  }
  absl::Status CompileSgd(int grads, int momenta,
                          srg::DataType type = srg::DataType::kFloat32) {
    const List self = Tensors(2), gradients = Tensors(grads, {3}, type),
               buffers = Tensors(momenta);
    return Compile("_fused_sgd_", 3,
                   {self, gradients, buffers, Hole(), Hole(), Hole(), Hole(),
                    false, false, false, std::monostate(), std::monostate()});
  }

  AtenGraph graph_;
};

TEST_F(FusedOptimizerTest, ListsHaveAnEntryForEachParameter) {
  EXPECT_TRUE(CompileAdam(2, Tensors(2, {})).ok())
      << CompileAdam(2, Tensors(2, {}));
  EXPECT_TRUE(CompileAdam(2, Tensors(2, {}), true, 2).ok());
  EXPECT_TRUE(CompileSgd(2, 2).ok()) << CompileSgd(2, 2);
  EXPECT_TRUE(CompileSgd(2, 0).ok());
  const auto expect_bad = [](const absl::Status& status,
                             const std::string& what) {
    EXPECT_EQ(ErrorReason(status), "MALFORMED_GRAPH") << status;
    EXPECT_NE(status.message().find(what), absl::string_view::npos) << status;
  };
  expect_bad(CompileAdam(1, Tensors(2, {})), "argument exp_avgs has 1 entries");
  expect_bad(CompileAdam(3, Tensors(2, {})), "argument exp_avgs has 3 entries");
  expect_bad(CompileAdam(2, Tensors(1, {})), "argument state_steps has 1");
  expect_bad(CompileAdam(2, Tensors(2, {}), true, 0),
             "argument max_exp_avg_sqs has 0");
  expect_bad(CompileSgd(1, 0), "argument grads has 1 entries");
  expect_bad(CompileSgd(2, 0, srg::DataType::kFloat16),
             "must be of the type of self[0]");
  expect_bad(CompileSgd(2, 1), "argument momentum_buffer_list has 1");
}

TEST_F(FusedOptimizerTest, StepsAreOneFloatEachOnTheDevice) {
  const auto expect_bad = [](const absl::Status& status,
                             const std::string& what) {
    EXPECT_EQ(ErrorReason(status), "MALFORMED_GRAPH") << status;
    EXPECT_NE(status.message().find(what), absl::string_view::npos) << status;
  };
  EXPECT_TRUE(CompileAdam(2, Tensors(2, {1})).ok());
  expect_bad(CompileAdam(2, Tensors(2, {0})), "state_steps[0]");
  expect_bad(CompileAdam(2, Tensors(2, {2})), "state_steps[0]");
  expect_bad(CompileAdam(2, Tensors(2, {}, srg::DataType::kFloat64)),
             "must be one float32");
  List host(2, srg::ScalarTensor{});
  for (auto& entry : host) {
    auto& scalar = std::get<srg::ScalarTensor>(entry);
    scalar.data_type = srg::DataType::kFloat32;
    scalar.hole = graph_.NumberOfTheHost();
  }
  expect_bad(CompileAdam(2, host), "argument state_steps has an entry");
}

TEST_F(StreamDeviceTest, BuffersAreReadBehindWhatMakesThem) {
  Device& device = tester_.device();
  const auto zeros = device.Allocate(40).value();
  EXPECT_EQ(device.HostBytes(zeros).value().bytes, std::string(40, '\0'));
  const auto upload = device.AllocateUnset(40).value();
  const std::string bytes = "0123456789abcdefghijklmnopqrstuvwxyz....";
  ASSERT_TRUE(device.Write(upload.get(), 0, bytes.substr(0, 20)).ok());
  ASSERT_TRUE(device.Write(upload.get(), 20, bytes.substr(20)).ok());
  EXPECT_EQ(device.HostRange(upload, 8, 30).value().bytes, bytes.substr(8, 30));
  const auto copy = device.Clone(*upload, 44).value();
  EXPECT_EQ(device.HostBytes(copy).value().bytes, bytes + std::string(4, '\0'));
  // Clone() used the buffer in the compute stream, which orders all later
  // writes.
  ASSERT_TRUE(device.Write(upload.get(), 1, "XY").ok());
  EXPECT_EQ(device.HostRange(upload, 0, 4).value().bytes, "0XY3");
  EXPECT_FALSE(device.Write(upload.get(), 39, "XY").ok());
}

TEST_F(StreamDeviceTest, ViewsAreGatheredWhereTheyAre) {
  Device& device = tester_.device();
  const auto buffer = device.AllocateUnset(24).value();
  const Floats six = {0, 1, 2, 3, 4, 5};
  ASSERT_TRUE(device
                  .Write(buffer.get(), 0,
                         {reinterpret_cast<const char*>(six.data()), 24})
                  .ok());
  srg::TensorView turned = AtenGraph::View(0, {3, 2});
  turned.strides = {1, 3};
  const SharedBytes bytes = device.ReadView(buffer, turned).value();
  EXPECT_EQ(Floats(reinterpret_cast<const float*>(bytes.bytes.data()),
                   reinterpret_cast<const float*>(bytes.bytes.data()) + 6),
            (Floats{0, 3, 1, 4, 2, 5}));
  srg::TensorView part = AtenGraph::View(0, {2});
  part.storage_offset = 3;
  EXPECT_EQ(*reinterpret_cast<const float*>(
                device.ReadView(buffer, part).value().bytes.data()),
            3);
  part.storage_offset = 5;
  EXPECT_EQ(ErrorReason(device.ReadView(buffer, part).status()),
            "INVALID_VIEW");
}

TEST_F(StreamDeviceTest, AnIndexOutOfRangeIsTheRunsError) {
  AtenGraph s;
  const uint32_t table = s.Bound(), indices = s.Bound(), x = s.Bound();
  const uint32_t rows = s.Embedding(table, indices, 3, 2, 2);
  const uint32_t from_rows = s.Result();
  s.Call("neg", "", {AtenGraph::View(rows, {2, 2})},
         {AtenGraph::View(from_rows, {2, 2})});
  const uint32_t apart = s.Add(x, x, 2);
  const auto plan = tester_.Admit(s);
  const uint64_t table_id = tester_.Upload({0, 1, 2, 3, 4, 5});
  const uint64_t x_id = tester_.Upload({1, 2});
  auto ids =
      tester_.Run(*plan, {table_id, tester_.UploadIndices({2, 3}), x_id});
  const RootError error = tester_.Poison(ids[rows]);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->message(),
            "index out of range in aten::embedding, argument indices");
  EXPECT_EQ(error->operator_name(), "aten::embedding");
  EXPECT_EQ(error->node(), 0u);
  EXPECT_EQ(error->reason(), "OPERATOR_FAILED");
  EXPECT_EQ(tester_.Poison(ids[from_rows]), error);
  EXPECT_EQ(tester_.Values(ids[apart]), (Floats{2, 4}));
  // The device still works.
  ids = tester_.Run(*plan, {table_id, tester_.UploadIndices({2, 0}), x_id});
  EXPECT_EQ(tester_.Values(ids[rows]), (Floats{4, 5, 0, 1}));
}

TEST_F(StreamDeviceTest, TwoNodesThatFailLateAreTwoErrors) {
  AtenGraph s;
  const uint32_t table = s.Bound(), one = s.Bound(), other = s.Bound();
  const uint32_t first = s.Embedding(table, one, 3, 2, 1);
  const uint32_t good = s.Embedding(table, one, 3, 2, 1);
  const uint32_t second = s.Embedding(table, other, 3, 2, 1);
  const auto plan = tester_.Admit(s);
  const auto ids = tester_.Run(
      *plan, {tester_.Upload({0, 1, 2, 3, 4, 5}), tester_.UploadIndices({1}),
              tester_.UploadIndices({7})});
  EXPECT_EQ(tester_.Poison(ids[first]), nullptr);
  EXPECT_EQ(tester_.Poison(ids[good]), nullptr);
  EXPECT_EQ(tester_.Poison(ids[second])->node(), 2u);
}

TEST_F(StreamDeviceTest, WithoutARunANodeIsWaitedFor) {
  AtenGraph s;
  const uint32_t table = s.Bound(), indices = s.Bound();
  s.Embedding(table, indices, 3, 2, 2);
  Device& device = tester_.device();
  const auto program = device.operators()->Compile(s.get()).value();
  std::vector<std::shared_ptr<Buffer>> slots = {
      device.Allocate(24).value(), device.AllocateUnset(16).value(), nullptr};
  const int64_t bad[] = {0, 3};
  ASSERT_TRUE(
      device.Write(slots[1].get(), 0, {reinterpret_cast<const char*>(bad), 16})
          .ok());
  std::vector<NodeResult> results;
  const absl::Status status =
      program->Execute(0, NodeInput{slots, {}, {}}, &results);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_TRUE(results.empty());
}

TEST_F(StreamDeviceTest, DrawsFollowTheSessionsGenerator) {
  AtenGraph s;
  const uint32_t generator = s.Generator();
  const uint32_t drawn = s.Result();
  srg::Argument none = std::monostate();
  s.Call("rand", "generator",
         {std::vector<int64_t>{4}, srg::GeneratorSlot{generator}, none, none,
          srg::WorkerDevice{}, none},
         {AtenGraph::View(drawn, {4})});
  const auto plan = tester_.Admit(s);
  const uint64_t state = tester_.SeededGenerator(7);
  at::Generator expected = at::detail::createCPUGenerator(7);
  for (int i = 0; i < 3; ++i) {
    const auto ids = tester_.Run(*plan, {state});
    const at::Tensor direct = at::rand({4}, expected);
    EXPECT_EQ(tester_.Values(ids[drawn]),
              Floats(direct.const_data_ptr<float>(),
                     direct.const_data_ptr<float>() + 4));
  }
  // A client reads the state from which the next draw starts.
  const at::Tensor after = expected.get_state();
  EXPECT_EQ(tester_.Bytes(state),
            std::string(static_cast<const char*>(after.const_data_ptr()),
                        after.nbytes()));
}

TEST_F(StreamDeviceTest, StatesOfGeneratorsStayOnTheHostUntilTheyAreRead) {
  AtenGraph s;
  const uint32_t generator = s.Generator();
  srg::Argument none = std::monostate();
  s.Call("rand", "generator",
         {std::vector<int64_t>{4}, srg::GeneratorSlot{generator}, none, none,
          srg::WorkerDevice{}, none},
         {AtenGraph::View(s.Result(), {4})});
  const auto plan = tester_.Admit(s);
  const uint64_t state = tester_.SeededGenerator(7);
  for (int i = 0; i < 20; ++i) tester_.Run(*plan, {state});
  EXPECT_EQ(tester_.accelerator().pinned_blocks(), 0u);

  Device& device = tester_.device();
  const auto buffer = device.operators()->SeedGenerator(9).value();
  const std::string bytes(device.HostBytes(buffer).value().bytes);
  const auto copy = device.Clone(*buffer, bytes.size()).value();
  EXPECT_EQ(device.HostBytes(copy).value().bytes, bytes);
  EXPECT_EQ(tester_.accelerator().pinned_blocks(), 0u);
  // The longer clone copies the state to the device.
  const auto longer = device.Clone(*buffer, bytes.size() + 2).value();
  EXPECT_EQ(device.HostBytes(longer).value().bytes,
            bytes + std::string(2, '\0'));
  ASSERT_TRUE(device.Write(copy.get(), 1, "xy").ok());
  std::string changed = bytes;
  changed.replace(1, 2, "xy");
  EXPECT_EQ(device.HostBytes(copy).value().bytes, changed);
}

TEST_F(StreamDeviceTest, ABrokenDeviceSaysSoToEverybody) {
  AtenGraph s;
  const uint32_t x = s.Bound();
  const uint32_t y = s.Add(x, x, 2);
  const auto plan = tester_.Admit(s);
  const uint64_t id = tester_.Upload({1, 2});
  EXPECT_TRUE(tester_.device().Health().ok());
  EXPECT_EQ(
      dynamic_cast<MemoryGauge&>(tester_.device()).AvailableBytes().value(),
      123u << 20);
  tester_.accelerator().Break(absl::UnavailableError("it asserted"));
  auto ids = tester_.Run(*plan, {id});
  EXPECT_EQ(tester_.Poison(ids[y])->message(), "it asserted");
  EXPECT_EQ(tester_.device().Health().message(), "it asserted");
  EXPECT_EQ(tester_.device().Allocate(8).status().message(), "it asserted");
  EXPECT_EQ(tester_.device().AllocateUnset(8).status().message(),
            "it asserted");
  ids = tester_.Run(*plan, {id});
  EXPECT_EQ(tester_.Poison(ids[y])->message(), "it asserted");
  // The device stays broken even if the accelerator later reports OK.
  tester_.accelerator().Break(absl::OkStatus());
  EXPECT_FALSE(tester_.device().Health().ok());
}

TEST_F(StreamDeviceTest, AnErrorOfAnOperatorIsNoErrorOfTheDevices) {
  AtenGraph s;
  const uint32_t x = s.Bound();
  const uint32_t y = s.Result();
  s.Call("view", "", {AtenGraph::View(x, {2}), std::vector<int64_t>{3}},
         {AtenGraph::View(y, {3})});
  absl::Status status;
  const auto program = tester_.device().operators()->Compile(s.get());
  if (program.ok()) {
    std::vector<std::shared_ptr<Buffer>> slots = {
        tester_.device().Allocate(8).value(), nullptr};
    std::vector<NodeResult> results;
    status = (*program)->Execute(0, NodeInput{slots, {}, {}}, &results);
    EXPECT_FALSE(status.ok());
  }
  EXPECT_TRUE(tester_.device().Health().ok());
}

}  // namespace
}  // namespace djinn::worker
