#include "client_lib/examples/sentence_similarity/safetensors.h"

#include <algorithm>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client_lib/examples/sentence_similarity/json_text.h"

namespace djinn::examples {
namespace {

using nlohmann::json;

constexpr size_t kLengthBytes = 8;

// Free-form notes about the file, not a tensor.
constexpr absl::string_view kMetadataName = "__metadata__";

struct ElementTypeName {
  absl::string_view name;
  ElementType type;
};

constexpr ElementTypeName kElementTypes[] = {
    {"BOOL", ElementType::kBool},   {"U8", ElementType::kUint8},
    {"I8", ElementType::kInt8},     {"I16", ElementType::kInt16},
    {"I32", ElementType::kInt32},   {"I64", ElementType::kInt64},
    {"F16", ElementType::kFloat16}, {"BF16", ElementType::kBfloat16},
    {"F32", ElementType::kFloat32}, {"F64", ElementType::kFloat64},
};

std::optional<ElementType> FindElementType(absl::string_view name) {
  for (const ElementTypeName& known : kElementTypes) {
    if (known.name == name) return known.type;
  }
  return std::nullopt;
}

absl::Status BadTensor(absl::string_view name, absl::string_view reason) {
  return absl::InvalidArgumentError(
      absl::StrCat("tensor \"", name, "\": ", reason));
}

uint64_t ReadLittleEndian64(absl::Span<const std::byte> bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    value |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  }
  return value;
}

// The bytes that `type` and `shape` ask for; nothing if that does not fit into
// an int64, which is what tensor libraries count with.
std::optional<int64_t> BytesOf(ElementType type,
                               absl::Span<const int64_t> shape) {
  int64_t bytes = static_cast<int64_t>(ElementBytes(type));
  // Zero elements need no bytes, however large the other sizes are.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  }
  return bytes;
}

// Reads a JSON array of non-negative integers.
std::optional<std::vector<int64_t>> ReadSizes(const json& entry,
                                              const char* key) {
  const auto found = entry.find(key);
  if (found == entry.end() || !found->is_array()) return std::nullopt;
  std::vector<int64_t> sizes;
  for (const json& item : *found) {
    if (!item.is_number_unsigned()) return std::nullopt;
    const uint64_t value = item.get<uint64_t>();
    if (value > uint64_t{INT64_MAX}) return std::nullopt;
    sizes.push_back(static_cast<int64_t>(value));
  }
  return sizes;
}

absl::StatusOr<StoredTensor> ParseTensor(absl::string_view name,
                                         const json& entry,
                                         absl::Span<const std::byte> data) {
  if (!entry.is_object()) return BadTensor(name, "its entry is not an object");

  const auto type_name = entry.find("dtype");
  if (type_name == entry.end() || !type_name->is_string()) {
    return BadTensor(name, "\"dtype\" is not a text");
  }
  const auto& type_text = type_name->get_ref<const std::string&>();
  const std::optional<ElementType> type = FindElementType(type_text);
  if (!type.has_value()) {
    return BadTensor(name,
                     absl::StrCat("unknown element type \"", type_text, "\""));
  }

  std::optional<std::vector<int64_t>> shape = ReadSizes(entry, "shape");
  if (!shape.has_value()) {
    return BadTensor(name, "\"shape\" is not a list of sizes");
  }
  const auto offsets = ReadSizes(entry, "data_offsets");
  if (!offsets.has_value() || offsets->size() != 2) {
    return BadTensor(name, "\"data_offsets\" is not a pair of offsets");
  }
  const int64_t begin = (*offsets)[0];
  const int64_t end = (*offsets)[1];
  if (begin > end || static_cast<uint64_t>(end) > data.size()) {
    return BadTensor(name,
                     absl::StrCat("its bytes ", begin, " to ", end,
                                  " are not within the file's ", data.size()));
  }
  const std::optional<int64_t> needed = BytesOf(*type, *shape);
  if (!needed.has_value()) {
    return BadTensor(name, "its shape is too large to be a tensor");
  }
  if (*needed != end - begin) {
    return BadTensor(name,
                     absl::StrCat("its shape needs ", *needed,
                                  " bytes, its offsets give ", end - begin));
  }
  return StoredTensor{*type, *std::move(shape),
                      data.subspan(begin, end - begin)};
}

// The format asks for tensors back to back. A hole could hide bytes from those
// who inspect a file; an overlap makes one tensor change with another.
absl::Status CheckCoversExactlyOnce(const StoredTensors& tensors,
                                    absl::Span<const std::byte> data) {
  using Entry = const StoredTensors::value_type*;
  std::vector<Entry> by_place;
  for (const auto& entry : tensors) by_place.push_back(&entry);
  std::sort(by_place.begin(), by_place.end(), [](Entry a, Entry b) {
    const auto& x = a->second.bytes;
    const auto& y = b->second.bytes;
    return std::pair(x.data(), x.size()) < std::pair(y.data(), y.size());
  });

  const std::byte* covered_to = data.data();
  for (const Entry entry : by_place) {
    const auto& bytes = entry->second.bytes;
    if (bytes.data() < covered_to) {
      return BadTensor(entry->first, "it overlaps another tensor");
    }
    if (bytes.data() > covered_to) {
      return BadTensor(entry->first,
                       absl::StrCat(bytes.data() - covered_to,
                                    " unused bytes lie before it"));
    }
    covered_to = bytes.data() + bytes.size();
  }
  const auto unused = data.data() + data.size() - covered_to;
  if (unused != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(unused, " bytes after the last tensor belong to none"));
  }
  return absl::OkStatus();
}

}  // namespace

