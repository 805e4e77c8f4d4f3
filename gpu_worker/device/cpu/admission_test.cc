// Tests that Compile() refuses what it must.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/List.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/zeros.h"
#include "common/base/error.h"
#include "gpu_worker/device/cpu/program_tester.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using Ints = std::vector<int64_t>;
using c10::IValue;

class AdmissionTest : public testing::Test {
 protected:
  absl::Status Compile(const EncodedCall& call) {
    return tester_.library()->Compile(call.graph).status();
  }

  // Encodes a call of an operator that may not exist, without arguments.
  static EncodedCall Bare(const std::string& name,
                          const std::string& overload) {
    EncodedCall call;
    call.graph.operators.push_back({name, overload, 0});
    call.graph.nodes.emplace_back();
    return call;
  }

  EncodedCall Add() {
    return tester_.Encode("aten::add", "Tensor",
                          {at::randn({3}), at::randn({3}), 0.5},
                          {at::randn({3})});
  }

  void ExpectMalformed(const EncodedCall& call, const std::string& text) {
    const absl::Status status = Compile(call);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(ErrorReason(status), "MALFORMED_GRAPH");
    EXPECT_NE(status.message().find(text), absl::string_view::npos) << status;
    EXPECT_NE(status.message().find("node 0 (aten::"), absl::string_view::npos)
        << status;
  }

  ProgramTester tester_;
};

TEST_F(AdmissionTest, OperatorsAreRefusedByName) {
  const absl::Status unknown = Compile(Bare("aten::flibbertigibbet", "x"));
  EXPECT_EQ(unknown.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ErrorReason(unknown), "OPERATOR_UNKNOWN");
  EXPECT_EQ(ErrorMetadataValue(unknown, "operator"), "aten::flibbertigibbet.x");
  const std::pair<const char*, const char*> kRefused[] = {
      {"aten::from_file", ""},
      {"aten::set_", "source_Storage"},
      {"aten::resize_", ""},
      {"aten::_local_scalar_dense", ""},
      {"aten::_reshape_alias", ""}};
  for (const auto& [name, overload] : kRefused) {
    const absl::Status refused = Compile(Bare(name, overload));
    EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied) << name;
    EXPECT_EQ(ErrorReason(refused), "OPERATOR_REFUSED") << name;
  }
  EncodedCall call = Add();
  ++call.graph.operators[0].schema_hash;
  const absl::Status differs = Compile(call);
  EXPECT_EQ(differs.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ErrorReason(differs), "SCHEMA_MISMATCH");
  EXPECT_EQ(ErrorMetadataValue(differs, "operator"), "aten::add.Tensor");
}

TEST_F(AdmissionTest, ArgumentsFitTheSchema) {
  EXPECT_TRUE(Compile(Add()).ok());
  EncodedCall call = Add();
  call.node().arguments.pop_back();
  ExpectMalformed(call, "2 arguments, the schema has 3");
  call = Add();
  call.node().arguments.push_back(int64_t{1});
  ExpectMalformed(call, "4 arguments");
  call = Add();
  call.node().arguments[1] = int64_t{1};
  ExpectMalformed(call, "argument other (Tensor): given an integer");
  call = Add();
  call.node().arguments[2] = std::string("x");
  ExpectMalformed(call, "argument alpha");
  call = Add();
  std::get<srg::TensorView>(call.node().arguments[0]).conjugate = true;
  ExpectMalformed(call, "conjugation of real elements");
}

TEST_F(AdmissionTest, EnumeratorsAreKnown) {
  const auto softmax = [&](int64_t type) {
    EncodedCall call = tester_.Encode("aten::softmax", "int",
                                      {at::randn({3}), 0, 6}, {at::randn({3})});
    call.node().arguments[2] = type;
    return Compile(call);
  };
  EXPECT_TRUE(softmax(7).ok());
  for (const int64_t type : {-1, 12, 46, 1000}) {
    EXPECT_EQ(ErrorReason(softmax(type)), "MALFORMED_GRAPH") << type;
  }
}

