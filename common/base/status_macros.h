// Defines macros that return early on a bad absl::Status. Replace them with
// Abseil's own (absl/status/status_macros.h) once the pinned Abseil has them.
#ifndef COMMON_BASE_STATUS_MACROS_H_
#define COMMON_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define DJINN_STATUS_CONCAT_INNER_(a, b) a##b
#define DJINN_STATUS_CONCAT_(a, b) DJINN_STATUS_CONCAT_INNER_(a, b)

// Returns from the enclosing function when `expression` is not OK.
#define DJINN_RETURN_IF_ERROR(expression)                               \
  do {                                                                  \
    if (absl::Status djinn_status_ = (expression); !djinn_status_.ok()) \
      return djinn_status_;                                             \
  } while (false)

// Assigns the value of a StatusOr expression, or returns its status.
#define DJINN_ASSIGN_OR_RETURN(declaration, expression)                   \
  DJINN_ASSIGN_OR_RETURN_IMPL_(DJINN_STATUS_CONCAT_(djinn_or_, __LINE__), \
                               declaration, expression)
#define DJINN_ASSIGN_OR_RETURN_IMPL_(temporary, declaration, expression) \
  auto temporary = (expression);                                         \
  if (!temporary.ok()) return std::move(temporary).status();             \
  declaration = *std::move(temporary)

#endif  // COMMON_BASE_STATUS_MACROS_H_
