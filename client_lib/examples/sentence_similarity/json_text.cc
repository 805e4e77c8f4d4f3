#include "client_lib/examples/sentence_similarity/json_text.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace djinn::examples {

using nlohmann::json;

absl::StatusOr<json> ParseJsonObject(absl::string_view text) {
  // The keys seen so far in each object that is still open.
  std::vector<absl::flat_hash_set<std::string>> open_objects;
  absl::Status problem;
  const auto check = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kMaxJsonNesting) {
      problem.Update(absl::InvalidArgumentError(
          absl::StrCat("nested deeper than ", kMaxJsonNesting)));
    }
    switch (event) {
      case json::parse_event_t::object_start:
        open_objects.emplace_back();
        break;
      case json::parse_event_t::object_end:
        open_objects.pop_back();
        break;
      case json::parse_event_t::key: {
        const std::string& key = parsed.get_ref<const std::string&>();
        if (!open_objects.back().insert(key).second) {
          problem.Update(absl::InvalidArgumentError(
              absl::StrCat("the name \"", key, "\" appears twice")));
        }
        break;
      }
      default:
        break;
    }
    return problem.ok();  // After a problem, keep nothing more.
  };

  json result = json::parse(text.begin(), text.end(), check,
                            /*allow_exceptions=*/false);
  if (!problem.ok()) return problem;
  if (result.is_discarded()) {
    return absl::InvalidArgumentError("not valid JSON");
  }
  if (!result.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a JSON object was expected, not ", result.type_name()));
  }
  return result;
}

}  // namespace djinn::examples
