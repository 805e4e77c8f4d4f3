#include "coordinator/ctl/command_line.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"

namespace djinn::ctl {
namespace {

constexpr absl::Duration kInterval = absl::Seconds(2);
constexpr absl::Duration kMinInterval = absl::Milliseconds(100);

using Names = std::vector<absl::string_view>;

enum class Named { kNo, kMaybe, kYes };

struct Verb {
  absl::string_view name;
  // Singular. Empty: the verb takes none.
  Names kinds;
  Named named = Named::kNo;
  Names outputs;
};

const Names& Listed() {
  static const auto& kinds =
      *new Names({"worker", "session", "tenant", "queue", "lease", "graph"});
  return kinds;
}

// Those and the runs of a session, which is named.
const Names& Seen() {
  static const auto& kinds = *new Names([] {
    Names names = Listed();
    names.push_back("run");
    return names;
  }());
  return kinds;
}

const std::vector<Verb>& Verbs() {
  static const auto& verbs = *new std::vector<Verb>{
      {"get", Seen(), Named::kMaybe, {"table", "wide", "json", "yaml"}},
      {"describe", Listed(), Named::kYes, {"table"}},
      {"watch", Seen(), Named::kMaybe, {"table", "wide"}},
      {"top", {"worker", "tenant"}, Named::kNo, {"table"}},
      {"explain",
       {"session", "run", "tenant", "placement"},
       Named::kYes,
       {"table", "json", "yaml"}},
      {"cordon", {"worker"}, Named::kYes, {"table", "json", "yaml"}},
      {"uncordon", {"worker"}, Named::kYes, {"table", "json", "yaml"}},
      {"drain", {"worker"}, Named::kYes, {"table", "json", "yaml"}},
      {"migrate", {"session"}, Named::kYes, {"table", "json", "yaml"}},
      {"stop", {"queue"}, Named::kYes, {"table", "json", "yaml"}},
      {"resume", {"queue"}, Named::kYes, {"table", "json", "yaml"}},
      {"quota", {"set"}, Named::kYes, {"table", "json", "yaml"}},
      {"reload", {}, Named::kNo, {"table", "json", "yaml"}},
      {"record", {}, Named::kNo, {"table"}},
      {"version", {}, Named::kNo, {"table"}},
      // What stands for the kind is a file's name.
      {"simulate", {}, Named::kYes, {"table", "json"}}};
  return verbs;
}

struct Flag {
  absl::string_view name;
  bool takes_value = true;
  // Verbs that it is of. Empty: all.
  Names verbs;
  absl::string_view help;
};

const std::vector<Flag>& Flags() {
  static const auto& flags = *new std::vector<Flag>{
      {"o",
       true,
       {},
       "output: table, wide, json or yaml; for one graph dot "
       "or svg"},
      {"coordinator",
       true,
       {},
       "its address; DJINN_COORDINATOR otherwise, "
       "127.0.0.1:7070 by default"},
      {"token_file",
       true,
       {},
       "file with the admin token; "
       "DJINN_ADMIN_TOKEN_FILE otherwise"},
      {"tls_ca_file",
       true,
       {},
       "authorities for the coordinator's "
       "certificate: use TLS; DJINN_TLS_CA_FILE "
       "otherwise"},
      {"tls_certificate_file",
       true,
       {},
       "certificate to show; "
       "DJINN_TLS_CERTIFICATE_FILE "
       "otherwise"},
      {"tls_private_key_file",
       true,
       {},
       "its private key; "
       "DJINN_TLS_PRIVATE_KEY_FILE "
       "otherwise"},
      {"tls_server_name",
       true,
       {},
       "whom the coordinator's certificate must "
       "name instead of the address's host; "
       "DJINN_TLS_SERVER_NAME otherwise"},
      {"insecure",
       false,
       {},
       "allow an address that is not local without "
       "TLS"},
      {"policy",
       true,
       {"explain", "simulate"},
       "of a placement: how to "
       "choose; of simulate: play "
       "this one alone"},
      {"preemption",
       false,
       {"simulate"},
       "whether training gives way to "
       "other jobs; true by default"},
      {"size",
       true,
       {"explain"},
       "of a placement: what the session would "
       "upload, such as 16GB"},
      {"phase",
       true,
       {"explain"},
       "of a placement: as if its work were "
       "llm_decode, say"},
      {"session", true, {"explain"}, "of a placement: whose work is assumed"},
      {"to",
       true,
       {"migrate"},
       "the worker to go to; placement chooses "
       "otherwise"},
      {"device",
       true,
       {"migrate"},
       "the one virtual device that is to go; all "
       "otherwise"},
      {"drain", false, {"stop"}, "end the tenant's leases, too"},
      {"nominal",
       true,
       {"quota"},
       "what is the tenant's own, such as 64GiB or "
       "2.5"},
      {"borrowing_limit",
       true,
       {"quota"},
       "what it may borrow; none: not "
       "limited; as it is otherwise"},
      {"lending_limit",
       true,
       {"quota"},
       "what others may borrow of its own; "
       "likewise"},
      {"dry_run", false, {"quota"}, "show what it would do; required"},
      {"interval",
       true,
       {"watch", "top"},
       "how long from one look to the "
       "next; 2s by default"},
      {"count", true, {"watch"}, "end after so many looks"},
      {"client", false, {"version"}, "ask no coordinator"}};
  return flags;
}

absl::Status Wrong(absl::string_view why) {
  return absl::InvalidArgumentError(why);
}

bool Contains(const Names& names, absl::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

template <typename Entry>
const Entry* Find(const std::vector<Entry>& entries, absl::string_view name) {
  const auto found =
      std::find_if(entries.begin(), entries.end(),
                   [&](const Entry& entry) { return entry.name == name; });
  return found == entries.end() ? nullptr : &*found;
}

// "dry_run" of "--dry-run".
std::string FlagName(absl::string_view written) {
  const std::string name = absl::StrReplaceAll(written, {{"-", "_"}});
  return name == "output" ? "o" : name;
}

// As people write it.
std::string Written(const Flag& flag) {
  return absl::StrCat(flag.name == "o" ? "-" : "--",
                      absl::StrReplaceAll(flag.name, {{"_", "-"}}));
}

// Adds the flag at `*at`, and moves on behind what it takes of the arguments.
absl::Status ReadFlag(const std::vector<std::string>& arguments, size_t* at,
                      Command* command) {
  const std::string& argument = arguments[*at];
  absl::string_view text = argument;
  absl::ConsumePrefix(&text, "-");
  absl::ConsumePrefix(&text, "-");
  const size_t equals = text.find('=');
  bool has_value = equals != absl::string_view::npos;
  std::string name = FlagName(text.substr(0, equals));
  std::string value = has_value ? std::string(text.substr(equals + 1)) : "";
  const Flag* flag = Find(Flags(), name);
  if (flag == nullptr && !has_value && absl::StartsWith(name, "no")) {
    flag = Find(Flags(), name.substr(2));
    if (flag != nullptr && flag->takes_value) flag = nullptr;
    has_value = true;
    value = "false";
  }
  if (flag == nullptr) return Wrong("there is no flag " + argument);
  if (!has_value && flag->takes_value) {
    if (*at + 1 == arguments.size()) {
      return Wrong(Written(*flag) + " needs a value");
    }
    value = arguments[++*at];
  } else if (!has_value) {
    value = "true";
  }
  if (!flag->takes_value && value != "true" && value != "false") {
    return Wrong(
        absl::StrCat(Written(*flag), " is true or false, not \"", value, "\""));
  }
  command->flags[std::string(flag->name)] = value;
  return absl::OkStatus();
}

absl::Status CheckFlags(const Command& command) {
  for (const Flag& flag : Flags()) {
    if (!command.Has(flag.name) || flag.verbs.empty() ||
        Contains(flag.verbs, command.verb)) {
      continue;
    }
    return Wrong(absl::StrCat(Written(flag), " is no flag of ", command.verb,
                              ", but of ", absl::StrJoin(flag.verbs, ", ")));
  }
  return absl::OkStatus();
}

absl::Status CheckOutput(const Command& command, const Verb& verb) {
  if (command.output == "dot" || command.output == "svg") {
    if (command.verb == "get" && command.kind == "graph" &&
        !command.name.empty()) {
      return absl::OkStatus();
    }
    return Wrong(absl::StrCat("-o ", command.output,
                              " draws one graph: get graph NAME"));
  }
  if (Contains(verb.outputs, command.output)) return absl::OkStatus();
  return Wrong(absl::StrCat(command.verb, " has no output \"", command.output,
                            "\": ", absl::StrJoin(verb.outputs, ", ")));
}

absl::Status CheckKind(const Command& command, const Verb& verb) {
  if (Contains(verb.kinds, command.kind)) return absl::OkStatus();
  const std::string known = absl::StrJoin(verb.kinds, ", ");
  return Wrong(command.kind.empty()
                   ? absl::StrCat(command.verb, " of what? ", known)
                   : absl::StrCat("there is no ", command.verb, " of \"",
                                  command.kind, "\": ", known));
}

absl::Status CheckQuota(const Command& command) {
  if (command.resource.empty()) {
    return Wrong(
        "quota set needs a tenant and a resource, such as "
        "memory_bytes");
  }
  if (!command.IsSet("dry_run")) {
    return Wrong(absl::StrCat(
        "quotas are not set here, but in the coordinator's configuration: "
        "quota.",
        command.resource, " (nominalQuota, borrowingLimit, lendingLimit) of ",
        command.name,
        " in tenants, then `djinnctl reload`. With --dry-run "
        "this shows what that would do"));
  }
  if (!command.Has("nominal")) return Wrong("quota set needs --nominal");
  return absl::OkStatus();
}

// The verb's operands, of the words behind it.
absl::Status TakeWords(const std::vector<std::string>& words, const Verb& verb,
                       Command* command) {
  size_t next = 1;
  const auto take = [&](std::string* word) {
    if (next < words.size()) *word = words[next++];
  };
  if (!verb.kinds.empty()) {
    take(&command->kind);
    if (!Contains(verb.kinds, command->kind)) {
      absl::string_view singular = command->kind;
      if (absl::ConsumeSuffix(&singular, "s") &&
          Contains(verb.kinds, singular)) {
        command->kind = std::string(singular);
      }
    }
    DJINN_RETURN_IF_ERROR(CheckKind(*command, verb));
  }
  if (verb.named != Named::kNo) take(&command->name);
  if (verb.name == "quota") take(&command->resource);
  if (next < words.size()) {
    return Wrong(absl::StrCat("\"", words[next], "\" is one word too many for ",
                              verb.name));
  }
  if (verb.named == Named::kYes && command->name.empty()) {
    return Wrong(absl::StrCat(
        verb.name, " ", command->kind, command->kind.empty() ? "" : " ",
        verb.name == "simulate" ? "needs a file" : "needs a name"));
  }
  if (command->kind == "run" && command->name.empty()) {
    return Wrong(absl::StrCat(verb.name, " runs needs a session"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string Command::Flag(absl::string_view flag) const {
  const auto found = flags.find(flag);
  return found == flags.end() ? "" : found->second;
}

bool Command::IsSet(absl::string_view flag, bool fallback) const {
  return Has(flag) ? Flag(flag) == "true" : fallback;
}

absl::StatusOr<Command> ParseCommand(
    const std::vector<std::string>& arguments) {
  Command command;
  std::vector<std::string> words;
  bool only_words = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (only_words || argument.size() < 2 || argument[0] != '-') {
      words.push_back(argument);
    } else if (argument == "--") {
      only_words = true;
    } else if (argument == "--help" || argument == "-h") {
      command.verb = "help";
      return command;
    } else {
      DJINN_RETURN_IF_ERROR(ReadFlag(arguments, &i, &command));
    }
  }
  if (words.empty()) return Wrong("what to do? --help lists all commands");
  command.verb = words[0];
  if (command.verb == "help") return command;
  const Verb* const verb = Find(Verbs(), command.verb);
  if (verb == nullptr) {
    return Wrong(absl::StrCat("there is no command \"", command.verb,
                              "\": --help lists all"));
  }
  if (command.Has("o")) command.output = command.Flag("o");
  DJINN_RETURN_IF_ERROR(TakeWords(words, *verb, &command));
  DJINN_RETURN_IF_ERROR(CheckFlags(command));
  DJINN_RETURN_IF_ERROR(CheckOutput(command, *verb));
  if (command.verb == "quota") DJINN_RETURN_IF_ERROR(CheckQuota(command));
  return command;
}

absl::StatusOr<absl::Duration> IntervalOf(const Command& command) {
  if (!command.Has("interval")) return kInterval;
  const std::string text = command.Flag("interval");
  absl::Duration interval;
  double seconds = 0;
  if (absl::SimpleAtod(text, &seconds)) {
    interval = absl::Seconds(seconds);
  } else if (!absl::ParseDuration(text, &interval)) {
    return Wrong("--interval: expected a duration such as 2s, got \"" + text +
                 "\"");
  }
  if (!(interval >= kMinInterval && interval < absl::InfiniteDuration())) {
    return Wrong("--interval: must be at least 100ms, got \"" + text + "\"");
  }
  return interval;
}

std::string Usage() {
  std::string text = "djinnctl COMMAND [FLAGS]\n\ncommands:\n";
  for (const Verb& verb : Verbs()) {
    absl::StrAppend(&text, "  ", verb.name, verb.kinds.empty() ? "" : " ",
                    absl::StrJoin(verb.kinds, "|"),
                    verb.name == "simulate"       ? " FILE"
                    : verb.name == "quota"        ? " TENANT RESOURCE --dry-run"
                    : verb.named == Named::kMaybe ? " [NAME]"
                    : verb.named == Named::kYes   ? " NAME"
                                                  : "",
                    "\n");
  }
  absl::StrAppend(&text, "\nflags:\n");
  for (const Flag& flag : Flags()) {
    absl::StrAppend(
        &text, "  ", Written(flag), flag.takes_value ? "=VALUE" : "", "  ",
        flag.verbs.empty()
            ? ""
            : absl::StrCat("(", absl::StrJoin(flag.verbs, ", "), ") "),
        flag.help, "\n");
  }
  return text;
}

}  // namespace djinn::ctl