TEST_F(AdmissionTest, ListsThatKernelsIndexUncheckedHaveTheirLength) {
  EncodedCall call = tester_.Encode(
      "aten::reflection_pad3d", "",
      {at::randn({1, 2, 3, 4}), Ints{1, 1, 1, 1, 1, 1}}, {at::randn({1})});
  EXPECT_TRUE(Compile(call).ok());
  call.node().arguments[1] = Ints{1, 1, 1};
  ExpectMalformed(call, "3 entries, must be 6");
}

// Checks that integers are limited, because PyTorch's kernels compute with them
// before they check them. Programs do ask for ten terabytes, so the call fails
// and not the graph.
TEST_F(AdmissionTest, IntegersAreOfASizeThatTensorsHave) {
  const at::Tensor a = at::randn({3, 4});
  EncodedCall call = tester_.Encode("aten::triu", "", {a, 1}, {a});
  EXPECT_TRUE(Compile(call).ok());
  for (const int64_t diagonal : {INT64_MAX, INT64_MIN, int64_t{1} << 41}) {
    call.node().arguments[1] = diagonal;
    const absl::Status status = tester_.Run(call).status;
    EXPECT_EQ(ErrorReason(status), "OPERATOR_FAILED");
    EXPECT_NE(status.message().find("argument diagonal"), std::string::npos);
    EXPECT_NE(status.message().find("out of range"), std::string::npos);
  }
  // INT64_MAX means "to the end" here.
  EXPECT_TRUE(Compile(tester_.Encode("aten::slice_copy", "Tensor",
                                     {a, 0, 1, INT64_MAX}, {a}))
                  .ok());
}

TEST_F(AdmissionTest, StatisticsOfANormalisationFitItsInput) {
  const at::Tensor input = at::randn({2, 6, 5});
  const auto encode = [&](int64_t channels) {
    return tester_.Encode("aten::native_batch_norm", "",
                          {input, at::ones({channels}), at::zeros({6}),
                           IValue(), IValue(), true, 0.1, 1e-5},
                          {input, input, input});
  };
  EXPECT_TRUE(Compile(encode(6)).ok());
  ExpectMalformed(encode(5),
                  "argument weight is float32[5], the input has 6 channels");
}

TEST_F(AdmissionTest, GradientsOfAPoolingFitItsInput) {
  const auto encode = [&](at::IntArrayRef grad, at::IntArrayRef input) {
    return tester_.Encode("aten::_adaptive_avg_pool2d_backward", "",
                          {at::ones(grad), at::ones(input)}, {at::ones(input)});
  };
  EXPECT_TRUE(Compile(encode({1, 2, 2, 2}, {1, 2, 3, 3})).ok());
  for (const auto& grad : std::vector<std::vector<int64_t>>{
           {1, 1, 2, 2}, {2, 2, 2, 2}, {2, 2, 2}, {2, 2}}) {
    ExpectMalformed(encode(grad, {1, 2, 3, 3}),
                    "argument self float32[1,2,3,3]");
  }
  ExpectMalformed(encode({2, 2}, {3, 3}), "argument self is float32[3,3]");
}

