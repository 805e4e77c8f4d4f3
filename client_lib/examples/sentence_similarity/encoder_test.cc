#include "client_lib/examples/sentence_similarity/encoder.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/tensor.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

// From text to numbers, with the real weights.
namespace djinn::examples {
namespace {

using ::testing::HasSubstr;

// Bazel puts the files a test depends on below this folder.
std::string Runfile(absl::string_view path) {
  return absl::StrCat(std::getenv("TEST_SRCDIR"), "/", path);
}

std::string ModelFolder() { return Runfile("minilm/model"); }

// Returns a list of cases that make_golden.py computed without PyTorch.
const nlohmann::json& Golden(const char* list) {
  static const nlohmann::json& golden = *[] {
    std::ifstream file(Runfile(
        "djinn/client_lib/examples/sentence_similarity/testdata/golden.json"));
    return new nlohmann::json(nlohmann::json::parse(file));
  }();
  const nlohmann::json& cases = golden.at(list);
  TORCH_CHECK(!cases.empty());
  return cases;
}

// One service for all tests: loading takes most of their time.
const Encoder& TheEncoder() {
  static const Encoder& service = *[] {
    auto loaded = Encoder::Load({.model_folder = ModelFolder()});
    TORCH_CHECK(loaded.ok(), loaded.status().ToString());
    return loaded->release();
  }();
  return service;
}

at::Tensor Encode(const std::vector<std::string>& sentences) {
  auto embeddings = TheEncoder().Encode(sentences);
  TORCH_CHECK(embeddings.ok(), embeddings.status().ToString());
  return *embeddings;
}

float LargestDifference(const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(a.sizes() == b.sizes());
  return (a - b).abs().max().item<float>();
}

TEST(WordPieceGoldenTest, TokensAreThoseOfTheReference) {
  std::ifstream file(ModelFolder() + "/vocab.txt");
  const std::string vocabulary{std::istreambuf_iterator<char>(file), {}};
  auto tokenizer = WordPieceTokenizer::FromVocabulary(vocabulary);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  for (const auto& item : Golden("tokens")) {
    const std::string text = item["text"];
    EXPECT_EQ(tokenizer->Encode(text, item["max_tokens"]),
              item["ids"].get<std::vector<int64_t>>())
        << text;
  }
}

TEST(EncoderTest, EmbeddingsAreThoseOfTheReference) {
  for (const auto& item : Golden("embeddings")) {
    const std::string text = item["text"];
    const at::Tensor expected =
        at::tensor(item["embedding"].get<std::vector<float>>()).unsqueeze(0);
    EXPECT_LE(LargestDifference(Encode({text}), expected), 1e-5) << text;
  }
}

TEST(EncoderTest, BatchWithPaddingGivesTheSame) {
  std::vector<std::string> texts;
  std::vector<float> values;
  for (const auto& item : Golden("embeddings")) {
    texts.push_back(item["text"]);
    for (const float value : item["embedding"]) values.push_back(value);
  }
  const at::Tensor expected =
      at::tensor(values).reshape({static_cast<int64_t>(texts.size()), -1});
  EXPECT_LE(LargestDifference(Encode(texts), expected), 1e-5);
}

TEST(EncoderTest, SimilaritiesAreThosePublishedWithTheModel) {
  // The sentences and scores are from the documentation of
  // sentence-transformers, "Semantic Textual Similarity", which prints four
  // digits.
  const at::Tensor left =
      Encode({"The new movie is awesome", "The cat sits outside",
              "A man is playing guitar"});
  const at::Tensor right =
      Encode({"The dog plays in the garden", "The new movie is so great",
              "A woman watches TV"});
  const at::Tensor published = at::tensor({0.0543f, 0.8939f, -0.0502f,  //
                                           0.2838f, -0.0029f, 0.1310f,  //
                                           0.2277f, -0.0136f, -0.0327f})
                                   .reshape({3, 3});
  EXPECT_LE(LargestDifference(at::matmul(left, right.t()), published), 6e-5);
}

TEST(EncoderTest, ManyBatchesKeepTheOrder) {
  auto small_batches =
      Encoder::Load({.model_folder = ModelFolder(), .max_batch_sentences = 2});
  ASSERT_TRUE(small_batches.ok()) << small_batches.status();
  const std::vector<std::string> sentences = {
      "a rather long sentence comes before the shorter ones", "short", "",
      "of middle length, this one", "another"};
  auto embeddings = (*small_batches)->Encode(sentences);
  ASSERT_TRUE(embeddings.ok()) << embeddings.status();
  for (size_t i = 0; i < sentences.size(); ++i) {
    EXPECT_LE(LargestDifference(embeddings->slice(0, i, i + 1),
                                Encode({sentences[i]})),
              1e-5)
        << sentences[i];
  }
}

TEST(EncoderTest, NoSentencesGiveNoRows) {
  EXPECT_EQ(Encode({}).sizes(), at::IntArrayRef({0, TheEncoder().width()}));
}

TEST(EncoderTest, SeveralThreadsMayEncode) {
  const at::Tensor expected = Encode({"the same sentence"});
  std::vector<std::thread> threads;
  std::vector<at::Tensor> results(3);
  for (at::Tensor& result : results) {
    threads.emplace_back([&result] { result = Encode({"the same sentence"}); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const at::Tensor& result : results) {
    EXPECT_LE(LargestDifference(result, expected), 1e-6);
  }
}

TEST(EncoderTest, MissingFolderIsNotFound) {
  auto service = Encoder::Load({.model_folder = "/nowhere"});
  EXPECT_EQ(service.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(service.status().message()),
              HasSubstr("/nowhere/config.json"));
}

TEST(EncoderTest, LimitsOutOfRangeAreRefused) {
  for (const size_t max_tokens : {1, 513}) {
    auto service = Encoder::Load(
        {.model_folder = ModelFolder(), .max_tokens = max_tokens});
    EXPECT_THAT(std::string(service.status().message()),
                HasSubstr("the model takes 2 to 512"));
  }
  auto service =
      Encoder::Load({.model_folder = ModelFolder(), .max_batch_sentences = 0});
  EXPECT_EQ(service.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(EncoderTest, WeightsOfAnotherModelAreRefused) {
  // The same model, said to have a layer more.
  const std::string folder = testing::TempDir() + "/seven_layers";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  for (const auto& entry : std::filesystem::directory_iterator(ModelFolder())) {
    std::filesystem::create_symlink(
        entry.path(), folder + "/" + entry.path().filename().string());
  }
  nlohmann::json config =
      nlohmann::json::parse(std::ifstream(folder + "/config.json"));
  config["num_hidden_layers"] = 7;
  std::filesystem::remove(folder + "/config.json");
  std::ofstream(folder + "/config.json") << config;

  auto service = Encoder::Load({.model_folder = folder});
  EXPECT_EQ(service.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(service.status().message()),
              HasSubstr("model.safetensors lacks encoder.layer.6."));
}

TEST(EncoderTest, DeviceThatIsNotThereIsUnavailable) {
  auto service =
      Encoder::Load({.model_folder = ModelFolder(), .device = at::kCUDA});
  EXPECT_EQ(service.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(service.status().message()),
              HasSubstr("could not be set up on cuda"));
}

}  // namespace
}  // namespace djinn::examples