size_t ElementBytes(ElementType type) {
  switch (type) {
    case ElementType::kBool:
    case ElementType::kUint8:
    case ElementType::kInt8:
      return 1;
    case ElementType::kInt16:
    case ElementType::kFloat16:
    case ElementType::kBfloat16:
      return 2;
    case ElementType::kInt32:
    case ElementType::kFloat32:
      return 4;
    case ElementType::kInt64:
    case ElementType::kFloat64:
      return 8;
  }
  return 0;
}

absl::StatusOr<StoredTensors> ParseSafetensors(
    absl::Span<const std::byte> file) {
  if (file.size() < kLengthBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("not a safetensors file: it has only ", file.size(),
                     " bytes, the header's length alone takes 8"));
  }
  const uint64_t header_bytes = ReadLittleEndian64(file);
  if (header_bytes > kMaxSafetensorsHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "not a safetensors file, or one with far too many tensors: its header "
        "would take ",
        header_bytes, " bytes, the limit is ", kMaxSafetensorsHeaderBytes));
  }
  file.remove_prefix(kLengthBytes);
  if (header_bytes > file.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the file is cut short: its header takes ", header_bytes,
                     " bytes, only ", file.size(), " follow"));
  }
  const absl::Span<const std::byte> data = file.subspan(header_bytes);

  absl::StatusOr<json> header = ParseJsonObject(absl::string_view(
      reinterpret_cast<const char*>(file.data()), header_bytes));
  if (!header.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("in the header: ", header.status().message()));
  }
  StoredTensors tensors;
  for (const auto& [name, entry] : header->items()) {
    if (name == kMetadataName) continue;
    absl::StatusOr<StoredTensor> tensor = ParseTensor(name, entry, data);
    if (!tensor.ok()) return tensor.status();
    tensors.emplace(name, *std::move(tensor));
  }
  if (absl::Status status = CheckCoversExactlyOnce(tensors, data);
      !status.ok()) {
    return status;
  }
  return tensors;
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  if (!file.ok()) return file.status();
  absl::StatusOr<StoredTensors> tensors = ParseSafetensors(file->bytes());
  if (!tensors.ok()) {
    return absl::Status(tensors.status().code(),
                        absl::StrCat(path, ": ", tensors.status().message()));
  }
  return SafetensorsFile(*std::move(file), *std::move(tensors));
}

}  // namespace djinn::examples
