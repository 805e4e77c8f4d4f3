#include "common/log/log.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "spdlog/logger.h"
#include "spdlog/sinks/stdout_sinks.h"

namespace djinn::log {
namespace {

constexpr absl::string_view kNames[] = {"debug", "info", "warning", "error",
                                        "off"};

// Never destroyed, because threads may log while the process ends.
struct Output {
  Output()
      : logger("djinn", std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    logger.set_pattern("%v");
    logger.set_level(spdlog::level::trace);
  }
  static Output& Get() {
    static Output* const output = new Output;
    return *output;
  }

  spdlog::logger logger;
  std::string role;
  std::atomic<Level> level{Level::kInfo};
};

Level LevelFromEnvironment(Level fallback) {
  const char* const name = std::getenv("DJINN_LOG_LEVEL");
  if (name == nullptr) return fallback;
  const auto* const found =
      std::find(std::begin(kNames), std::end(kNames), name);
  if (found == std::end(kNames)) return fallback;
  return static_cast<Level>(found - std::begin(kNames));
}

Output& Configured() {
  static Output* const output = [] {
    Output& out = Output::Get();
    out.level = LevelFromEnvironment(out.level);
    return &out;
  }();
  return *output;
}

bool IsBare(absl::string_view value) {
  return !value.empty() &&
         std::all_of(value.begin(), value.end(), [](unsigned char c) {
           return c > ' ' && c < 0x7f && c != '"' && c != '=' && c != '\\';
         });
}

void AppendValue(std::string* line, absl::string_view value) {
  if (IsBare(value)) {
    absl::StrAppend(line, value);
  } else {
    // Within double quotes, an apostrophe needs no escape.
    absl::StrAppend(
        line, "\"",
        absl::StrReplaceAll(absl::Utf8SafeCEscape(value), {{"\\'", "'"}}),
        "\"");
  }
}

void WriteLine(Level level, absl::string_view message, Fields fields) {
  Output& output = Configured();
  const std::string time = absl::FormatTime("%Y-%m-%d%ET%H:%M:%E3SZ",
                                            absl::Now(), absl::UTCTimeZone());
  const std::string line =
      absl::StrCat("ts=", time, " ",
                   FormatLine(kNames[static_cast<int>(level)], output.role,
                              message, fields));
  output.logger.log(spdlog::level::info, spdlog::string_view_t(line));
}

void Write(Level level, absl::string_view message, Fields fields) {
  if (Enabled(level)) WriteLine(level, message, fields);
}

}  // namespace

void Debug(absl::string_view message, Fields fields) {
  Write(Level::kDebug, message, fields);
}
void Info(absl::string_view message, Fields fields) {
  Write(Level::kInfo, message, fields);
}
void Warning(absl::string_view message, Fields fields) {
  Write(Level::kWarning, message, fields);
}
void Error(absl::string_view message, Fields fields) {
  Write(Level::kError, message, fields);
}
// audit.h declares it apart from log.h, because few write audit lines.
void Audit(Fields fields) {
  if (Configured().level != Level::kOff) {
    WriteLine(Level::kInfo, "audit", fields);
  }
}

void Configure(absl::string_view role, Level level) {
  Output& output = Configured();
  output.role = std::string(role);
  output.level = LevelFromEnvironment(level);
}

bool Enabled(Level level) { return level >= Configured().level; }

std::string FormatLine(absl::string_view level, absl::string_view role,
                       absl::string_view message, Fields fields) {
  std::string line = absl::StrCat("level=", level);
  if (!role.empty()) {
    absl::StrAppend(&line, " role=");
    AppendValue(&line, role);
  }
  absl::StrAppend(&line, " msg=");
  AppendValue(&line, message);
  for (const Field& field : fields) {
    absl::StrAppend(&line, " ", field.key, "=");
    AppendValue(&line, field.value);
  }
  return line;
}

std::string ShortId(absl::string_view session_id) {
  return std::string(session_id.substr(0, 8));
}

}  // namespace djinn::log
