#include "coordinator/ctl/output.h"

#include <yaml-cpp/yaml.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/json_util.h"

namespace djinn::ctl {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

void Emit(const Message& message, YAML::Emitter* out);

// Emits the field's value, or element `index` of a repeated field; `index` is
// -1 otherwise.
void EmitValue(const Message& message, const FieldDescriptor* field, int index,
               YAML::Emitter* out) {
  const Reflection& of = *message.GetReflection();
  const bool repeated = index >= 0;
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    Emit(repeated ? of.GetRepeatedMessage(message, field, index)
                  : of.GetMessage(message, field),
         out);
  } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    const std::string text = repeated
                                 ? of.GetRepeatedString(message, field, index)
                                 : of.GetString(message, field);
    *out << YAML::DoubleQuoted
         << (field->type() == FieldDescriptor::TYPE_BYTES
                 ? absl::Base64Escape(text)
                 : text);
  } else {
    std::string text;
    google::protobuf::TextFormat::PrintFieldValueToString(message, field, index,
                                                          &text);
    if (text == "inf" || text == "nan") text = "." + text;
    if (text == "-inf") text = "-.inf";
    *out << text;
  }
}

void Emit(const Message& message, YAML::Emitter* out) {
  const google::protobuf::Descriptor* const type = message.GetDescriptor();
  if (type->full_name() == "google.protobuf.Duration" ||
      type->full_name() == "google.protobuf.Timestamp") {
    // JSON represents these as quoted text.
    std::string text;
    (void)google::protobuf::util::MessageToJsonString(message, &text);
    *out << YAML::DoubleQuoted << text.substr(1, text.size() - 2);
    return;
  }
  const Reflection& of = *message.GetReflection();
  *out << YAML::BeginMap;
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* const field = type->field(i);
    if (field->has_presence() && !of.HasField(message, field)) continue;
    *out << YAML::Key << std::string(field->name()) << YAML::Value;
    if (!field->is_repeated()) {
      EmitValue(message, field, -1, out);
      continue;
    }
    *out << YAML::BeginSeq;
    for (int k = 0; k < of.FieldSize(message, field); ++k) {
      EmitValue(message, field, k, out);
    }
    *out << YAML::EndSeq;
  }
  *out << YAML::EndMap;
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
  YAML::Emitter out;
  Emit(message, &out);
  return absl::StrCat(out.c_str(), "\n");
}

}  // namespace djinn::ctl
