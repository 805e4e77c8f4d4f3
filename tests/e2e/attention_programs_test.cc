// Tests scaled dot product attention as models call it. Results, gradients and
// strides must equal the CPU's, with and without a gradient.
#include <ATen/Context.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/e2e/same_program.h"

namespace djinn {
namespace {

using torch::Tensor;

using AttentionProgramsTest = ProgramTest;

struct Operands {
  Tensor query, key, value;
  std::optional<Tensor> mask;
};

struct Options {
  double dropout = 0;
  bool causal = false;
  std::optional<double> scale;
  bool grouped = false;
};

// Returns the same view of the same memory on the device.
Tensor There(const Tensor& tensor, torch::Device device) {
  const int64_t elements =
      static_cast<int64_t>(tensor.storage().nbytes() / tensor.itemsize());
  return tensor.as_strided({elements}, {1}, 0)
      .to(device, tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true)
      .as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
}

Tensor Attend(const Operands& on, const Options& options) {
  return torch::scaled_dot_product_attention(
      on.query, on.key, on.value, on.mask, options.dropout, options.causal,
      options.scale, options.grouped);
}

// Compares attention on the CPU and on the device. The operands are created on
// the CPU. `differentiate_mask` also asks for the mask's gradient.
void ExpectSameAttention(const Operands& operands, const Options& options,
                         bool differentiate_mask = false) {
  ExpectSame([&](torch::Device device) {
    Operands on = {There(operands.query, device), There(operands.key, device),
                   There(operands.value, device), std::nullopt};
    std::vector<Tensor> leaves = {on.query, on.key, on.value};
    if (operands.mask.has_value()) {
      on.mask = There(*operands.mask, device);
      if (differentiate_mask) leaves.push_back(*on.mask);
    }
    std::vector<Tensor> results = {Attend(on, options)};
    for (Tensor& leaf : leaves) leaf.requires_grad_();
    {
      torch::NoGradGuard no_grad;
      results.push_back(Attend(on, options));
    }
    const Tensor result = Attend(on, options);
    results.push_back(result.detach());
    result.square().sum().backward();
    for (const Tensor& leaf : leaves) results.push_back(leaf.grad());
    return results;
  });
}

Tensor Heads(int64_t count, int64_t rows, torch::Dtype dtype = torch::kFloat,
             int64_t batch = 2) {
  return torch::randn({batch, rows, count * 8}, dtype)
      .view({batch, rows, count, 8})
      .transpose(1, 2);
}

// Returns the tensor in the layouts in which models create it.
std::vector<Tensor> Layouts(const Tensor& x) {
  const int64_t width = x.size(-1);
  return {x,
          x.contiguous(),
          x.permute({2, 0, 1, 3}).contiguous().permute({1, 2, 0, 3}),
          torch::cat({x, x, x}, -1).slice(-1, width, 2 * width),
          x.transpose(-1, -2).contiguous().transpose(-1, -2),
          x.contiguous(torch::MemoryFormat::ChannelsLast),
          x.slice(0, 0, 1).expand(x.sizes())};
}

TEST_F(AttentionProgramsTest, Layouts) {
  const Tensor x = Heads(4, 6), y = Heads(4, 6);
  for (const Tensor& each : Layouts(x)) {
    SCOPED_TRACE(c10::str(each.strides()));
    ExpectSameAttention({each, y, y}, {});
    ExpectSameAttention({y, each, y}, {});
    ExpectSameAttention({y, y, each}, {});
    ExpectSameAttention({each, each, each}, {.causal = true});
  }
  EXPECT_EQ(GetStatistics().synchronous_calls, 0u);
}

TEST_F(AttentionProgramsTest, Masks) {
  const Tensor q = Heads(4, 6), kv = Heads(4, 9);
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{6, 9},
                                         {1, 9},
                                         {6, 1},
                                         {2, 1, 6, 9},
                                         {1, 4, 6, 9},
                                         {2, 4, 6, 9},
                                         {2, 4, 1, 9},
                                         {2, 1, 1, 9},
                                         {4, 6, 9}}) {
    SCOPED_TRACE(c10::str(sizes));
    const Tensor mask = torch::randn(sizes);
    ExpectSameAttention({q, kv, kv, mask}, {});
    ExpectSameAttention({q, kv, kv, mask}, {}, /*differentiate_mask=*/true);
    ExpectSameAttention({q, kv, kv, mask > -0.5}, {});
  }
  // The CPU accepts masks whose rows are not dense.
  const Tensor columns = torch::randn({9, 6}).t();
  ExpectSameAttention({q, kv, kv, columns}, {});
  ExpectSameAttention({q, kv, kv, columns > 0}, {});
  ExpectSameAttention({q, kv, kv, torch::randn({6, 1}).expand({6, 9})}, {});
  // A mask with rows that attend to nothing.
  ExpectSameAttention({q, kv, kv, torch::zeros({6, 9}, torch::kBool)}, {});
  EXPECT_EQ(GetStatistics().synchronous_calls, 0u);
}

