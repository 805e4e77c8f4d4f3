#include "common/fuzz/mutate_message.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/stubs/logging.h"

namespace djinn::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Most inputs of a fuzzer are malformed, so protobuf must not log each.
const bool quiet = [] {
  google::protobuf::SetLogHandler(nullptr);
  return true;
}();

// Deeper than any of Djinn's messages.
constexpr int kMaxDepth = 16;

void Collect(Message* message, int depth, std::vector<Message*>* all) {
  all->push_back(message);
  if (depth == kMaxDepth) return;
  const Reflection* reflection = message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      Collect(reflection->MutableMessage(message, field), depth + 1, all);
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(*message, field); ++i) {
      Collect(reflection->MutableRepeatedMessage(message, field, i), depth + 1,
              all);
    }
  }
}

class Mutation {
 public:
  explicit Mutation(Random* random) : random_(*random) {}

  void Apply(Message* root) {
    Collect(root, 0, &all_);
    Message* message = all_[Below(all_.size())];
    const auto* descriptor = message->GetDescriptor();
    if (descriptor->field_count() == 0) return;
    const FieldDescriptor* field =
        descriptor->field(static_cast<int>(Below(descriptor->field_count())));
    if (field->is_repeated()) {
      ChangeList(message, field);
    } else if (Below(8) == 0) {
      message->GetReflection()->ClearField(message, field);
    } else {
      SetField(message, field);
    }
  }

 private:
  uint64_t Below(uint64_t bound) {
    return (uint64_t{random_()} << 31 ^ random_()) % bound;
  }

  // Returns a small number, a limit of a type, or a neighbour of `old`.
  uint64_t Integer(uint64_t old) {
    switch (Below(6)) {
      case 0:
        return old + 1;
      case 1:
        return old - 1;
      case 2:
        return Below(4);
      case 3:
        return (uint64_t{1} << Below(64)) - Below(2);
      case 4:
        return uint64_t{0} - Below(3);
      default:
        return Below(70);
    }
  }

  double Real(double old) {
    constexpr double kSpecial[] = {0.0,
                                   -0.0,
                                   1.0,
                                   1e308,
                                   std::numeric_limits<double>::infinity(),
                                   std::numeric_limits<double>::quiet_NaN()};
    return Below(3) == 0 ? -old : kSpecial[Below(std::size(kSpecial))];
  }

  std::string Text(std::string text) {
    const size_t at = Below(text.size() + 1);
    switch (Below(4)) {
      case 0:
        text.resize(at);
        break;
      case 1:
        text.insert(at, 1 + Below(8), static_cast<char>('a' + Below(26)));
        break;
      case 2:
        text.append(text);
        break;
      default:
        if (at < text.size()) text[at] = static_cast<char>(Below(128));
    }
    return text;
  }

  // Returns a copy of some part of the tree with this type, or an empty one
  // when there is none. It is a copy because one part may contain the other,
  // and setting a field may remove the part from a oneof.
  std::unique_ptr<Message> Part(const FieldDescriptor* field,
                                const Message& parent) {
    const Message* const prototype =
        parent.GetReflection()->GetMessageFactory()->GetPrototype(
            field->message_type());
    std::unique_ptr<Message> copy(prototype->New());
    const size_t start = Below(all_.size());
    for (size_t i = 0; i < all_.size(); ++i) {
      const Message* other = all_[(start + i) % all_.size()];
      if (other->GetDescriptor() != field->message_type()) continue;
      copy->CopyFrom(*other);
      break;
    }
    return copy;
  }

