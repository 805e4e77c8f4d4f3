#include "client_lib/examples/sentence_similarity/model_config.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::examples {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::string_view kBert = R"({
  "model_type": "bert", "hidden_act": "gelu", "vocab_size": 100,
  "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3,
  "intermediate_size": 48, "max_position_embeddings": 64,
  "type_vocab_size": 2, "layer_norm_eps": 1e-12, "use_cache": true})";

TEST(ParseBertConfigTest, ReadsTheSizes) {
  auto config = ParseBertConfig(kBert);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->vocabulary_size, 100);
  EXPECT_EQ(config->hidden_size, 12);
  EXPECT_EQ(config->layers, 2);
  EXPECT_EQ(config->attention_heads, 3);
  EXPECT_EQ(config->intermediate_size, 48);
  EXPECT_EQ(config->max_positions, 64);
  EXPECT_EQ(config->token_types, 2);
  EXPECT_EQ(config->layer_norm_epsilon, 1e-12);
}

struct Change {
  std::string from, to, complaint;
};

TEST(ParseBertConfigTest, RefusesWithTheField) {
  const Change changes[] = {
      {"\"bert\"", "\"t5\"", "\"model_type\" is \"t5\", only \"bert\""},
      {"\"gelu\"", "\"relu\"", "\"hidden_act\" is \"relu\""},
      {"\"vocab_size\": 100,", "", "\"vocab_size\" is missing"},
      {"100", "0", "\"vocab_size\" is not a whole number from 1"},
      {"100", "-5", "\"vocab_size\" is not a whole number"},
      {"100", "1e2", "\"vocab_size\" is not a whole number"},
      {"100", "\"100\"", "\"vocab_size\" is not a whole number"},
      {"100", "18446744073709551615", "\"vocab_size\" is not a whole number"},
      {"layers\": 2", "layers\": 1000000000", "from 1 to 1000"},
      {"heads\": 3", "heads\": 5", "12 cannot be shared out"},
      {"1e-12", "0", "\"layer_norm_eps\" is not a number between"},
      {"1e-12", "[]", "\"layer_norm_eps\" is not a number between"},
      {"\"use_cache\": true", "\"position_embedding_type\": \"relative_key\"",
       "only \"absolute\" is supported"},
      {"}", "", "not valid JSON"},
  };
  for (const Change& change : changes) {
    SCOPED_TRACE(change.complaint);
    const std::string text =
        absl::StrReplaceAll(kBert, {{change.from, change.to}});
    ASSERT_NE(text, kBert);
    const absl::Status status = ParseBertConfig(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(change.complaint));
  }
}

// A folder with the files of a small model.
class ReadSentenceModelConfigTest : public testing::Test {
 protected:
  ReadSentenceModelConfigTest()
      : folder_(testing::TempDir() + "/model_config") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_ + "/1_Pooling");
    Write("config.json", kBert);
    Write("sentence_bert_config.json", R"({"max_seq_length": 32})");
    Write("tokenizer_config.json", R"({"do_lower_case": true})");
    Write("1_Pooling/config.json",
          R"({"pooling_mode_mean_tokens": true,
              "pooling_mode_cls_token": false,
              "pooling_mode_max_tokens": false,
              "pooling_mode_mean_sqrt_len_tokens": false})");
  }

  void Write(const std::string& name, absl::string_view contents) {
    std::ofstream(folder_ + "/" + name) << contents;
  }

  std::string Complaint() {
    const absl::Status status = ReadSentenceModelConfig(folder_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }

  const std::string folder_;
};

TEST_F(ReadSentenceModelConfigTest, ReadsAllFiles) {
  auto config = ReadSentenceModelConfig(folder_);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->bert.hidden_size, 12);
  EXPECT_EQ(config->max_tokens, 32);
}

TEST_F(ReadSentenceModelConfigTest, MissingFileIsNotFoundAndNamed) {
  for (const char* name : {"1_Pooling/config.json", "tokenizer_config.json",
                           "sentence_bert_config.json", "config.json"}) {
    SCOPED_TRACE(name);
    std::filesystem::remove(folder_ + "/" + name);
    const absl::Status status = ReadSentenceModelConfig(folder_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(status.message()), HasSubstr(name));
  }
}

TEST_F(ReadSentenceModelConfigTest, CasedTokenizerIsRefused) {
  Write("tokenizer_config.json", R"({"do_lower_case": false})");
  EXPECT_THAT(Complaint(),
              AllOf(HasSubstr("tokenizer_config.json"),
                    HasSubstr("\"do_lower_case\" is false, only true")));
}

TEST_F(ReadSentenceModelConfigTest, OtherPoolingIsRefused) {
  Write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens": false})");
  EXPECT_THAT(Complaint(), AllOf(HasSubstr("1_Pooling/config.json"),
                                 HasSubstr("pooling_mode_mean_tokens")));
}

TEST_F(ReadSentenceModelConfigTest, MoreTokensThanPositionsIsRefused) {
  Write("sentence_bert_config.json", R"({"max_seq_length": 65})");
  EXPECT_THAT(Complaint(), HasSubstr("\"max_seq_length\" is not a whole "
                                     "number from 1 to 64"));
}

}  // namespace
}  // namespace djinn::examples
