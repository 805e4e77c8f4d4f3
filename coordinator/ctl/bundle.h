// Collects what a bug report needs, without secrets.
#ifndef COORDINATOR_CTL_BUNDLE_H_
#define COORDINATOR_CTL_BUNDLE_H_

#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "coordinator/ctl/tar.h"

namespace djinn::ctl {

// Removes secrets from texts: those that it was given, the words behind
// "Bearer", and private keys in PEM form.
class Scrubber {
 public:
  // Shorter words than a token has are ignored.
  void AddSecret(const std::string& secret);
  std::string Scrub(absl::string_view text) const;

 private:
  // The longest first, so that a secret that contains another one goes whole.
  struct Longer {
    bool operator()(const std::string& a, const std::string& b) const {
      return a.size() != b.size() ? a.size() > b.size() : a < b;
    }
  };
  std::set<std::string, Longer> secrets_;
};

// A bundle under construction.
class Bundle {
 public:
  explicit Bundle(std::string admin_token) { scrubber_.AddSecret(admin_token); }

  void Add(const std::string& name, std::string text);
  // Notes what the bundle lacks, and why.
  void Miss(absl::string_view what, absl::string_view why);

  // Adds a configuration: the coordinator's with the source of each value, a
  // worker's as it stands. The tokens in the files that it names are secrets.
  void AddConfig(const std::string& path);
  // Adds the whole lines in the last MiB of a log. Leaves out the rest of a PEM
  // block that begins before.
  void AddLog(const std::string& path);
  // Adds what a monitoring port answers.
  void AddMonitoring(const std::string& address);

  // Returns the files without secrets; "missing.txt", if anything is, says
  // what.
  std::vector<ArchivedFile> Finish() const;
  // Returns what the bundle lacks, a line each.
  const std::string& missing() const { return missing_; }

 private:
  Scrubber scrubber_;
  std::vector<ArchivedFile> files_;
  std::string missing_;
};

}  // namespace djinn::ctl

#endif  // COORDINATOR_CTL_BUNDLE_H_
