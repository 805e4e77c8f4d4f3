// Tests calls that write their arguments: errors at the call, and the metadata
// of outputs.
#include <torch/torch.h>

#include <string>
#include <vector>

#include "client_lib/capture/kernel/capture_kernel.h"
#include "client_lib/capture/testing/capture_fixture.h"
#include "djinn/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::capture {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using WrittenOutputsTest = CaptureTest;

TEST_F(WrittenOutputsTest, InvalidOutputThrowsAtTheCall) {
  const c10::InferenceMode inference;
  at::Tensor base = Remote({4, 3}), one = Remote({1}), counts;
  counts = at::empty({3, 3}, at::TensorOptions(device_).dtype(at::kLong));
  at::Tensor bytes =
      at::empty({4}, at::TensorOptions(device_).dtype(at::kByte));
  const at::Tensor x = base.narrow(0, 0, 3), mask = at::gt(bytes, 1);
  at::Tensor next = base.narrow(0, 1, 3), many = one.expand({3, 3});
  at::Tensor row = Remote({3}), places = counts[0];
  recorder_->TakeNames();
  const auto refused = [](const char* text, auto call) {
    try {
      call();
      ADD_FAILURE() << "nothing raised; expected " << text;
    } catch (const std::exception& error) {
      EXPECT_THAT(std::string(error.what()), HasSubstr(text));
    }
  };
  refused("single memory location", [&] { at::sub_out(many, x, x); });
  refused("single memory location", [&] { at::sub_out(next, x, x); });
  refused("single memory location", [&] { many.addmm_(x, x); });
  refused("single memory location", [&] { many.copy_(x); });
  refused("single memory location", [&] { many.abs_(); });
  refused("single memory location", [&] { many.normal_(); });
  refused("single memory location", [&] { at::celu_(many); });
  at::Tensor tail = counts.slice(1, 1);
  refused("single memory location", [&] { at::trunc_out(tail, counts); });
  refused("single memory location", [&] { base.copy_(base[0]); });
  refused("single memory location", [&] { many.scatter_(0, counts, 1); });
  refused("single memory location", [&] { next.scatter_(0, counts, next); });
  refused("single memory location", [&] { next.index_copy_(0, places, x); });
  refused("single memory location", [&] { next.index_put_({places}, x); });
  refused("single memory location",
          [&] { at::gather_out(next, next, 0, counts); });
  refused("single memory location",
          [&] { at::cat_out(base, {x, row.view({1, 3})}); });
  const at::Tensor sides = Remote({3, 2, 4, 4}), side = sides.narrow(1, 0, 1);
  at::Tensor swapped = Remote({2, 3, 4, 4}).transpose(0, 1);
  // These dtypes and ranks have already passed a CPU trial, so it is another
  // check that refuses the calls.
  at::Tensor fresh = sides.clone();
  fresh.tril_();
  at::tril_out(fresh, sides);
  at::addr_out(row = Remote({3, 3}), x, x[0], x[1]);
  recorder_->TakeNames();
  at::Tensor spread = side.expand({3, 2, 4, 4});
  refused("single memory location", [&] { spread.tril_(); });
  refused("single memory location", [&] { spread.triu_(1); });
  refused("single memory location", [&] { at::triu_out(spread, sides); });
  refused("not evenly spaced", [&] { at::tril_out(swapped, sides); });
  refused("single memory location", [&] { many.addr_(x[0], x[1]); });
  refused("single memory location", [&] { at::addr_out(next, x, x[0], x[1]); });
  refused("single memory location", [&] { at::softmax_out(many, x, 1); });
  refused("single memory location", [&] { at::cross_out(many, x, x, 1); });
  refused("single memory location", [&] { at::addmm_out(next, x, x, x); });
  row = Remote({3});
  refused("take from an empty", [&] { at::take(Remote({0}), counts); });
  refused("Found dtype", [&] { at::silu_out(counts, x); });
  refused("doesn't match the broadcast", [&] { at::sub_out(row, row, base); });
  const char* const unfit =
      "output with shape [3] doesn't match the broadcast shape [4, 3]";
  refused(unfit, [&] { row.copy_(base); });
  refused(unfit, [&] { row.copy_(at::ones({4, 3})); });
  refused("must match the size", [&] { row.copy_(at::ones({2})); });
  refused("without overflow", [&] { bytes.masked_fill_(mask, -3.7); });
  refused("without overflow", [&] { at::masked_fill(bytes, mask, 1e9); });
  refused("without overflow", [&] { bytes.fill_(300); });
  EXPECT_THAT(recorder_->TakeNames(), IsEmpty());
  // PyTorch allows these calls.
  many.tril_();
  sides.narrow(0, 0, 1).expand({3, 2, 4, 4}).triu_();
  swapped.tril_();
  at::addmm_out(next, next, x, x);
  at::sub_out(base, base, row);
  next.index_fill_(0, places, next.select(0, 0).select(0, 0));
  many.index_put_({places}, one);
  next.index_add_(0, places, row.expand({3, 3}));
  next.copy_(row);
  many.copy_(one.expand({3, 3}));
  many.conj_physical_();
  counts.select(0, 0).expand({2, 3}).nan_to_num_();
  at::empty({0}, bytes.options().dtype(at::kBool)).cumprod_(0);
  next.sub_(next);
  bytes.fill_(7.5);
  at::Tensor real = Remote({2}), complex = real.to(at::kComplexFloat);
  at::abs_out(real, complex);
  at::abs_out(complex, complex);
}

