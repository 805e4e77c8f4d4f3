// Writes structured logs: one logfmt line per event on stderr, such as
//   ts=2026-01-31T12:00:00.000Z level=info role=worker msg="worker joined"
//   id=w0
//
//   log::Info("worker joined", {{"id", id}, {"address", address}});
//
// Never pass tokens; pass session ids shortened. The level comes from
// DJINN_LOG_LEVEL (debug, info, warning, error, off). Thread-safe.
#ifndef COMMON_LOG_LOG_H_
#define COMMON_LOG_LOG_H_

#include <initializer_list>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace djinn::log {

enum class Level { kDebug, kInfo, kWarning, kError, kOff };

// One key=value pair. The key is a constant in snake_case.
struct Field {
  Field(absl::string_view key, const absl::AlphaNum& value)
      : key(key), value(value.Piece()) {}
  Field(absl::string_view key, absl::Duration value)
      : key(key), value(absl::FormatDuration(value)) {}
  Field(absl::string_view key, const absl::Status& value)
      : key(key),
        value(value.ToString(absl::StatusToStringMode::kWithNoExtraData)) {}

  absl::string_view key;
  std::string value;
};
using Fields = std::initializer_list<Field>;

void Debug(absl::string_view message, Fields fields = {});
void Info(absl::string_view message, Fields fields = {});
void Warning(absl::string_view message, Fields fields = {});
void Error(absl::string_view message, Fields fields = {});

// Sets role and level. Called once, before threads start. `role` names the
// process and is left out when empty. The environment overrides `level`.
void Configure(absl::string_view role, Level level);

bool Enabled(Level level);

// Returns the line without its time, for tests.
std::string FormatLine(absl::string_view level, absl::string_view role,
                       absl::string_view message, Fields fields);

// Returns the form of a session id for logs and operators. The full id is a
// capability.
std::string ShortId(absl::string_view session_id);

}  // namespace djinn::log

#endif  // COMMON_LOG_LOG_H_
