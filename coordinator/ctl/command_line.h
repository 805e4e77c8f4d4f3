// What djinnctl is asked to do: its command line, checked.
//
//   VERB [KIND [NAME [RESOURCE]]] [FLAGS]
//
// Flags may stand anywhere, with dashes or underscores in their names. Kinds
// may be singular or plural.
#ifndef COORDINATOR_CTL_COMMAND_LINE_H_
#define COORDINATOR_CTL_COMMAND_LINE_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace djinn::ctl {

struct Command {
  std::string verb;
  // Singular: "worker".
  std::string kind;
  // The object's, or a file's.
  std::string name;
  // Of `quota set`.
  std::string resource;
  // "table", "wide", "json", "yaml", "dot" or "svg".
  std::string output = "table";
  // Those given, by name with underscores.
  std::map<std::string, std::string, std::less<>> flags;

  bool Has(absl::string_view flag) const {
    return flags.find(flag) != flags.end();
  }
  // Empty when it was not given.
  std::string Flag(absl::string_view flag) const;
  // Of a flag that takes no value, or true and false.
  bool IsSet(absl::string_view flag, bool fallback = false) const;
};

// `arguments` are without the program's name. InvalidArgument says what is
// wrong. `--help` anywhere is the verb "help".
absl::StatusOr<Command> ParseCommand(const std::vector<std::string>& arguments);

// How often a command repeats itself, of its flag `interval`: "2s", or seconds;
// at least 100 ms.
absl::StatusOr<absl::Duration> IntervalOf(const Command& command);

// All commands and flags, for people.
std::string Usage();

}  // namespace djinn::ctl

#endif  // COORDINATOR_CTL_COMMAND_LINE_H_