TEST_F(WrittenOutputsTest, OutArgumentsAreResized) {
  const c10::InferenceMode inference;
  at::Tensor a = Remote({2, 3});
  at::Tensor out = Remote({0});
  at::add_out(out, a, a);
  EXPECT_EQ(out.sizes(), a.sizes());
  EXPECT_EQ(recorder_->resizes(), (std::vector<uint64_t>{24}));
  // A kernel that sizes its output computes in the order of its operands'
  // memory, so another form is captured.
  EXPECT_THAT(recorder_->TakeNames(),
              ElementsAre("aten::add.Tensor", "aten::copy_"));
  at::add_out(out, a, a);
  const std::vector<RecordedCall> calls = recorder_->TakeCalls();
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].name, "aten::add.out");
  EXPECT_EQ(calls[0].node.writes.size(), 1u);
}

TEST_F(WrittenOutputsTest, RunningStatisticsAreWrittenInTrainingOnly) {
  const c10::InferenceMode inference;
  const at::Tensor x = Remote({2, 3, 4}), mean = Remote({3}), var = Remote({3});
  for (const bool training : {true, false}) {
    at::native_batch_norm(x, {}, {}, mean, var, training, 0.1, 1e-5);
    at::batch_norm(x, {}, {}, mean, var, training, 0.1, 1e-5, false);
    const std::vector<RecordedCall> calls = recorder_->TakeCalls();
    ASSERT_EQ(calls.size(), 2u);
    for (const RecordedCall& call : calls) {
      EXPECT_EQ(call.node.writes.size(), training ? 2u : 0u) << call.name;
      EXPECT_THAT(call.node.overwrites, IsEmpty());
    }
    EXPECT_EQ(calls[0].node.results.size(), 3u);
    EXPECT_EQ(calls[1].node.results.size(), 1u);
  }
}

TEST_F(WrittenOutputsTest, OperatorMayWriteAndReturnNewTensors) {
  const c10::InferenceMode inference;
  const uint64_t synchronous = SynchronousCalls().size();
  const auto run = [](at::Device device) {
    const auto options = at::TensorOptions(device);
    const at::Tensor x = at::zeros({2, 3, 4, 4}, options);
    const at::Tensor mean = at::zeros({3}, options);
    const at::Tensor var = at::ones({3}, options);
    const auto legit = at::_native_batch_norm_legit(
        x, {}, {}, const_cast<at::Tensor&>(mean), const_cast<at::Tensor&>(var),
        true, 0.1, 1e-5);
    const auto updated =
        at::_batch_norm_with_update(x, {}, {}, const_cast<at::Tensor&>(mean),
                                    const_cast<at::Tensor&>(var), 0.1, 1e-5);
    at::Tensor noise = at::zeros_like(x);
    return std::vector<at::Tensor>{
        std::get<0>(legit),   std::get<1>(legit),
        std::get<2>(legit),   std::get<0>(updated),
        std::get<1>(updated), std::get<2>(updated),
        std::get<3>(updated), at::rrelu_with_noise(x, noise, 0.1, 0.3, true)};
  };
  const std::vector<at::Tensor> remote = run(device_), cpu = run(at::kCPU);
  for (size_t i = 0; i < cpu.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectSameMetadata(remote[i], cpu[i]);
  }
  EXPECT_EQ(SynchronousCalls().size(), synchronous);
  size_t mixed = 0;
  for (const RecordedCall& call : recorder_->TakeCalls()) {
    if (!call.node.writes.empty() && !call.node.results.empty()) ++mixed;
  }
  EXPECT_EQ(mixed, 3u);
}

