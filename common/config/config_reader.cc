#include "common/config/config_reader.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/btree_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/error.h"
#include "common/io/read_file.h"
#include "common/io/secret_file.h"
#include "yaml-cpp/yaml.h"

namespace djinn {
namespace config_internal {

// The state that the reader and all its maps share.
struct Document {
  std::string name;
  std::string folder;
  std::vector<std::string> errors;
  // Whether nothing of the file could be read. Then its other errors follow
  // from that.
  bool unreadable = false;
  std::shared_ptr<MapNode> root;
  // Not null when keys are listed and nothing is read.
  std::vector<ConfigKey>* keys = nullptr;
  bool present = false;
  // Paths that Has() was asked for while keys are listed.
  std::set<std::string> looked_for;

  void Note(int line, absl::string_view path, absl::string_view what) {
    std::string text = name;
    if (line > 0) absl::StrAppend(&text, ":", line);
    if (!path.empty()) absl::StrAppend(&text, ": ", path);
    errors.push_back(absl::StrCat(text, ": ", what));
  }
};

struct Entry {
  YAML::Node value;
  int line = 0;
  bool asked = false;
  // Made when the program asks for a map or a list of maps.
  std::vector<std::shared_ptr<MapNode>> children;
};

struct MapNode {
  Document* document = nullptr;
  std::string path;
  int line = 0;
  absl::btree_map<std::string, Entry> entries;