TEST_F(AttentionProgramsTest, DtypesScalesAndGroups) {
  for (const torch::Dtype dtype :
       {torch::kFloat, torch::kDouble, torch::kBFloat16}) {
    SCOPED_TRACE(c10::toString(dtype));
    const Tensor q = Heads(4, 6, dtype), kv = Heads(4, 9, dtype);
    const Tensor two = Heads(2, 6, dtype), one = Heads(1, 9, dtype);
    const Tensor mask = torch::randn({6, 9}, dtype);
    ExpectSameAttention({q, kv, kv}, {});
    ExpectSameAttention({q, kv, kv, mask}, {});
    ExpectSameAttention({q, kv, kv, mask.to(torch::kFloat)}, {});
    ExpectSameAttention({q, kv, kv}, {.scale = 0.3});
    ExpectSameAttention({q, kv, kv}, {.scale = -0.3});
    ExpectSameAttention({q, two, two}, {.causal = true, .grouped = true});
    ExpectSameAttention({q, one, one, mask}, {.grouped = true});
    ExpectSameAttention({q, one, two.slice(2, 0, 1).expand({2, 2, 9, 8})},
                        {.grouped = true});
  }
  EXPECT_EQ(GetStatistics().synchronous_calls, 0u);
}

TEST_F(AttentionProgramsTest, DropsWhatTheCpuDrops) {
  const Tensor q = Heads(4, 6), kv = Heads(4, 9), two = Heads(2, 9);
  // The first call is the one without dropout. It equals the second call
  // otherwise, but its result has another layout.
  ExpectSameAttention({q, kv, kv}, {});
  ExpectSameAttention({q, kv, kv}, {.dropout = 0.25});
  ExpectSameAttention({q, kv, kv, torch::randn({6, 9})}, {.dropout = 0.5});
  ExpectSameAttention({q, two, two},
                      {.dropout = 0.25, .causal = true, .grouped = true});
  EXPECT_EQ(GetStatistics().synchronous_calls, 0u);
}

TEST_F(AttentionProgramsTest, OtherShapes) {
  for (const int64_t batch : {1, 2}) {
    for (const int64_t heads : {1, 3}) {
      for (const int64_t rows : {1, 5}) {
        SCOPED_TRACE(c10::str(batch, " ", heads, " ", rows));
        const Tensor x = Heads(heads, rows, torch::kFloat, batch);
        ExpectSameAttention({x, x, x}, {});
        ExpectSameAttention({x, x, x}, {.causal = true});
      }
    }
  }
  const Tensor q = Heads(4, 6), kv = Heads(4, 9);
  // Three dimensions, two, five.
  ExpectSameAttention({q[0], kv[0], kv[0]}, {});
  ExpectSameAttention({q[0][0], kv[0][0], kv[0][0]}, {.causal = true});
  ExpectSameAttention({q.unsqueeze(0), kv.unsqueeze(0), kv.unsqueeze(0)}, {});
  // Broadcast operands, values of another width, and empty operands.
  ExpectSameAttention({q, kv.slice(0, 0, 1), kv}, {});
  ExpectSameAttention({q, kv.slice(1, 0, 1), kv}, {});
  ExpectSameAttention({q[0], kv, kv}, {});
  ExpectSameAttention({q[0][0], kv[0], kv[0]}, {});
  ExpectSameAttention({q, kv, kv.slice(-1, 0, 5)}, {});
  ExpectSameAttention({q.slice(2, 0, 0), kv, kv}, {});
  ExpectSameAttention({q, kv.slice(2, 0, 0), kv.slice(2, 0, 0)}, {});
  ExpectSameAttention({q.slice(0, 0, 0), kv.slice(0, 0, 0), kv.slice(0, 0, 0)},
                      {});
  EXPECT_EQ(GetStatistics().synchronous_calls, 0u);
}