// Checks what the CPU's own composite does not: keys and values have equally
// many rows.
TEST_F(AdmissionTest, OperandsOfAttentionFitEachOther) {
  const at::Tensor query = at::randn({2, 4, 5, 8}),
                   key = at::randn({2, 2, 7, 8});
  const at::Tensor sums = at::zeros({2, 5, 4}).transpose(1, 2);
  const auto whole = [&](const at::Tensor& k, const at::Tensor& v) {
    return tester_.Encode("aten::scaled_dot_product_attention", "",
                          {query, k, v, IValue(), 0.0, false, IValue(), true},
                          {query});
  };
  const auto forward = [&](const at::Tensor& q, const at::Tensor& k,
                           const at::Tensor& v) {
    return tester_.Encode("aten::_scaled_dot_product_flash_attention_for_cpu",
                          "", {q, k, v, 0.0, false, IValue(), IValue()},
                          {q, sums});
  };
  const auto backward = [&](const at::Tensor& gradient, const at::Tensor& out,
                            const at::Tensor& normalizer) {
    return tester_.Encode(
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward", "",
        {gradient, query, key, key, out, normalizer, 0.0, false, IValue(),
         IValue()},
        {query, key, key});
  };
  EXPECT_TRUE(Compile(whole(key, key)).ok());
  ExpectMalformed(whole(key, key.slice(2, 0, 3)), "argument value");
  const at::Tensor none = at::zeros({2, 0, 7, 8});
  ExpectMalformed(whole(none, none), "without any key");

  EXPECT_TRUE(Compile(forward(query, key, key)).ok());
  ExpectMalformed(forward(query, key, key.slice(2, 0, 3)), "argument value");
  const at::Tensor one = key.slice(0, 0, 1), three = at::randn({2, 3, 7, 8});
  ExpectMalformed(forward(query, one, one), "argument query");
  ExpectMalformed(forward(query, three, three), "argument query");
  ExpectMalformed(forward(query, none, none), "argument query");
  ExpectMalformed(forward(query[0], key, key), "not heads");
  ExpectMalformed(
      forward(at::randn({2, 4, 5, 1}).expand({2, 4, 5, 8}), key, key),
      "rows of argument query");

  // The kernel would write dense rows into a result without dense rows.
  const at::Tensor mixed =
      at::randn({200}).as_strided({2, 4, 5, 8}, {40, 1, 8, 1});
  ExpectMalformed(forward(mixed, key, key), "argument query");
  ExpectMalformed(
      forward(at::randn({200}).as_strided({2, 4, 5, 8}, {1, 40, 8, 1}), key,
              key),
      "argument query");
  ExpectMalformed(
      tester_.Encode("aten::scaled_dot_product_attention", "",
                     {mixed, key, key, IValue(), 0.0, false, IValue(), true},
                     {query}),
      "argument query");
  const at::Tensor one_head = mixed.slice(1, 0, 1),
                   one_key = key.slice(1, 0, 1);
  EXPECT_TRUE(Compile(forward(one_head, one_key, one_key)).ok());

  EXPECT_TRUE(Compile(backward(query, query, sums)).ok());
  ExpectMalformed(backward(query.slice(2, 0, 4), query, sums),
                  "argument grad_out");
  ExpectMalformed(backward(query, query.slice(2, 0, 4), sums), "argument out");
  ExpectMalformed(backward(query, query, sums.slice(1, 0, 3)),
                  "argument logsumexp");
}

TEST_F(AdmissionTest, UndefinedTensorsOnlyWhereTheSchemaSaysSo) {
  EncodedCall call = Add();
  call.node().arguments[1] = std::monostate();
  ExpectMalformed(call, "argument other (Tensor): given none");
}

TEST_F(AdmissionTest, WritesAreThoseOfTheSchema) {
  const at::Tensor base = at::zeros({8});
  EncodedCall call =
      tester_.Encode("aten::add_", "Tensor", {base, at::ones({8})}, {});
  EXPECT_EQ(call.node().writes, (std::vector<uint32_t>{0}));
  EXPECT_TRUE(Compile(call).ok());
  EncodedCall wrong = call;
  wrong.node().writes = {};
  ExpectMalformed(wrong, "writes [], by the schema [0]");
  wrong.node().writes = {0, 1};
  ExpectMalformed(wrong, "writes [0,1]");
  wrong = call;
  wrong.node().overwrites = {0};
  ExpectMalformed(wrong, "slot 0 is not overwritten");

  // The operator writes a list.
  EncodedCall lists = tester_.Encode(
      "aten::_foreach_add_", "Scalar",
      {c10::List<at::Tensor>({at::ones({2}), at::ones({3})}), 1}, {});
  EXPECT_EQ(lists.node().writes, (std::vector<uint32_t>{0, 1}));
  EXPECT_TRUE(Compile(lists).ok());
}