  std::string PathOf(absl::string_view key) const {
    return path.empty() ? std::string(key) : absl::StrCat(path, ".", key);
  }
};

namespace {

// yaml-cpp accepts repeated keys and shows the first one; here they are errors.
std::shared_ptr<MapNode> MakeMap(Document* document, std::string path,
                                 const YAML::Node& node, int line) {
  auto map = std::make_shared<MapNode>();
  map->document = document;
  map->path = std::move(path);
  map->line = line;
  if (!node.IsDefined() || node.IsNull()) return map;
  if (!node.IsMap()) {
    document->Note(line, map->path, "expected keys and values");
    return map;
  }
  for (const auto& pair : node) {
    const int key_line = pair.first.Mark().line + 1;
    if (!pair.first.IsScalar()) {
      document->Note(key_line, map->path, "expected a plain key");
      continue;
    }
    Entry entry;
    entry.value = pair.second;
    entry.line = key_line;
    const std::string& key = pair.first.Scalar();
    if (!map->entries.emplace(key, std::move(entry)).second) {
      document->Note(key_line, map->PathOf(key), "key given twice");
    }
  }
  return map;
}

void NoteEager(const MapNode& map) {
  for (const auto& [key, entry] : map.entries) {
    if (!entry.asked) {
      map.document->Note(entry.line, map.PathOf(key), "unknown key");
    }
    for (const auto& child : entry.children) NoteEager(*child);
  }
}

}  // namespace
}  // namespace config_internal

using config_internal::Document;
using config_internal::Entry;
using config_internal::MapNode;

namespace {

constexpr size_t kMaxConfigBytes = size_t{1} << 20;

// Returns the entry under `key` and marks it as asked for. Null when absent or
// empty.
Entry* Ask(MapNode* node, absl::string_view key) {
  const auto found = node->entries.find(std::string(key));
  if (found == node->entries.end()) return nullptr;
  found->second.asked = true;
  return found->second.value.IsNull() ? nullptr : &found->second;
}

}  // namespace

bool ConfigMap::Has(absl::string_view key) const {
  if (node_->document->keys != nullptr) {
    node_->document->looked_for.insert(node_->PathOf(key));
    return node_->document->present;
  }
  return Ask(node_.get(), key) != nullptr;
}

void ConfigMap::Error(absl::string_view key, absl::string_view what) {
  const auto found = node_->entries.find(std::string(key));
  const int line =
      found == node_->entries.end() ? node_->line : found->second.line;
  node_->document->Note(line, node_->PathOf(key), what);
}

bool ConfigMap::Listed(absl::string_view key, absl::string_view type,
                       absl::string_view fallback, bool required) const {
  std::vector<ConfigKey>* const keys = node_->document->keys;
  if (keys == nullptr) return false;
  std::string path = node_->PathOf(key);
  for (const ConfigKey& known : *keys) {
    if (known.path == path) return true;
  }
  const bool conditional =
      node_->document->present && node_->document->looked_for.contains(path);
  keys->push_back({.path = std::move(path),
                   .type = std::string(type),
                   .fallback = std::string(fallback),
                   .required = required,
                   .conditional = conditional});
  return true;
}

const std::string* ConfigMap::Scalar(absl::string_view key,
                                     absl::string_view expected) {
  Entry* const entry = Ask(node_.get(), key);
  if (entry == nullptr) return nullptr;
  if (!entry->value.IsScalar()) {
    Error(key, absl::StrCat("expected ", expected));
    return nullptr;
  }
  return &entry->value.Scalar();
}

std::string ConfigMap::String(absl::string_view key,
                              absl::string_view fallback) {
  if (Listed(key, "text", fallback)) return std::string(fallback);
  const std::string* const text = Scalar(key, "text");
  if (text == nullptr) return std::string(fallback);
  return *text;
}

std::string ConfigMap::RequiredString(absl::string_view key) {
  if (Listed(key, "text", "", /*required=*/true)) return "";
  const size_t errors = node_->document->errors.size();
  std::string text = String(key, "");
  if (text.empty() && node_->document->errors.size() == errors) {
    Error(key, "required, but missing or empty");
  }
  if (absl::c_any_of(text, absl::ascii_iscntrl)) {
    Error(key, "must not have control characters");
  }
  return text;
}

bool ConfigMap::Bool(absl::string_view key, bool fallback) {
  if (Listed(key, "true or false", fallback ? "true" : "false")) {
    return fallback;
  }
  constexpr absl::string_view kExpected = "true or false";
  const std::string* const text = Scalar(key, kExpected);
  if (text == nullptr) return fallback;
  if (*text == "true") return true;
  if (*text == "false") return false;
  Error(key, absl::StrCat("expected ", kExpected, ", got \"", *text, "\""));
  return fallback;
}

uint64_t ConfigMap::UInt(absl::string_view key, uint64_t fallback, uint64_t min,
                         uint64_t max) {
  if (Listed(key, "whole number", absl::StrCat(fallback))) return fallback;
  const std::string* const text = Scalar(key, "a whole number");
  if (text == nullptr) return fallback;
  uint64_t value;
  if (!absl::SimpleAtoi(*text, &value)) {
    Error(key, absl::StrCat("expected a whole number, got \"", *text, "\""));
    return fallback;
  }
  if (value < min || value > max) {
    Error(key, absl::StrCat("expected ", min, " to ", max, ", got ", value));
    return fallback;
  }
  return value;
}

double ConfigMap::Number(absl::string_view key, double fallback, double min,
                         double max) {
  if (Listed(key, "number", absl::StrCat(fallback))) return fallback;
  constexpr absl::string_view kExpected = "a number from 0 on";
  const std::string* const text = Scalar(key, kExpected);
  if (text == nullptr) return fallback;
  double value;
  if (!absl::SimpleAtod(*text, &value) || !std::isfinite(value) || value < 0) {
    Error(key, absl::StrCat("expected ", kExpected, ", got \"", *text, "\""));
    return fallback;
  }
  if (value < min || value > max) {
    Error(key, absl::StrCat("expected ", min, " to ", max, ", got ", *text));
    return fallback;
  }
  return value;
}

absl::Duration ConfigMap::Duration(absl::string_view key,
                                   absl::Duration fallback) {
  if (Listed(key, "duration", absl::FormatDuration(fallback))) return fallback;
  constexpr absl::string_view kExpected = "a duration such as 30s";
  const std::string* const text = Scalar(key, kExpected);
  if (text == nullptr) return fallback;
  absl::Duration value;
  if (!absl::ParseDuration(*text, &value) || value < absl::ZeroDuration() ||
      value == absl::InfiniteDuration()) {
    Error(key, absl::StrCat("expected ", kExpected, ", got \"", *text, "\""));
    return fallback;
  }
  return value;
}

uint64_t ConfigMap::Size(absl::string_view key, uint64_t fallback) {
  if (Listed(key, "size", absl::StrCat(fallback))) return fallback;
  const std::string* const text = Scalar(key, "a size such as 2GiB");
  if (text == nullptr) return fallback;
  const absl::StatusOr<uint64_t> value = ParseSize(*text);
  if (value.ok()) return *value;
  Error(key, value.status().message());
  return fallback;
}

std::string ConfigMap::Path(absl::string_view key) {
  if (Listed(key, "file or folder", "")) return "";
  const std::string path = String(key, "");
  if (path.empty() || path[0] == '/') return path;
  return absl::StrCat(node_->document->folder, "/", path);
}

std::string ConfigMap::RequiredPath(absl::string_view key) {
  if (Listed(key, "file or folder", "", /*required=*/true)) return "listed";
  return RequiredString(key).empty() ? "" : Path(key);
}

std::string ConfigMap::RequiredSecret(absl::string_view key) {
  if (Listed(key, "file with a token", "", /*required=*/true)) return "";
  return RequiredString(key).empty() ? "" : Secret(key);
}

std::string ConfigMap::Secret(absl::string_view key) {
  if (Listed(key, "file with a token", "")) return "";
  const std::string path = Path(key);
  if (path.empty()) return "";
  absl::StatusOr<std::string> token = ReadToken(path);
  if (token.ok()) return *std::move(token);
  Error(key, token.status().message());
  return "";
}

ConfigMap ConfigMap::Map(absl::string_view key) {
  Entry* const entry = Ask(node_.get(), key);
  auto child =
      config_internal::MakeMap(node_->document, node_->PathOf(key),
                               entry == nullptr ? YAML::Node() : entry->value,
                               entry == nullptr ? node_->line : entry->line);
  if (entry != nullptr) entry->children.push_back(child);
  return ConfigMap(std::move(child));
}

std::vector<ConfigMap> ConfigMap::Maps(absl::string_view key) {
  std::vector<ConfigMap> maps;
  if (Listed(key, "list", "")) {
    maps.push_back(ConfigMap(config_internal::MakeMap(
        node_->document, node_->PathOf(key) + "[]", YAML::Node(), 0)));
    return maps;
  }
  Entry* const entry = Ask(node_.get(), key);
  if (entry == nullptr) return maps;
  if (!entry->value.IsSequence()) {
    Error(key, "expected a list");
    return maps;
  }
  for (size_t i = 0; i < entry->value.size(); ++i) {
    const YAML::Node item = entry->value[i];
    auto child = config_internal::MakeMap(
        node_->document, absl::StrCat(node_->PathOf(key), "[", i, "]"), item,
        item.Mark().line + 1);
    entry->children.push_back(child);
    maps.push_back(ConfigMap(std::move(child)));
  }
  return maps;
}

std::vector<std::string> ConfigMap::Strings(absl::string_view key) {
  std::vector<std::string> strings;
  if (Listed(key, "list of words", "")) return strings;
  Entry* const entry = Ask(node_.get(), key);
  if (entry == nullptr) return strings;
  if (!entry->value.IsSequence()) {
    Error(key, "expected a list");
    return strings;
  }
  for (const YAML::Node& item : entry->value) {
    if (!item.IsScalar() || item.Scalar().empty()) {
      Error(key, "expected a list of words");
      return {};
    }
    strings.push_back(item.Scalar());
  }
  return strings;
}

ConfigReader::ConfigReader() : document_(std::make_shared<Document>()) {}

namespace {

// Returns the line at which a second YAML document begins, or 0. Markers stand
// at the beginning of a line, where no text of a document can have them.
// YAML::LoadAll() does not end for some malformed texts.
int SecondDocument(absl::string_view text) {
  const auto is_marker = [](absl::string_view line, absl::string_view marker) {
    return absl::ConsumePrefix(&line, marker) &&
           (line.empty() || absl::ascii_isspace(line.front()));
  };
  bool begun = false;
  bool ended = false;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    const absl::string_view content = absl::StripAsciiWhitespace(line);
    if (content.empty() || content.front() == '#') continue;
    if (is_marker(line, "...")) {
      ended = begun;
      continue;
    }
    if (begun && (ended || is_marker(line, "---"))) return number;
    begun = begun || line.front() != '%';
  }
  return 0;
}

}  // namespace