TEST_F(AttentionProgramsTest, OneProjectionForAllThree) {
  ExpectSame([](torch::Device device) {
    const Tensor x = torch::randn({2, 6, 24}).to(device).requires_grad_();
    const Tensor weight = torch::randn({72, 24}).to(device).requires_grad_();
    const std::vector<Tensor> chunks = torch::linear(x, weight).chunk(3, -1);
    const auto heads = [](const Tensor& chunk) {
      return chunk.view({2, 6, 3, 8}).transpose(1, 2);
    };
    const Tensor result = torch::scaled_dot_product_attention(
        heads(chunks[0]), heads(chunks[1]), heads(chunks[2]), {}, 0, true);
    const Tensor merged = result.transpose(1, 2).reshape({2, 6, 24});
    merged.square().sum().backward();
    return std::vector<Tensor>{result.detach(), merged.detach(), x.grad(),
                               weight.grad()};
  });
}

TEST_F(AttentionProgramsTest, PlainFormulaWhereTheProgramAsksForIt) {
  struct Restore {
    ~Restore() { at::globalContext().setSDPUseFlash(true); }
  } restore;
  const Tensor q = Heads(4, 6), kv = Heads(4, 9);
  ExpectSameAttention({q, kv, kv}, {});
  at::globalContext().setSDPUseFlash(false);
  ExpectSameAttention({q, kv, kv}, {});
  ExpectSameAttention({q, kv, kv, torch::randn({6, 9}) > 0}, {});
  // The fused kernel has no second-order gradient.
  ExpectSame([&](torch::Device device) {
    const Tensor x = q.contiguous().to(device).requires_grad_();
    const Tensor y = kv.contiguous().to(device).requires_grad_();
    const Tensor first =
        torch::autograd::grad({Attend({x, y, y}, {}).square().sum()}, {x}, {},
                              /*retain_graph=*/true, /*create_graph=*/true)[0];
    const std::vector<Tensor> second =
        torch::autograd::grad({first.square().sum()}, {x, y});
    return std::vector<Tensor>{first.detach(), second[0], second[1]};
  });
}

TEST_F(AttentionProgramsTest, MistakesAreTheCpus) {
  const Tensor q = Heads(4, 6);
  const auto message = [](const std::function<void()>& call) -> std::string {
    try {
      call();
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "";
  };
  const std::vector<std::pair<Operands, Options>> mistakes = {
      {{q, q, q.to(torch::kDouble)}, {}},
      {{q, q.slice(-1, 0, 6), q}, {}},
      {{q, Heads(3, 6), Heads(3, 6)}, {.grouped = true}},
      {{q, q, q, torch::zeros({6, 6}, torch::kLong)}, {}},
      {{q.transpose(-1, -2), q.transpose(-1, -2), q, torch::randn({6, 6})},
       {.causal = true}},
      {{q, torch::randn({8}), q}, {}},
      {{q, q, q, torch::randn({6})}, {}},
      {{q, q, q}, {.dropout = 1.5}}};
  for (size_t i = 0; i < mistakes.size(); ++i) {
    SCOPED_TRACE(i);
    const auto& [operands, options] = mistakes[i];
    const std::string local = message([&] { Attend(operands, options); });
    Operands there = {There(operands.query, Device(0)),
                      There(operands.key, Device(0)),
                      There(operands.value, Device(0)), std::nullopt};
    if (operands.mask.has_value()) {
      there.mask = There(*operands.mask, Device(0));
    }
    EXPECT_NE(local, "");
    EXPECT_EQ(message([&] { Attend(there, options); }), local);
    there.query.requires_grad_();
    EXPECT_EQ(message([&] { Attend(there, options); }), local);
  }
  // The CPU would divide by zero, and read outside the values.
  const Tensor there = q.to(Device(0));
  const Tensor none = torch::randn({2, 0, 6, 8}).to(Device(0));
  EXPECT_THROW(Attend({there, none, none}, {.grouped = true}), c10::Error);
  EXPECT_THROW(Attend({there, there, there.slice(2, 0, 3)}, {}), c10::Error);
}

}  // namespace
}  // namespace djinn
