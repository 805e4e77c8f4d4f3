// Implements the part of error.h that uses no protobuf. Shared objects that are
// loaded into a process with protobuf can therefore make and read errors,
// although a process may have only one copy of a generated message.
#include <optional>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace djinn {
namespace {

constexpr absl::string_view kPayloadUrl =
    "type.googleapis.com/google.rpc.ErrorInfo";
constexpr absl::string_view kDomain = "djinn";

// Field numbers of google.rpc.ErrorInfo, and of the entries of its map.
constexpr uint64_t kReasonField = 1;
constexpr uint64_t kDomainField = 2;
constexpr uint64_t kMetadataField = 3;
constexpr uint64_t kKeyField = 1;
constexpr uint64_t kValueField = 2;

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) {
    out->push_back(static_cast<char>(value | 0x80));
  }
  out->push_back(static_cast<char>(value));
}

// The wire type of strings and messages.
constexpr uint64_t kBytesType = 2;

void AppendField(uint64_t number, absl::string_view bytes, std::string* out) {
  AppendVarint(number << 3 | kBytesType, out);
  AppendVarint(bytes.size(), out);
  out->append(bytes.data(), bytes.size());
}

// Removes a varint from the front. Returns false if there is none.
bool ConsumeVarint(absl::string_view* bytes, uint64_t* value) {
  *value = 0;
  for (int shift = 0; shift < 64 && !bytes->empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes->front());
    bytes->remove_prefix(1);
    *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

// Calls `visit(number, bytes)` for each field. All fields of ErrorInfo have the
// wire type of strings. Returns false for a message that has another type.
template <typename Visitor>
bool ForEachField(absl::string_view message, Visitor visit) {
  while (!message.empty()) {
    uint64_t tag = 0, size = 0;
    if (!ConsumeVarint(&message, &tag) || (tag & 7) != kBytesType ||
        !ConsumeVarint(&message, &size) || size > message.size()) {
      return false;
    }
    visit(tag >> 3, message.substr(0, size));
    message.remove_prefix(size);
  }
  return true;
}

// Returns the payload if it is an ErrorInfo of Djinn's domain.
std::optional<std::string> OwnInfo(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayloadUrl);
  if (!payload.has_value()) return std::nullopt;
  std::string info(*payload);
  absl::string_view domain;
  const bool whole =
      ForEachField(info, [&](uint64_t field, absl::string_view bytes) {
        if (field == kDomainField) domain = bytes;
      });
  if (!whole || domain != kDomain) return std::nullopt;
  return info;
}

}  // namespace

absl::Status MakeError(absl::StatusCode code, absl::string_view reason,
                       absl::string_view message, ErrorMetadata metadata) {
  std::string info;
  AppendField(kReasonField, reason, &info);
  AppendField(kDomainField, kDomain, &info);
  for (const auto& [key, value] : metadata) {
    std::string entry;
    AppendField(kKeyField, key, &entry);
    AppendField(kValueField, value, &entry);
    AppendField(kMetadataField, entry, &info);
  }
  absl::Status status(code, message);
  status.SetPayload(kPayloadUrl, absl::Cord(info));
  return status;
}

std::string ErrorReason(const absl::Status& status) {
  const std::optional<std::string> info = OwnInfo(status);
  std::string reason;
  if (!info.has_value()) return reason;
  ForEachField(*info, [&](uint64_t field, absl::string_view bytes) {
    if (field == kReasonField) reason = std::string(bytes);
  });
  return reason;
}

std::string ErrorMetadataValue(const absl::Status& status,
                               absl::string_view key) {
  const std::optional<std::string> info = OwnInfo(status);
  std::string found;
  if (!info.has_value()) return found;
  ForEachField(*info, [&](uint64_t field, absl::string_view entry) {
    if (field != kMetadataField) return;
    absl::string_view entry_key, value;
    ForEachField(entry, [&](uint64_t part, absl::string_view bytes) {
      if (part == kKeyField) entry_key = bytes;
      if (part == kValueField) value = bytes;
    });
    if (entry_key == key) found = std::string(value);
  });
  return found;
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