ConfigReader ConfigReader::FromFile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxConfigBytes);
  const size_t slash = path.rfind('/');
  ConfigReader reader =
      FromText(text.value_or(""), path,
               slash == std::string::npos ? "." : path.substr(0, slash));
  if (!text.ok()) {
    reader.document_->Note(
        0, "", absl::StrCat("cannot read the file: ", text.status().message()));
    reader.document_->unreadable = true;
  }
  return reader;
}

ConfigReader ConfigReader::FromText(const std::string& text,
                                    const std::string& name,
                                    const std::string& folder) {
  ConfigReader reader;
  reader.document_->name = name;
  reader.document_->folder = folder;
  YAML::Node node;
  try {
    node = YAML::Load(text);
  } catch (const YAML::Exception& error) {
    reader.document_->Note(error.mark.line + 1, "", error.msg);
    reader.document_->unreadable = true;
  }
  if (const int line = SecondDocument(text); line > 0) {
    reader.document_->Note(line, "", "a second YAML document begins here");
    reader.document_->unreadable = true;
  }
  reader.document_->root =
      config_internal::MakeMap(reader.document_.get(), "", node, 1);
  return reader;
}

ConfigReader ConfigReader::ForKeys(bool present, std::vector<ConfigKey>* keys) {
  ConfigReader reader = FromText("", "");
  reader.document_->keys = keys;
  reader.document_->present = present;
  return reader;
}

ConfigMap ConfigReader::root() { return ConfigMap(document_->root); }

absl::Status ConfigReader::Finish() {
  config_internal::NoteEager(*document_->root);
  if (document_->errors.empty()) return absl::OkStatus();
  if (document_->unreadable) document_->errors.resize(1);
  return MakeError(absl::StatusCode::kInvalidArgument, "BAD_CONFIG",
                   absl::StrJoin(document_->errors, "\n"));
}

absl::StatusOr<uint64_t> ParseSize(absl::string_view text) {
  static constexpr std::pair<absl::string_view, double> kUnits[] = {
      {"", 1},         {"B", 1},        {"KiB", 0x1p10}, {"MiB", 0x1p20},
      {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"KB", 1e3},     {"kB", 1e3},
      {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
  const size_t end =
      std::min(text.find_first_not_of("0123456789."), text.size());
  const absl::string_view unit = absl::StripAsciiWhitespace(text.substr(end));
  double number;
  if (absl::SimpleAtod(text.substr(0, end), &number)) {
    for (const auto& [name, factor] : kUnits) {
      if (unit == name && number * factor < 0x1p63) {
        return static_cast<uint64_t>(std::llround(number * factor));
      }
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("expected a size such as 2GiB, got \"", text, "\""));
}

}  // namespace djinn
