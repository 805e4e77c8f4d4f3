#include "coordinator/ctl/output.h"

#include <cmath>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/util/json_util.h"

namespace djinn::ctl {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// JSON's, which are YAML's, too.
std::string Quoted(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      absl::StrAppend(&quoted, "\\", absl::string_view(&c, 1));
    } else if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppend(&quoted, absl::StrFormat("\\u%04x", byte));
    } else {
      quoted.push_back(c);
    }
  }
  return quoted + "\"";
}

// Whether no reader takes it for something else than this text.
bool IsPlain(absl::string_view text) {
  if (text.empty() || !absl::ascii_isalpha(text[0])) return false;
  for (const char c : text) {
    if (!absl::ascii_isalnum(c) && !absl::StrContains("_-./", c)) return false;
  }
  // What YAML 1.1 has for true, false, null and numbers.
  static const auto& words =
      *new std::set<std::string>({"y", "n", "yes", "no", "on", "off", "true",
                                  "false", "null", "nan", "inf"});
  return !words.contains(absl::AsciiStrToLower(text));
}

std::string Text(absl::string_view text) {
  return IsPlain(text) ? std::string(text) : Quoted(text);
}

std::string Number(double value) {
  if (std::isnan(value)) return ".nan";
  if (std::isinf(value)) return value > 0 ? ".inf" : "-.inf";
  return absl::StrFormat("%.15g", value);
}

// Those that JSON has a text for.
bool IsText(const Message& message) {
  const std::string& name = message.GetDescriptor()->full_name();
  return name == "google.protobuf.Duration" ||
         name == "google.protobuf.Timestamp";
}

std::string TextOf(const Message& message) {
  std::string json;
  (void)google::protobuf::util::MessageToJsonString(message, &json);
  return json;
}

// The field's value, or that of its element `index` if it is repeated.
std::string Scalar(const Message& message, const FieldDescriptor* field,
                   int index) {
  const Reflection& of = *message.GetReflection();
  const bool many = field->is_repeated();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return (many ? of.GetRepeatedBool(message, field, index)
                   : of.GetBool(message, field))
                 ? "true"
                 : "false";
    case FieldDescriptor::CPPTYPE_INT32:
      return absl::StrCat(many ? of.GetRepeatedInt32(message, field, index)
                               : of.GetInt32(message, field));
    case FieldDescriptor::CPPTYPE_UINT32:
      return absl::StrCat(many ? of.GetRepeatedUInt32(message, field, index)
                               : of.GetUInt32(message, field));
    case FieldDescriptor::CPPTYPE_INT64:
      return absl::StrCat(many ? of.GetRepeatedInt64(message, field, index)
                               : of.GetInt64(message, field));
    case FieldDescriptor::CPPTYPE_UINT64:
      return absl::StrCat(many ? of.GetRepeatedUInt64(message, field, index)
                               : of.GetUInt64(message, field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return Number(many ? of.GetRepeatedDouble(message, field, index)
                         : of.GetDouble(message, field));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return Number(many ? of.GetRepeatedFloat(message, field, index)
                         : of.GetFloat(message, field));
    case FieldDescriptor::CPPTYPE_ENUM: {
      const int number = many ? of.GetRepeatedEnumValue(message, field, index)
                              : of.GetEnumValue(message, field);
      const auto* value = field->enum_type()->FindValueByNumber(number);
      return value == nullptr ? absl::StrCat(number) : value->name();
    }
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string text = many
                                   ? of.GetRepeatedString(message, field, index)
                                   : of.GetString(message, field);
      return field->type() == FieldDescriptor::TYPE_BYTES
                 ? Quoted(absl::Base64Escape(text))
                 : Text(text);
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return TextOf(many ? of.GetRepeatedMessage(message, field, index)
                         : of.GetMessage(message, field));
  }
  return "";
}

std::string Block(const Message& message, const std::string& indent);

// "a: 1\nb: 2\n" as an element of a list: "- a: 1\n  b: 2\n".
std::string Element(const Message& message, const std::string& indent) {
  const std::string inner = indent + "  ";
  const std::string block = Block(message, inner);
  if (block.empty()) return indent + "- {}\n";
  return absl::StrCat(indent, "- ", absl::StripPrefix(block, inner));
}

std::string List(const Message& message, const FieldDescriptor* field,
                 const std::string& indent) {
  const Reflection& of = *message.GetReflection();
  std::string text;
  for (int i = 0; i < of.FieldSize(message, field); ++i) {
    const bool is_message =
        field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (is_message && !IsText(of.GetRepeatedMessage(message, field, i))) {
      text += Element(of.GetRepeatedMessage(message, field, i), indent);
    } else {
      absl::StrAppend(&text, indent, "- ", Scalar(message, field, i), "\n");
    }
  }
  return text;
}

std::string Block(const Message& message, const std::string& indent) {
  const Reflection& of = *message.GetReflection();
  const google::protobuf::Descriptor* const type = message.GetDescriptor();
  std::string text;
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* const field = type->field(i);
    const std::string key = absl::StrCat(indent, field->name(), ":");
    if (field->is_repeated()) {
      const std::string list = List(message, field, indent);
      absl::StrAppend(&text, key, list.empty() ? " []" : "", "\n", list);
      continue;
    }
    if (field->has_presence() && !of.HasField(message, field)) continue;
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE ||
        IsText(of.GetMessage(message, field))) {
      absl::StrAppend(&text, key, " ", Scalar(message, field, 0), "\n");
      continue;
    }
    const std::string block =
        Block(of.GetMessage(message, field), indent + "  ");
    absl::StrAppend(&text, key, block.empty() ? " {}" : "", "\n", block);
  }
  return text;
}

}  // namespace

std::string ToJson(const Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string text;
  (void)google::protobuf::util::MessageToJsonString(message, &text, options);
  return text;
}

std::string ToYaml(const Message& message) {
  const std::string text = Block(message, "");
  return text.empty() ? "{}\n" : text;
}

}  // namespace djinn::ctl