TEST_F(WrittenOutputsTest, ResizedOutputsHaveTheCpusStrides) {
  const c10::InferenceMode inference;
  const auto run = [](at::Device device) {
    const at::Tensor x = at::empty({2, 4}, at::TensorOptions(device)).t();
    at::Tensor strided = at::empty({0}, at::TensorOptions(device));
    at::gelu_out(strided, x);
    at::Tensor plain =
        at::empty({0}, at::TensorOptions(device).dtype(at::kBool));
    at::isnan_out(plain, x);
    EXPECT_THROW(at::isnan_out(strided, x), c10::Error);
    return std::vector<at::Tensor>{strided, plain};
  };
  const std::vector<at::Tensor> remote = run(device_), cpu = run(at::kCPU);
  for (size_t i = 0; i < cpu.size(); ++i) ExpectSameMetadata(remote[i], cpu[i]);
}

TEST_F(WrittenOutputsTest, AnOutputThatIsRefusedKeepsItsSizes) {
  const c10::InferenceMode inference;
  at::Tensor refused = at::empty({3}, at::TensorOptions(device_));
  EXPECT_THROW(at::isnan_out(refused, Remote({2, 4})), c10::Error);
  EXPECT_EQ(refused.sizes(), c10::IntArrayRef({3}));
}

TEST_F(WrittenOutputsTest, OutputsOfFactoriesCompositesAndListsAreSized) {
  const c10::InferenceMode inference;
  const uint64_t synchronous = SynchronousCalls().size();
  const auto run = [](at::Device device) {
    const auto options = at::TensorOptions(device);
    const at::Tensor x = at::zeros({4, 3, 2}, options);
    const at::Tensor complex =
        at::zeros({3, 4}, options.dtype(at::kComplexFloat)).t();
    std::vector<at::Tensor> out;
    for (int i = 0; i < 4; ++i) out.push_back(at::empty({0}, options));
    at::full_out(out[0], {2, 3}, 7);
    at::arange_out(out[1], 1, 9, 2);
    at::eye_out(out[2], 3, 4);
    at::linspace_out(out[3], 0, 1, 5);
    out.push_back(at::empty({0}, options.dtype(at::kComplexFloat)));
    at::conj_physical_out(out.back(), complex);
    // The kernel sizes this output first, so the output does not get the
    // functional form's strides.
    out.push_back(at::empty({0}, options.dtype(at::kComplexFloat)));
    at::_fft_c2c_out(out.back(), complex, {0}, 0, true);
    std::vector<at::Tensor> parts;
    for (int i = 0; i < 4; ++i) parts.push_back(at::empty({0}, options));
    at::unbind_copy_out(parts, x);
    out.insert(out.end(), parts.begin(), parts.end());
    at::Tensor mean = at::zeros({3}, options), var = at::ones({3}, options);
    std::vector<at::Tensor> normalised;
    for (int i = 0; i < 3; ++i) normalised.push_back(at::empty({0}, options));
    at::_native_batch_norm_legit_out(normalised[0], normalised[1],
                                     normalised[2], x, {}, {}, mean, var, true,
                                     0.1, 1e-5);
    out.insert(out.end(), normalised.begin(), normalised.end());
    // An out= kernel in the composite sizes this result.
    out.push_back(at::mvlgamma(x, 2));
    return out;
  };
  const std::vector<at::Tensor> remote = run(device_), cpu = run(at::kCPU);
  for (size_t i = 0; i < cpu.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectSameMetadata(remote[i], cpu[i]);
  }
  EXPECT_EQ(SynchronousCalls().size(), synchronous);
}

}  // namespace
}  // namespace djinn::capture
