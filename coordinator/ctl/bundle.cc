#include "coordinator/ctl/bundle.h"

#include <algorithm>
#include <fstream>
#include <regex>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/config/config_reader.h"
#include "common/config/effective_config.h"
#include "common/io/read_file.h"
#include "common/io/secret_file.h"
#include "coordinator/config/config.h"
#include "httplib.h"
#include "yaml-cpp/yaml.h"

namespace djinn::ctl {
namespace {

constexpr size_t kMinSecretBytes = 8;
constexpr size_t kMaxConfigBytes = size_t{1} << 20;
constexpr std::streamoff kMaxLogBytes = std::streamoff{1} << 20;
constexpr time_t kRequestSeconds = 5;
constexpr char kRemoved[] = "[removed]";
constexpr char kPemBegin[] = "-----BEGIN ";
constexpr char kPemEnd[] = "-----END ";

// Returns the path as part of a name in the bundle.
std::string NameOf(const std::string& path) {
  std::string name = path;
  std::replace_if(
      name.begin(), name.end(),
      [](char letter) { return letter == '/' || letter == ':'; }, '_');
  constexpr size_t kMaxName = 80;
  return name.size() <= kMaxName ? name : name.substr(name.size() - kMaxName);
}

// Calls `visit` with the path of every file that the configuration names under
// a key such as join_token_file.
template <typename Visit>
void ForTokenFiles(const YAML::Node& node, Visit visit) {
  if (node.IsSequence()) {
    for (const YAML::Node& item : node) ForTokenFiles(item, visit);
  } else if (node.IsMap()) {
    for (const auto& entry : node) {
      const bool names_token =
          entry.first.IsScalar() &&
          absl::EndsWith(entry.first.Scalar(), "token_file");
      if (names_token && entry.second.IsScalar()) {
        visit(entry.second.Scalar());
      } else {
        ForTokenFiles(entry.second, visit);
      }
    }
  }
}

// Returns the end of a log behind the place where it was cut off, without what
// may be left of a secret there, because the scrubber recognizes only whole
// secrets. Starts at a line, and behind the PEM block that was cut, if any.
absl::string_view BehindCut(absl::string_view text) {
  const size_t line = text.find('\n');
  if (line == absl::string_view::npos) return "";
  text.remove_prefix(line + 1);
  const size_t end = text.find(kPemEnd);
  if (end == absl::string_view::npos || text.find(kPemBegin) < end) return text;
  const size_t over = text.find('\n', end);
  return over == absl::string_view::npos ? "" : text.substr(over + 1);
}

}  // namespace

void Scrubber::AddSecret(const std::string& secret) {
  if (secret.size() >= kMinSecretBytes) secrets_.insert(secret);
}

std::string Scrubber::Scrub(absl::string_view text) const {
  std::string clean(text);
  for (const std::string& secret : secrets_) {
    clean = absl::StrReplaceAll(clean, {{secret, kRemoved}});
  }
  static const auto& bearer = *new std::regex(
      "(bearer[ :=]+)[^\\s\"',]+", std::regex::icase | std::regex::optimize);
  clean = std::regex_replace(clean, bearer, absl::StrCat("$1", kRemoved));
  constexpr char kKey[] = "PRIVATE KEY-----";
  for (size_t at = 0; (at = clean.find(kPemBegin, at)) != std::string::npos;) {
    const size_t line = clean.find('\n', at);
    const size_t key = clean.find(kKey, at);
    if (key == std::string::npos || key > line) {
      at += sizeof(kPemBegin) - 1;
      continue;
    }
    const size_t end = clean.find(kPemEnd, key);
    const size_t over = end == std::string::npos
                            ? clean.size()
                            : std::min(clean.find('\n', end), clean.size());
    clean.replace(at, over - at, kRemoved);
  }
  return clean;
}

void Bundle::Add(const std::string& name, std::string text) {
  files_.push_back({name, std::move(text)});
}

void Bundle::Miss(absl::string_view what, absl::string_view why) {
  absl::StrAppend(&missing_, what, ": ", why, "\n");
}

void Bundle::AddConfig(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxConfigBytes);
  if (!text.ok()) return Miss(path, text.status().message());
  YAML::Node root;
  try {
    root = YAML::Load(*text);
  } catch (const YAML::Exception& error) {
    // Without its tokens, it is not known what is secret.
    return Miss(path, error.msg);
  }
  const size_t slash = path.rfind('/');
  const std::string folder =
      slash == std::string::npos ? "" : path.substr(0, slash + 1);
  absl::Status unknown;
  ForTokenFiles(root, [&](const std::string& file) {
    const absl::StatusOr<std::string> token =
        ReadToken(absl::StartsWith(file, "/") ? file : folder + file);
    if (token.ok()) {
      scrubber_.AddSecret(*token);
    } else {
      unknown.Update(token.status());
    }
  });
  if (!unknown.ok()) {
    Miss(path, absl::StrCat("a token is not known, and may stand in the logs: ",
                            unknown.message()));
  }
  const std::string name = "config/" + NameOf(path);
  if (root.IsMap() && root["worker_id"].IsDefined()) return Add(name, *text);
  const absl::StatusOr<std::string> effective =
      EffectiveConfig(path, [](ConfigReader reader) {
        return coordinator::ReadConfig(std::move(reader)).status();
      });
  if (!effective.ok()) Miss(name, effective.status().message());
  Add(name, effective.ok() ? *effective : *text);
}

void Bundle::AddLog(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return Miss(path, "cannot be read");
  const std::streamoff size = file.tellg();
  const bool cut = size > kMaxLogBytes;
  // With the byte before, the first newline begins a line even at the cut.
  file.seekg(cut ? size - kMaxLogBytes - 1 : 0);
  const std::string text{std::istreambuf_iterator<char>(file),
                         std::istreambuf_iterator<char>()};
  Add("logs/" + NameOf(path), cut ? std::string(BehindCut(text)) : text);
}

void Bundle::AddMonitoring(const std::string& address) {
  httplib::Client client("http://" + address);
  client.set_connection_timeout(kRequestSeconds);
  client.set_read_timeout(kRequestSeconds);
  for (const auto& [path, file] :
       {std::pair("/metrics", "metrics.txt"),
        std::pair("/readyz?verbose", "readyz.txt")}) {
    const httplib::Result answer = client.Get(path);
    if (answer) {
      Add(absl::StrCat("monitoring/", NameOf(address), "/", file),
          answer->body);
    } else {
      Miss(absl::StrCat("http://", address, path),
           httplib::to_string(answer.error()));
    }
  }
}

std::vector<ArchivedFile> Bundle::Finish() const {
  std::vector<ArchivedFile> clean;
  for (const ArchivedFile& file : files_) {
    clean.push_back({file.name, scrubber_.Scrub(file.text)});
  }
  if (!missing_.empty()) {
    clean.push_back({"missing.txt", scrubber_.Scrub(missing_)});
  }
  return clean;
}

}  // namespace djinn::ctl
