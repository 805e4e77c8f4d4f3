#include "client_lib/examples/sentence_similarity/model_config.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client_lib/examples/sentence_similarity/json_text.h"
#include "client_lib/examples/sentence_similarity/mapped_file.h"

namespace djinn::examples {
namespace {

using nlohmann::json;

// Takes fields out of one JSON object and remembers the first that is wrong, so
// that a caller reads them all and asks once.
class FieldReader {
 public:
  explicit FieldReader(const json& object) : object_(object) {}

  // An integer from 1 to `largest`.
  int64_t Size(const char* name, int64_t largest) {
    const json* value = Find(name);
    if (value == nullptr) return 0;
    if (!value->is_number_integer() || *value < 1 || *value > largest) {
      Fail(name, absl::StrCat("is not a whole number from 1 to ", largest));
      return 0;
    }
    return value->get<int64_t>();
  }

  // A number greater than 0 and less than 1.
  double Fraction(const char* name) {
    const json* value = Find(name);
    if (value == nullptr) return 0;
    if (!value->is_number() || *value <= 0.0 || *value >= 1.0) {
      Fail(name, "is not a number between 0 and 1");
      return 0;
    }
    return value->get<double>();
  }

  // The field must have this value; nothing else is implemented.
  template <typename T>
  void Require(const char* name, const T& only_value) {
    const json* value = Find(name);
    if (value != nullptr && *value != only_value) {
      Fail(name, absl::StrCat("is ", Shown(*value), ", only ",
                              Shown(json(only_value)), " is supported"));
    }
  }

  // The same, where a missing field means that value.
  template <typename T>
  void RequireIfPresent(const char* name, const T& only_value) {
    if (object_.contains(name)) Require(name, only_value);
  }

  const absl::Status& status() const { return status_; }

 private:
  const json* Find(const char* name) {
    const auto found = object_.find(name);
    if (found != object_.end()) return &*found;
    Fail(name, "is missing");
    return nullptr;
  }

  void Fail(const char* name, absl::string_view reason) {
    status_.Update(
        absl::InvalidArgumentError(absl::StrCat("\"", name, "\" ", reason)));
  }

  static std::string Shown(const json& value) {
    return value.dump().substr(0, 80);
  }

  const json& object_;
  absl::Status status_;
};

absl::Status InFile(const absl::Status& status, absl::string_view path) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(path, ": ", status.message()));
}

absl::StatusOr<MappedFile> OpenText(const std::string& path,
                                    absl::string_view& text) {
  absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  if (file.ok()) {
    text =
        absl::string_view(reinterpret_cast<const char*>(file->bytes().data()),
                          file->bytes().size());
  }
  return file;
}

// Gives `read` the fields of the JSON object in the file.
template <typename Read>
absl::Status ReadFields(const std::string& path, const Read& read) {
  absl::string_view text;
  absl::StatusOr<MappedFile> file = OpenText(path, text);
  if (!file.ok()) return file.status();
  absl::StatusOr<json> object = ParseJsonObject(text);
  if (!object.ok()) return InFile(object.status(), path);
  FieldReader fields(*object);
  read(fields);
  return InFile(fields.status(), path);
}

}  // namespace

absl::StatusOr<BertConfig> ParseBertConfig(absl::string_view text) {
  absl::StatusOr<json> object = ParseJsonObject(text);
  if (!object.ok()) return object.status();

  FieldReader fields(*object);
  fields.Require("model_type", "bert");
  fields.Require("hidden_act", "gelu");
  fields.RequireIfPresent("position_embedding_type", "absolute");
  BertConfig config;
  config.vocabulary_size = fields.Size("vocab_size", 10'000'000);
  config.hidden_size = fields.Size("hidden_size", 65'536);
  config.layers = fields.Size("num_hidden_layers", 1'000);
  config.attention_heads = fields.Size("num_attention_heads", 65'536);
  config.intermediate_size = fields.Size("intermediate_size", 1'000'000);
  config.max_positions = fields.Size("max_position_embeddings", 1'000'000);
  config.token_types = fields.Size("type_vocab_size", 1'000);
  config.layer_norm_epsilon = fields.Fraction("layer_norm_eps");
  if (!fields.status().ok()) return fields.status();

  if (config.hidden_size % config.attention_heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"hidden_size\" ", config.hidden_size,
                     " cannot be shared out to \"num_attention_heads\" ",
                     config.attention_heads));
  }
  return config;
}

absl::StatusOr<SentenceModelConfig> ReadSentenceModelConfig(
    const std::string& folder) {
  SentenceModelConfig config;

  const std::string bert_path = absl::StrCat(folder, "/config.json");
  absl::string_view bert_text;
  absl::StatusOr<MappedFile> bert_file = OpenText(bert_path, bert_text);
  if (!bert_file.ok()) return bert_file.status();
  absl::StatusOr<BertConfig> bert = ParseBertConfig(bert_text);
  if (!bert.ok()) return InFile(bert.status(), bert_path);
  config.bert = *bert;

  absl::Status status = ReadFields(
      absl::StrCat(folder, "/sentence_bert_config.json"),
      [&](FieldReader& fields) {
        config.max_tokens = fields.Size("max_seq_length", bert->max_positions);
      });
  status.Update(ReadFields(
      absl::StrCat(folder, "/tokenizer_config.json"), [](FieldReader& fields) {
        fields.Require("do_lower_case", true);
        fields.RequireIfPresent("strip_accents", nullptr);
        fields.RequireIfPresent("tokenize_chinese_chars", true);
      }));
  status.Update(ReadFields(
      absl::StrCat(folder, "/1_Pooling/config.json"), [](FieldReader& fields) {
        fields.Require("pooling_mode_mean_tokens", true);
        fields.Require("pooling_mode_cls_token", false);
        fields.Require("pooling_mode_max_tokens", false);
        fields.Require("pooling_mode_mean_sqrt_len_tokens", false);
      }));
  if (!status.ok()) return status;
  return config;
}

}  // namespace djinn::examples
