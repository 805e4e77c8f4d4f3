// Writes tables as JSON: rows of integers, in which texts are indices into a
// list of names. A table of 100,000 runs is so a third as large as objects
// would be, and needs no document in memory.
#ifndef COORDINATOR_CONSOLE_JSON_ROWS_H_
#define COORDINATOR_CONSOLE_JSON_ROWS_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace djinn::console {

// Returns the text as a JSON string. Bytes that are not UTF-8 are replaced.
std::string Quoted(absl::string_view text);

// Gives names indices in the order of their first use.
class Names {
 public:
  int64_t IndexOf(const std::string& name);
  // Returns a JSON list of strings.
  std::string Json() const;

 private:
  absl::flat_hash_map<std::string, int64_t> index_;
  std::vector<std::string> names_;
};

// Collects rows.
class Rows {
 public:
  void Add(std::initializer_list<int64_t> row) {
    absl::StrAppend(&json_, json_.empty() ? "[" : ",[");
    bool first = true;
    for (const int64_t value : row) {
      if (!first) json_.push_back(',');
      first = false;
      absl::StrAppend(&json_, value);
    }
    json_.push_back(']');
  }
  // Returns a JSON list of lists.
  std::string Json() const { return absl::StrCat("[", json_, "]"); }

 private:
  std::string json_;
};

}  // namespace djinn::console

#endif  // COORDINATOR_CONSOLE_JSON_ROWS_H_
