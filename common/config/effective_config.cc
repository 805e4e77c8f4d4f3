#include "common/config/effective_config.h"

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "yaml-cpp/yaml.h"

namespace djinn {
namespace {

// The keys that a program asks for in one map, in its order.
struct KnownMap {
  std::vector<std::string> names;
  std::map<std::string, ConfigKey> values;
  // Maps, and the maps of lists.
  std::map<std::string, KnownMap> maps;
  std::set<std::string> lists;
};

void AddName(const std::string& name, KnownMap* map) {
  if (!map->values.contains(name) && !map->maps.contains(name) &&
      !map->lists.contains(name)) {
    map->names.push_back(name);
  }
}

void Add(const ConfigKey& key, KnownMap* root) {
  KnownMap* at = root;
  const std::vector<std::string> parts = absl::StrSplit(key.path, '.');
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    absl::string_view name = parts[i];
    const bool list = absl::ConsumeSuffix(&name, "[]");
    const std::string parent(name);
    AddName(parent, at);
    if (list) at->lists.insert(parent);
    at = &at->maps[parent];
  }
  const std::string& last = parts.back();
  AddName(last, at);
  if (key.type == "list") {
    at->lists.insert(last);
  } else {
    at->values.emplace(last, key);
  }
}

std::string OneLine(const YAML::Node& node) {
  YAML::Emitter out;
  out.SetMapFormat(YAML::Flow);
  out.SetSeqFormat(YAML::Flow);
  out << node;
  return out.c_str();
}

std::string Scalar(const std::string& text) {
  YAML::Emitter out;
  out << text;
  return out.c_str();
}

class Printer {
 public:
  explicit Printer(const std::string& path)
      : name_(path.substr(path.rfind('/') + 1)) {}

  // Prints the entries of a map, each line behind `indent`; the first one
  // behind `first`.
  void PrintMap(const YAML::Node& map, const KnownMap& known,
                const std::string& indent, std::string first) {
    const auto line = [&](absl::string_view text) {
      absl::StrAppend(&text_, std::exchange(first, indent), text, "\n");
    };
    std::set<std::string> said;
    for (const auto& entry : map) {
      const std::string key = entry.first.Scalar();
      const YAML::Node& value = entry.second;
      said.insert(key);
      const auto found = known.maps.find(key);
      const std::string source =
          absl::StrCat("  # ", name_, ":", entry.first.Mark().line + 1);
      if (found == known.maps.end() || value.IsScalar() || value.IsNull()) {
        line(absl::StrCat(key, ": ", OneLine(value), source));
      } else if (value.IsSequence()) {
        line(absl::StrCat(key, ":", source));
        for (const YAML::Node& item : value) {
          if (item.size() == 0) {
            absl::StrAppend(&text_, indent, "  - {}\n");
            continue;
          }
          PrintMap(item, found->second, indent + "    ", indent + "  - ");
        }
      } else {
        line(absl::StrCat(key, ":", source));
        PrintMap(value, found->second, indent + "  ", indent + "  ");
      }
    }
    for (const std::string& name : known.names) {
      if (!said.contains(name)) PrintDefault(name, known, indent, "");
    }
  }

  const std::string& text() const { return text_; }

 private:
  // Prints a key that the file does not have, as a comment. `inner` indents
  // behind the comment's sign.
  void PrintDefault(const std::string& name, const KnownMap& known,
                    const std::string& indent, const std::string& inner) {
    const std::string begin = absl::StrCat(indent, "# ", inner, name, ":");
    const auto value = known.values.find(name);
    if (value != known.values.end() && value->second.conditional) {
      absl::StrAppend(&text_, begin, "  # not set\n");
    } else if (value != known.values.end()) {
      absl::StrAppend(&text_, begin, " ",
                      value->second.type == "list of words"
                          ? "[]"
                          : Scalar(value->second.fallback),
                      "  # default\n");
    } else if (known.lists.contains(name)) {
      absl::StrAppend(&text_, begin, " []  # default\n");
    } else {
      absl::StrAppend(&text_, begin, "\n");
      const KnownMap& child = known.maps.at(name);
      for (const std::string& key : child.names) {
        PrintDefault(key, child, indent, inner + "  ");
      }
    }
  }

  const std::string name_;
  std::string text_;
};

}  // namespace

absl::StatusOr<std::string> EffectiveConfig(
    const std::string& path,
    const std::function<absl::Status(ConfigReader)>& configure) {
  DJINN_RETURN_IF_ERROR(configure(ConfigReader::FromFile(path)));
  // Some keys are asked for only if others are there, and some only if not.
  std::vector<ConfigKey> keys;
  for (const bool present : {false, true}) {
    configure(ConfigReader::ForKeys(present, &keys)).IgnoreError();
  }
  KnownMap known;
  for (const ConfigKey& key : keys) Add(key, &known);
  Printer printer(path);
  // It was read without an error a moment ago; another file by now may not be.
  try {
    const YAML::Node root = YAML::LoadFile(path);
    printer.PrintMap(root.IsMap() ? root : YAML::Node(YAML::NodeType::Map),
                     known, "", "");
  } catch (const YAML::Exception& error) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " changes while it is read: ", error.msg));
  }
  return printer.text();
}

}  // namespace djinn
