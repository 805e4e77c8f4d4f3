#include "client_lib/examples/sentence_similarity/load_weights.h"

#include <cstring>
#include <fstream>
#include <string>

#include "ATen/ops/arange.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::examples {
namespace {

using ::testing::HasSubstr;

// Two parameters and a buffer, one level down.
class Inner : public torch::nn::Module {
 public:
  Inner() {
    weight = register_parameter("weight", at::zeros({2, 2}));
    bias = register_parameter("bias", at::zeros({2}));
    ids = register_buffer("ids", at::zeros({1}, at::kLong));
  }
  at::Tensor weight, bias, ids;
};

class Outer : public torch::nn::Module {
 public:
  Outer() { inner = register_module("inner", std::make_shared<Inner>()); }
  std::shared_ptr<Inner> inner;
};

constexpr absl::string_view kWeight =
    R"("inner.weight": {"dtype": "F32", "shape": [2, 2],
                        "data_offsets": [0, 16]})";
constexpr absl::string_view kBias =
    R"("inner.bias": {"dtype": "F32", "shape": [2], "data_offsets": [16, 24]})";
constexpr absl::string_view kIds =
    R"("inner.ids": {"dtype": "I64", "shape": [1], "data_offsets": [24, 32]})";

// A file with these tensors; its floats count 1, 2, 3, ... and ids holds 7.
absl::StatusOr<SafetensorsFile> FileOf(
    std::initializer_list<absl::string_view> entries, size_t data_bytes = 32) {
  const std::string header =
      absl::StrCat("{", absl::StrJoin(entries, ","), "}");
  const uint64_t header_bytes = header.size();
  std::string data(data_bytes, '\0');
  for (int i = 0; i < 6; ++i) {
    const float value = i + 1;
    std::memcpy(&data[4 * i], &value, 4);
  }
  if (data_bytes >= 32) data[24] = 7;
  const std::string path = testing::TempDir() + "/weights.safetensors";
  std::ofstream stream(path, std::ios::binary);
  stream.write(reinterpret_cast<const char*>(&header_bytes), 8);
  stream << header << data;
  stream.close();
  return SafetensorsFile::Open(path);
}

TEST(LoadWeightsTest, FillsParametersAndBuffersByName) {
  auto file = FileOf({kWeight, kBias, kIds});
  ASSERT_TRUE(file.ok()) << file.status();
  Outer module;
  ASSERT_TRUE(LoadWeights(*file, module).ok());
  EXPECT_TRUE(
      module.inner->weight.equal(at::arange(1, 5, at::kFloat).reshape({2, 2})));
  EXPECT_TRUE(module.inner->bias.equal(at::arange(5, 7, at::kFloat)));
  EXPECT_EQ(module.inner->ids.item<int64_t>(), 7);
}

std::string Complaint(const absl::StatusOr<SafetensorsFile>& file) {
  EXPECT_TRUE(file.ok()) << file.status();
  Outer module;
  const absl::Status status = LoadWeights(*file, module);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(module.inner->weight.abs().sum().item<float>(), 0)
      << "a refused file must leave the module as it was";
  return std::string(status.message());
}

TEST(LoadWeightsTest, NamesWhatTheFileLacks) {
  EXPECT_THAT(Complaint(FileOf({kWeight, kBias}, 24)),
              HasSubstr("lacks 1 tensor(s) of the model: inner.ids"));
}

TEST(LoadWeightsTest, NamesWhatTheModelDoesNotKnow) {
  EXPECT_THAT(Complaint(FileOf({kWeight, kBias, kIds,
                                R"("inner.extra": {"dtype": "U8", "shape": [1],
                                           "data_offsets": [32, 33]})"},
                               33)),
              HasSubstr("does not know 1 tensor(s) of the file: inner.extra"));
}

TEST(LoadWeightsTest, NamesAWrongShape) {
  EXPECT_THAT(
      Complaint(FileOf({R"("inner.weight": {"dtype": "F32", "shape": [4],
                                            "data_offsets": [0, 16]})",
                        kBias, kIds})),
      HasSubstr("\"inner.weight\" is Float[4] in the file, the model needs "
                "Float[2, 2]"));
}

TEST(LoadWeightsTest, NamesAWrongElementType) {
  EXPECT_THAT(Complaint(FileOf({kWeight,
                                R"("inner.bias": {"dtype": "I32", "shape": [2],
                                          "data_offsets": [16, 24]})",
                                kIds})),
              HasSubstr("\"inner.bias\" is Int[2] in the file, the model needs "
                        "Float[2]"));
}

}  // namespace
}  // namespace djinn::examples
