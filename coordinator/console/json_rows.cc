#include "coordinator/console/json_rows.h"

#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"

namespace djinn::console {

std::string Quoted(absl::string_view text) {
  using nlohmann::json;
  return json(std::string(text))
      .dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
}

int64_t Names::IndexOf(const std::string& name) {
  const auto [found, inserted] =
      index_.try_emplace(name, static_cast<int64_t>(names_.size()));
  if (inserted) names_.push_back(name);
  return found->second;
}

std::string Names::Json() const {
  return absl::StrCat(
      "[",
      absl::StrJoin(names_, ",",
                    [](std::string* out, const std::string& name) {
                      out->append(Quoted(name));
                    }),
      "]");
}

}  // namespace djinn::console
