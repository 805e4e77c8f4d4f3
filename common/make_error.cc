// The part of error.h that uses no protobuf, so that shared objects which are
// loaded into a process that has it can make errors: every copy of a generated
// message wants to be the process's only one.
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "common/error.h"

namespace djinn {
namespace {

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) {
    out->push_back(static_cast<char>(value | 0x80));
  }
  out->push_back(static_cast<char>(value));
}

// A field of the wire type that strings and messages have.
void AppendField(int number, absl::string_view bytes, std::string* out) {
  AppendVarint(static_cast<uint64_t>(number) << 3 | 2, out);
  AppendVarint(bytes.size(), out);
  out->append(bytes.data(), bytes.size());
}

}  // namespace

absl::Status MakeError(absl::StatusCode code, absl::string_view reason,
                       absl::string_view message, ErrorMetadata metadata) {
  // google.rpc.ErrorInfo: reason 1, domain 2, metadata 3, a map of key 1 and
  // value 2.
  std::string info;
  AppendField(1, reason, &info);
  AppendField(2, "djinn", &info);
  for (const auto& [key, value] : metadata) {
    std::string entry;
    AppendField(1, key, &entry);
    AppendField(2, value, &entry);
    AppendField(3, entry, &info);
  }
  absl::Status status(code, message);
  status.SetPayload("type.googleapis.com/google.rpc.ErrorInfo",
                    absl::Cord(info));
  return status;
}

absl::Status LimitExceeded(absl::string_view reason, absl::string_view what,
                           uint64_t limit, uint64_t used, uint64_t asked) {
  return MakeError(absl::StatusCode::kResourceExhausted, reason,
                   absl::StrCat(what, ": limit ", limit, " bytes, used ", used,
                                ", asked ", asked),
                   {{"limit", absl::StrCat(limit)},
                    {"used", absl::StrCat(used)},
                    {"asked", absl::StrCat(asked)}});
}

}  // namespace djinn
