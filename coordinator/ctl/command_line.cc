#include "coordinator/ctl/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/error.h"
#include "common/base/plain_text.h"
#include "common/base/status_macros.h"

namespace djinn::ctl {
namespace {

constexpr absl::Duration kMinInterval = absl::Milliseconds(100);

using Names = std::vector<std::string>;

struct Verb {
  const char* name;
  const char* help;
  // Kinds in the singular. Empty if the verb takes none.
  Names kinds;
  // The word that the help shows for the name after the kind, if there is one.
  const char* named = nullptr;
  bool name_required = true;
  Names outputs = {"table", "json", "yaml"};
};

const std::vector<Verb>& Verbs() {
  static const auto& verbs = *[] {
    const Names listed = {"worker", "session", "tenant",
                          "queue",  "lease",   "graph"};
    Names seen = listed;
    seen.push_back("run");
    return new std::vector<Verb>{
        {"get",
         "list objects, or show one",
         seen,
         "NAME",
         false,
         {"table", "wide", "json", "yaml", "dot"}},
        {"describe",
         "show one object with the reasons for its state",
         listed,
         "NAME",
         true,
         {"table"}},
        {"watch", "repeat `get`", seen, "NAME", false, {"table", "wide"}},
        {"top",
         "show current use",
         {"worker", "tenant"},
         nullptr,
         true,
         {"table"}},
        {"explain",
         "show why something is placed, waits or ran as it did",
         {"session", "run", "tenant", "placement"},
         "NAME"},
        {"lineage",
         "show what is kept against the loss of a session's workers; a storage "
         "is SESSION/STORAGE",
         {"session", "storage"},
         "NAME",
         true,
         {"table", "json", "yaml", "dot"}},
        {"cordon", "give a worker no new leases", {"worker"}, "NAME"},
        {"uncordon", "give a worker new leases again", {"worker"}, "NAME"},
        {"drain",
         "cordon a worker and migrate its virtual devices",
         {"worker"},
         "NAME"},
        {"migrate", "move a session to another worker", {"session"}, "NAME"},
        {"stop", "give a tenant no new leases", {"queue"}, "NAME"},
        {"resume", "give a tenant new leases again", {"queue"}, "NAME"},
        {"quota",
         "set a tenant's quota in place of the configuration's, or unset it",
         {"set", "unset"},
         "TENANT"},
        {"reload", "read the coordinator's configuration again", {}},
        {"record",
         "write recent jobs as a trace",
         {},
         nullptr,
         true,
         {"table"}},
        {"bundle",
         "write what a bug report needs to a tar file, without secrets",
         {},
         "FILE",
         true,
         {"table"}},
        {"console",
         "serve pictures of the cluster to a browser on this host",
         {},
         nullptr,
         true,
         {"table"}},
        {"version", "print the versions", {}, nullptr, true, {"table"}},
        {"simulate",
         "play a trace under every policy",
         {},
         "FILE",
         true,
         {"table", "json"}}};
  }();
  return verbs;
}

// Returns both spellings, such as "--dry-run,--dry_run".
std::string Spellings(const std::string& name) {
  const std::string other = absl::StrReplaceAll(name, {{"-", "_"}});
  return other == name ? "--" + name : absl::StrCat("--", name, ",--", other);
}

// Accepts one of `kinds` in the singular or plural, and makes it singular.
CLI::Validator KindOf(const Names& kinds) {
  const std::string known = absl::StrJoin(kinds, "|");
  return CLI::Validator(
      [kinds, known](std::string& word) -> std::string {
        for (const std::string& kind : kinds) {
          if (word != kind && word != kind + "s") continue;
          word = kind;
          return "";
        }
        return absl::StrCat("\"", word, "\" is none of ", known);
      },
      known);
}

// Refuses an empty name, which a script passes whose variable is not set: it
// would stand for all objects.
CLI::Validator NotEmpty() {
  return CLI::Validator(
      [](const std::string& word) -> std::string {
        return word.empty() ? "must not be empty" : "";
      },
      "");
}

absl::Duration ParseInterval(const std::string& text) {
  absl::Duration interval;
  double seconds = 0;
  if (absl::SimpleAtod(text, &seconds)) {
    interval = absl::Seconds(seconds);
  } else if (!absl::ParseDuration(text, &interval)) {
    interval = absl::ZeroDuration();
  }
  if (!(interval >= kMinInterval && interval < absl::InfiniteDuration())) {
    throw CLI::ValidationError(
        "--interval", "expected at least 100ms, such as 2s, got " + text);
  }
  return interval;
}

// Adds the flags of every verb.
void AddCommonFlags(CLI::App* app, Command* command) {
  const auto add = [&](const char* name, std::string* value,
                       const char* variable, const char* help) {
    app->add_option(Spellings(name), *value, help)->envname(variable);
  };
  app->add_option("-o,--output", command->output,
                  "table, wide, json or yaml; dot for one graph or a lineage")
      // CLI11 includes the "=" of "-o=json" in the value.
      ->transform([](const std::string& value) {
        return std::string(absl::StripPrefix(value, "="));
      });
  add("coordinator", &command->coordinator, "DJINN_COORDINATOR",
      "address of the coordinator, or several, divided by commas");
  add("token-file", &command->token_file, "DJINN_ADMIN_TOKEN_FILE",
      "file with the admin token");
  add("tls-ca-file", &command->tls.ca_file, "DJINN_TLS_CA_FILE",
      "authorities for the coordinator's certificate: use TLS");
  add("tls-certificate-file", &command->tls.certificate_file,
      "DJINN_TLS_CERTIFICATE_FILE", "certificate to show");
  add("tls-private-key-file", &command->tls.private_key_file,
      "DJINN_TLS_PRIVATE_KEY_FILE", "the certificate's private key");
  add("tls-server-name", &command->tls.server_name, "DJINN_TLS_SERVER_NAME",
      "name in the coordinator's certificate, if not the address's host");
  app->add_flag("--insecure", command->insecure,
                "allow an address that is not local without TLS")
      ->envname("DJINN_INSECURE");
}

void AddFlagsOfVerbs(const std::map<std::string, CLI::App*>& verbs,
                     Command* command) {
  const auto add = [&](const char* verb, const char* name, auto* value,
                       const char* help) {
    return verbs.at(verb)->add_option(Spellings(name), *value, help);
  };
  const auto flag = [&](const char* verb, const char* names, bool* value,
                        const char* help) {
    verbs.at(verb)->add_flag(names, *value, help);
  };
  add("explain", "policy", &command->policy, "policy of a placement");
  add("explain", "size", &command->size,
      "bytes that the session of a placement uploads, such as 16GB");
  add("explain", "phase", &command->phase,
      "phase of the work of a placement, such as llm_decode");
  add("explain", "session", &command->session,
      "session whose work a placement assumes");
  add("simulate", "policy", &command->policy, "play this policy alone");
  flag("simulate", "--preemption,!--nopreemption", &command->preemption,
       "let training yield to other jobs; true by default");
  add("migrate", "to", &command->to,
      "the worker to go to; placement chooses otherwise");
  add("migrate", "device", &command->device,
      "the one virtual device to move; all otherwise");
  flag("stop", "--drain", &command->drain, "end the tenant's leases, too");
  verbs.at("quota")->add_option(
      "WORD", command->words,
      "set: RESOURCE=AMOUNT, such as memory_bytes=64GiB, or "
      "RESOURCE.borrowingLimit=AMOUNT, RESOURCE.lendingLimit=AMOUNT, where "
      "none lifts a limit; unset: RESOURCE, all without one");
  flag("quota", "--dry-run,--dry_run", &command->dry_run,
       "show what it would do, and set nothing");
  add("console", "listen", &command->listen,
      "loopback address of the page; 127.0.0.1:7090 by default");
  for (const char* verb : {"watch", "top", "console"}) {
    verbs.at(verb)->add_option_function<std::string>(
        "--interval",
        [command](const std::string& text) {
          command->interval = ParseInterval(text);
        },
        "time from one look to the next; 2s by default");
  }
  add("watch", "count", &command->count, "end after so many looks")
      ->check(CLI::PositiveNumber);
  add("bundle", "config", &command->configs,
      "a configuration to add; may be given again, as the next two");
  add("bundle", "log", &command->logs, "a log to add");
  add("bundle", "monitoring", &command->monitoring,
      "the address of a monitoring port to ask");
  flag("bundle", "--force", &command->force, "replace a file that exists");
  flag("version", "--client", &command->client, "ask no coordinator");
}

// Checks the texts that travel to the coordinator. A file's name may have any
// bytes.
absl::Status CheckTexts(const Command& command) {
  std::vector<std::string> texts = command.words;
  texts.insert(texts.end(), {command.policy, command.phase, command.session,
                             command.to, command.size});
  if (command.verb != "bundle" && command.verb != "simulate") {
    texts.push_back(command.name);
  }
  for (const std::string& text : texts) {
    if (IsUtf8(text)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("\"", absl::CHexEscape(text), "\" is not UTF-8"));
  }
  return absl::OkStatus();
}

// Checks what depends on several arguments.
absl::Status Check(const Command& command, const Verb& verb) {
  DJINN_RETURN_IF_ERROR(CheckTexts(command));
  if (std::find(verb.outputs.begin(), verb.outputs.end(), command.output) ==
      verb.outputs.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(command.verb, " has no output \"", command.output,
                     "\": ", absl::StrJoin(verb.outputs, ", ")));
  }
  if (command.output == "dot" && command.verb != "lineage" &&
      (command.kind != "graph" || command.name.empty())) {
    return absl::InvalidArgumentError("-o dot draws one graph: get graph NAME");
  }
  if (command.kind == "run" && command.name.empty()) {
    return absl::InvalidArgumentError(command.verb + " runs needs a session");
  }
  if (command.verb == "quota" && command.kind == "set" &&
      command.words.empty()) {
    return absl::InvalidArgumentError(
        "quota set needs RESOURCE=AMOUNT, such as memory_bytes=64GiB");
  }
  if (command.kind == "unset" && command.dry_run) {
    return absl::InvalidArgumentError("--dry-run is of quota set");
  }
  if (command.verb == "explain" && command.kind != "placement" &&
      !(command.policy.empty() && command.size.empty() &&
        command.phase.empty() && command.session.empty())) {
    return absl::InvalidArgumentError(
        "--policy, --size, --phase and --session are of explain placement");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Command> ParseCommand(std::vector<std::string> arguments) {
  Command command;
  CLI::App app("Shows and changes a Djinn cluster.", "djinnctl");
  app.require_subcommand(1);
  app.fallthrough();
  AddCommonFlags(&app, &command);
  std::map<std::string, CLI::App*> verbs;
  for (const Verb& verb : Verbs()) {
    CLI::App* const added = app.add_subcommand(verb.name, verb.help);
    verbs[verb.name] = added;
    if (!verb.kinds.empty()) {
      added->add_option("KIND", command.kind)
          ->required()
          ->transform(KindOf(verb.kinds));
    }
    if (verb.named != nullptr) {
      added->add_option(verb.named, command.name)
          ->required(verb.name_required)
          ->check(NotEmpty());
    }
  }
  AddFlagsOfVerbs(verbs, &command);
  try {
    // CLI11 takes the next argument as the value of "--name=". An empty value
    // means that the flag is not given.
    std::erase_if(arguments, [](const std::string& argument) {
      return absl::StartsWith(argument, "--") && argument.size() > 3 &&
             argument.find('=') == argument.size() - 1;
    });
    std::reverse(arguments.begin(), arguments.end());  // CLI11's order.
    app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    command.verb = "help";
    command.help = app.help();
    return command;
  } catch (const CLI::ParseError& error) {
    const std::vector<std::string> unknown = app.remaining();
    const bool named =
        unknown.empty() || absl::StrContains(error.what(), unknown[0]);
    return absl::InvalidArgumentError(absl::StrCat(
        error.what(), named ? "" : absl::StrCat(", not \"", unknown[0], "\""),
        "; --help lists all commands"));
  }
  command.verb = app.get_subcommands().front()->get_name();
  const auto verb = std::find_if(
      Verbs().begin(), Verbs().end(),
      [&](const Verb& known) { return known.name == command.verb; });
  const absl::Status status = Check(command, *verb);
  if (!status.ok()) return status;
  return command;
}

int ExitStatus(const absl::Status& status) {
  if (status.ok()) return 0;
  const std::string reason = ErrorReason(status);
  if (reason == "TLS_HANDSHAKE") return kUnreachable;
  // A coordinator gives a reason.
  return reason.empty() ? kUnreachable : kRefused;
}

}  // namespace djinn::ctl