TEST_F(AdmissionTest, UnmarkedWritesCountAsWrites) {
  const auto encode = [&](bool training) {
    const at::Tensor input = at::randn({2, 6, 5});
    return tester_.Encode("aten::native_batch_norm", "",
                          {input, IValue(), IValue(), at::zeros({6}),
                           at::ones({6}), training, 0.1, 1e-5},
                          {input, input, input});
  };
  EncodedCall call = encode(true);
  EXPECT_EQ(call.node().writes, (std::vector<uint32_t>{1, 2}));
  EXPECT_TRUE(Compile(call).ok());
  call.node().writes = {};
  ExpectMalformed(call, "writes [], by the schema [1,2]");
  call = encode(false);
  EXPECT_TRUE(call.node().writes.empty());
  EXPECT_TRUE(Compile(call).ok());
}

TEST_F(AdmissionTest, OverwritesAreChecked) {
  const at::Tensor base = at::zeros({8});
  EncodedCall whole =
      tester_.Encode("aten::copy_", "", {base, at::ones({8})}, {});
  EXPECT_EQ(whole.node().overwrites, (std::vector<uint32_t>{0}));
  EXPECT_TRUE(Compile(whole).ok());
  // A client may claim fewer overwrites.
  whole.node().overwrites = {};
  EXPECT_TRUE(Compile(whole).ok());
  // A part does not count as overwritten, nor does a storage that is also read.
  EncodedCall part = tester_.Encode(
      "aten::copy_", "", {base.slice(0, 0, 8, 2), at::ones({4})}, {});
  EXPECT_TRUE(part.node().overwrites.empty());
  part.node().overwrites = {0};
  ExpectMalformed(part, "not overwritten");
  EncodedCall itself = tester_.Encode("aten::copy_", "", {base, base}, {});
  EXPECT_TRUE(itself.node().overwrites.empty());
  itself.node().overwrites = {0};
  ExpectMalformed(itself, "not overwritten");
}

TEST_F(AdmissionTest, ResultsAreCounted) {
  EncodedCall call = Add();
  call.node().results.clear();
  ExpectMalformed(call, "0 results, the schema has 1");
  // A list of tensors may have any length, so only the run finds the error.
  const at::Tensor a = at::randn({4});
  EncodedCall split =
      tester_.Encode("aten::split", "Tensor", {a, 2}, {a, a, a});
  EXPECT_TRUE(Compile(split).ok());
  const CallOutcome outcome = tester_.Run(split);
  EXPECT_EQ(ErrorReason(outcome.status), "OPERATOR_FAILED");
  EXPECT_TRUE(outcome.results.empty());
}

TEST_F(AdmissionTest, GeneratorsAreNamed) {
  const at::Tensor a = at::ones({4});
  EncodedCall dropout =
      tester_.Encode("aten::dropout", "", {a, 0.5, true}, {a});
  EXPECT_TRUE(Compile(dropout).ok());
  dropout.node().implicit_generator_slot.reset();
  ExpectMalformed(dropout, "draws from a generator that is not named");
  EncodedCall evaluating =
      tester_.Encode("aten::dropout", "", {a, 0.5, false}, {a});
  EXPECT_TRUE(Compile(evaluating).ok());
  evaluating.node().implicit_generator_slot = 0;
  ExpectMalformed(evaluating, "draws from none");
  EncodedCall normal = tester_.Encode("aten::normal_", "", {a}, {});
  EXPECT_TRUE(Compile(normal).ok());
  normal.node().arguments[3] = std::monostate();
  ExpectMalformed(normal, "a generator must be named");
}

TEST_F(AdmissionTest, WrittenOperandsHaveAStorage) {
  EncodedCall call = tester_.Encode("aten::zero_", "", {at::zeros({})}, {});
  call.node().arguments[0] =
      srg::ScalarTensor{0, srg::DataType::kFloat32, false};
  call.node().writes = {};
  call.node().overwrites = {};
  ExpectMalformed(call, "a scalar tensor would be written");
}

}  // namespace
}  // namespace djinn::worker
