// Reads a YAML configuration strictly: the program asks for every key, and a
// key that it did not ask for is an error with its line and path.
//
//   ConfigReader reader = ConfigReader::FromFile(path);
//   ConfigMap root = reader.root();
//   options.listen = root.String("listen", "127.0.0.1:7070");
//   for (ConfigMap& tenant : root.Maps("tenants")) ...
//   DJINN_RETURN_IF_ERROR(reader.Finish());
//
// Getters never fail: they return the default and note the error, so that
// Finish() reports all errors together. Not thread-safe.
#ifndef COMMON_CONFIG_CONFIG_READER_H_
#define COMMON_CONFIG_CONFIG_READER_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace djinn {

namespace config_internal {
struct Document;
struct MapNode;
}  // namespace config_internal

// One key that a program asks for.
struct ConfigKey {
  std::string path;      // "tenants[].limits.memory"
  std::string type;      // "size", "duration", "list of words", ...
  std::string fallback;  // in YAML; may be empty
  bool required = false;
  // True if the program reads the key only where Has() finds it. Then
  // `fallback` is not in force where the key is absent.
  bool conditional = false;
};

// One map of the document. An absent optional map reads as empty. Copies refer
// to the same map.
class ConfigMap {
 public:
  bool Has(absl::string_view key) const;

  std::string String(absl::string_view key, absl::string_view fallback);
  // Notes an error for an absent or empty value.
  std::string RequiredString(absl::string_view key);
  bool Bool(absl::string_view key, bool fallback);
  uint64_t UInt(absl::string_view key, uint64_t fallback, uint64_t min = 0,
                uint64_t max = std::numeric_limits<uint64_t>::max());
  // Reads a duration such as "250ms", "30s" or "1h30m". Negative ones are
  // errors.
  absl::Duration Duration(absl::string_view key, absl::Duration fallback);
  // Reads a number between `min` and `max`.
  double Number(absl::string_view key, double fallback, double min = 0,
                double max = std::numeric_limits<double>::max());
  // Reads a number of bytes: "64KiB", "1.5GiB", "16GB", "512".
  uint64_t Size(absl::string_view key, uint64_t fallback);
  // Reads the path of a file, relative to the configuration's folder.
  std::string Path(absl::string_view key);
  std::string RequiredPath(absl::string_view key);
  // Reads the token in such a file; see ReadToken().
  std::string RequiredSecret(absl::string_view key);
  std::string Secret(absl::string_view key);
  ConfigMap Map(absl::string_view key);
  std::vector<ConfigMap> Maps(absl::string_view key);
  // Reads a list of words. An empty word is an error.
  std::vector<std::string> Strings(absl::string_view key);

  // Notes the caller's own objection to a value.
  void Error(absl::string_view key, absl::string_view what);

 private:
  friend class ConfigReader;
  explicit ConfigMap(std::shared_ptr<config_internal::MapNode> node)
      : node_(std::move(node)) {}

  // Returns the scalar under `key`, or null when it is absent. Notes an error
  // and returns null when the value is not a scalar.
  const std::string* Scalar(absl::string_view key, absl::string_view expected);
  // Notes the key if the reader lists keys. Otherwise returns false.
  bool Listed(absl::string_view key, absl::string_view type,
              absl::string_view fallback, bool required = false) const;

  std::shared_ptr<config_internal::MapNode> node_;
};

class ConfigReader {
 public:
  // Reads a file. Finish() reports unreadable files, those over 1 MiB, and bad
  // YAML.
  static ConfigReader FromFile(const std::string& path);
  // Reads `text`. `name` stands for the file in errors; paths are relative to
  // `folder`.
  static ConfigReader FromText(const std::string& text, const std::string& name,
                               const std::string& folder = ".");

  // Returns a reader that appends each key that the program asks for to `keys`,
  // once, and returns the defaults. Each list of maps has one map. Has()
  // returns `present`, because a program asks for some keys only if others
  // exist.
  static ConfigReader ForKeys(bool present, std::vector<ConfigKey>* keys);

  ConfigMap root();

  // Returns InvalidArgument (BAD_CONFIG) with every noted error and every key
  // that the program did not ask for, each as "file:line: path: what".
  absl::Status Finish();

 private:
  ConfigReader();
  std::shared_ptr<config_internal::Document> document_;
};

// Parses a number of bytes such as "2GiB", for flags. InvalidArgument names the
// text.
absl::StatusOr<uint64_t> ParseSize(absl::string_view text);

}  // namespace djinn

#endif  // COMMON_CONFIG_CONFIG_READER_H_