  void SetField(Message* message, const FieldDescriptor* field) {
    const Reflection* r = message->GetReflection();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return r->SetInt32(
            message, field,
            static_cast<int32_t>(Integer(r->GetInt32(*message, field))));
      case FieldDescriptor::CPPTYPE_INT64:
        return r->SetInt64(
            message, field,
            static_cast<int64_t>(Integer(r->GetInt64(*message, field))));
      case FieldDescriptor::CPPTYPE_UINT32:
        return r->SetUInt32(
            message, field,
            static_cast<uint32_t>(Integer(r->GetUInt32(*message, field))));
      case FieldDescriptor::CPPTYPE_UINT64:
        return r->SetUInt64(message, field,
                            Integer(r->GetUInt64(*message, field)));
      case FieldDescriptor::CPPTYPE_BOOL:
        return r->SetBool(message, field, !r->GetBool(*message, field));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return r->SetDouble(message, field,
                            Real(r->GetDouble(*message, field)));
      case FieldDescriptor::CPPTYPE_FLOAT:
        return r->SetFloat(
            message, field,
            static_cast<float>(Real(r->GetFloat(*message, field))));
      case FieldDescriptor::CPPTYPE_ENUM:
        return r->SetEnumValue(message, field, static_cast<int>(Below(20)));
      case FieldDescriptor::CPPTYPE_STRING:
        return r->SetString(message, field,
                            Text(r->GetString(*message, field)));
      case FieldDescriptor::CPPTYPE_MESSAGE: {
        const std::unique_ptr<Message> part = Part(field, *message);
        return r->MutableMessage(message, field)->CopyFrom(*part);
      }
    }
  }

  void ChangeList(Message* message, const FieldDescriptor* field) {
    const Reflection* r = message->GetReflection();
    const int size = r->FieldSize(*message, field);
    if (size == 0 || Below(4) == 0) return Add(message, field);
    const int at = static_cast<int>(Below(size));
    switch (Below(5)) {
      case 0:  // Remove one.
        r->SwapElements(message, field, at, size - 1);
        return r->RemoveLast(message, field);
      case 1:  // Keep the first ones.
        for (int i = size; i > at; --i) r->RemoveLast(message, field);
        return;
      case 2:
        return r->SwapElements(message, field, at,
                               static_cast<int>(Below(size)));
      default:
        return SetElement(message, field, at);
    }
  }

  void Add(Message* message, const FieldDescriptor* field) {
    const Reflection* r = message->GetReflection();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return r->AddInt32(message, field, static_cast<int32_t>(Integer(0)));
      case FieldDescriptor::CPPTYPE_INT64:
        return r->AddInt64(message, field, static_cast<int64_t>(Integer(0)));
      case FieldDescriptor::CPPTYPE_UINT32:
        return r->AddUInt32(message, field, static_cast<uint32_t>(Integer(0)));
      case FieldDescriptor::CPPTYPE_UINT64:
        return r->AddUInt64(message, field, Integer(0));
      case FieldDescriptor::CPPTYPE_BOOL:
        return r->AddBool(message, field, Below(2) == 0);
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return r->AddDouble(message, field, Real(0));
      case FieldDescriptor::CPPTYPE_FLOAT:
        return r->AddFloat(message, field, static_cast<float>(Real(0)));
      case FieldDescriptor::CPPTYPE_ENUM:
        return r->AddEnumValue(message, field, static_cast<int>(Below(20)));
      case FieldDescriptor::CPPTYPE_STRING:
        return r->AddString(message, field, Text(""));
      case FieldDescriptor::CPPTYPE_MESSAGE: {
        const std::unique_ptr<Message> part = Part(field, *message);
        return r->AddMessage(message, field)->CopyFrom(*part);
      }
    }
  }

  void SetElement(Message* message, const FieldDescriptor* field, int at) {
    const Reflection* r = message->GetReflection();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT64:
        return r->SetRepeatedInt64(
            message, field, at,
            static_cast<int64_t>(
                Integer(r->GetRepeatedInt64(*message, field, at))));
      case FieldDescriptor::CPPTYPE_UINT32:
        return r->SetRepeatedUInt32(
            message, field, at,
            static_cast<uint32_t>(
                Integer(r->GetRepeatedUInt32(*message, field, at))));
      case FieldDescriptor::CPPTYPE_UINT64:
        return r->SetRepeatedUInt64(
            message, field, at,
            Integer(r->GetRepeatedUInt64(*message, field, at)));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return r->SetRepeatedDouble(
            message, field, at,
            Real(r->GetRepeatedDouble(*message, field, at)));
      case FieldDescriptor::CPPTYPE_STRING:
        return r->SetRepeatedString(
            message, field, at,
            Text(r->GetRepeatedString(*message, field, at)));
      case FieldDescriptor::CPPTYPE_MESSAGE: {
        const std::unique_ptr<Message> part = Part(field, *message);
        return r->MutableRepeatedMessage(message, field, at)->CopyFrom(*part);
      }
      default:  // For most lists, a longer one is the better change.
        return Add(message, field);
    }
  }

  Random& random_;
  std::vector<Message*> all_;
};

}  // namespace

void MutateMessage(Random* random, Message* message) {
  Mutation(random).Apply(message);
}

}  // namespace djinn::fuzz
