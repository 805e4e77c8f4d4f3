#include "common/srg/proto_codec.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace djinn::srg {
namespace {

absl::Status Malformed(absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, "MALFORMED_GRAPH", what);
}

absl::StatusOr<DataType> DataTypeFromProto(v1::DataType value) {
  const auto type = static_cast<DataType>(value);
  if (value < 0 || value > 255 || ElementSize(type) == 0) {
    return Malformed(absl::StrCat("unknown data type ", value));
  }
  return type;
}

absl::StatusOr<ScalarTensor> ScalarTensorFromProto(
    const v1::ScalarTensor& message) {
  ScalarTensor scalar;
  scalar.hole = message.hole();
  DJINN_ASSIGN_OR_RETURN(scalar.data_type,
                         DataTypeFromProto(message.data_type()));
  scalar.wrapped_number = message.wrapped_number();
  return scalar;
}

absl::StatusOr<std::vector<TensorListEntry>> TensorListFromProto(
    const v1::TensorViewList& message) {
  std::vector<TensorListEntry> entries;
  entries.reserve(message.entries_size());
  for (const auto& entry : message.entries()) {
    if (entry.has_view() && entry.has_scalar_tensor()) {
      return Malformed("list entry is both a view and a scalar tensor");
    }
    if (entry.has_view()) {
      DJINN_ASSIGN_OR_RETURN(TensorView view, FromProto(entry.view()));
      entries.emplace_back(std::move(view));
    } else if (entry.has_scalar_tensor()) {
      DJINN_ASSIGN_OR_RETURN(ScalarTensor scalar,
                             ScalarTensorFromProto(entry.scalar_tensor()));
      entries.emplace_back(scalar);
    } else {
      entries.emplace_back();
    }
  }
  return entries;
}

absl::StatusOr<std::vector<Scalar>> ScalarListFromProto(
    const v1::ScalarList& message) {
  std::vector<Scalar> scalars;
  scalars.reserve(message.entries_size());
  for (const auto& entry : message.entries()) {
    switch (entry.value_case()) {
      case v1::ScalarList::Entry::kInteger:
        scalars.emplace_back(static_cast<int64_t>(entry.integer()));
        break;
      case v1::ScalarList::Entry::kBoolean:
        scalars.emplace_back(entry.boolean());
        break;
      case v1::ScalarList::Entry::kReal:
        scalars.emplace_back(entry.real());
        break;
      case v1::ScalarList::Entry::kComplex:
        scalars.emplace_back(std::complex<double>(entry.complex().real(),
                                                  entry.complex().imaginary()));
        break;
      case v1::ScalarList::Entry::VALUE_NOT_SET:
        return Malformed("scalar list entry without a value");
    }
  }
  return scalars;
}

absl::StatusOr<Argument> ArgumentFromProto(const v1::Argument& message) {
  switch (message.value_case()) {
    case v1::Argument::kNone:
      return Argument();
    case v1::Argument::kTensor: {
      DJINN_ASSIGN_OR_RETURN(TensorView view, FromProto(message.tensor()));
      return Argument(std::move(view));
    }
    case v1::Argument::kTensors: {
      DJINN_ASSIGN_OR_RETURN(std::vector<TensorListEntry> entries,
                             TensorListFromProto(message.tensors()));
      return Argument(std::move(entries));
    }
    case v1::Argument::kInteger:
      return Argument(static_cast<int64_t>(message.integer()));
    case v1::Argument::kIntegers:
      return Argument(std::vector<int64_t>(message.integers().values().begin(),
                                           message.integers().values().end()));
    case v1::Argument::kBoolean:
      return Argument(message.boolean());
    case v1::Argument::kBooleans:
      return Argument(std::vector<bool>(message.booleans().values().begin(),
                                        message.booleans().values().end()));
    case v1::Argument::kFloatHole:
      return Argument(FloatHole{message.float_hole()});
    case v1::Argument::kReals:
      return Argument(std::vector<double>(message.reals().values().begin(),
                                          message.reals().values().end()));
    case v1::Argument::kComplex:
      return Argument(std::complex<double>(message.complex().real(),
                                           message.complex().imaginary()));
    case v1::Argument::kText:
      return Argument(message.text());
    case v1::Argument::kScalarTensor: {
      DJINN_ASSIGN_OR_RETURN(ScalarTensor scalar,
                             ScalarTensorFromProto(message.scalar_tensor()));
      return Argument(scalar);
    }
    case v1::Argument::kGeneratorSlot:
      return Argument(GeneratorSlot{message.generator_slot()});
    case v1::Argument::kDevice:
      return Argument(WorkerDevice{});
    case v1::Argument::kScalars: {
      DJINN_ASSIGN_OR_RETURN(std::vector<Scalar> scalars,
                             ScalarListFromProto(message.scalars()));
      return Argument(std::move(scalars));
    }
    case v1::Argument::VALUE_NOT_SET:
      break;
  }
  return Malformed("argument without a value");
}

absl::StatusOr<Result> ResultFromProto(const v1::Result& message) {
  switch (message.outcome_case()) {
    case v1::Result::kView: {
      DJINN_ASSIGN_OR_RETURN(TensorView view, FromProto(message.view()));
      return Result(std::move(view));
    }
    case v1::Result::kUndefined:
      return Result(UndefinedResult{});
    case v1::Result::kUnknownInSlot:
      return Result(UnknownResult{message.unknown_in_slot()});
    case v1::Result::OUTCOME_NOT_SET:
      break;
  }
  return Malformed("result without an outcome");
}

absl::StatusOr<Node> NodeFromProto(const v1::Node& message) {
  Node node;
  node.operator_index = message.operator_index();
  node.arguments.reserve(message.arguments_size());
  for (const v1::Argument& argument : message.arguments()) {
    DJINN_ASSIGN_OR_RETURN(Argument decoded, ArgumentFromProto(argument));
    node.arguments.push_back(std::move(decoded));
  }
  node.results.reserve(message.results_size());
  for (const v1::Result& result : message.results()) {
    DJINN_ASSIGN_OR_RETURN(Result decoded, ResultFromProto(result));
    node.results.push_back(std::move(decoded));
  }
  node.writes.assign(message.writes().begin(), message.writes().end());
  node.overwrites.assign(message.overwrites().begin(),
                         message.overwrites().end());
  if (message.has_implicit_generator_slot()) {
    node.implicit_generator_slot = message.implicit_generator_slot();
  }
  return node;
}

void ScalarTensorToProto(const ScalarTensor& scalar,
                         v1::ScalarTensor* message) {
  message->set_hole(scalar.hole);
  message->set_data_type(static_cast<v1::DataType>(scalar.data_type));
  message->set_wrapped_number(scalar.wrapped_number);
}

void ViewToProto(const TensorView& view, v1::TensorView* message) {
  message->set_slot(view.slot);
  message->set_data_type(static_cast<v1::DataType>(view.data_type));
  message->mutable_sizes()->Add(view.sizes.begin(), view.sizes.end());
  message->mutable_strides()->Add(view.strides.begin(), view.strides.end());
  message->set_storage_offset(view.storage_offset);
  message->set_conjugate(view.conjugate);
  message->set_negative(view.negative);
}

void ComplexToProto(const std::complex<double>& value, v1::Complex* message) {
  message->set_real(value.real());
  message->set_imaginary(value.imag());
}

// Writes each alternative of Argument into its field.
struct ArgumentWriter {
  v1::Argument* message;

  void operator()(std::monostate) { message->set_none(true); }
  void operator()(const TensorView& view) {
    ViewToProto(view, message->mutable_tensor());
  }
  void operator()(const std::vector<TensorListEntry>& entries) {
    v1::TensorViewList* list = message->mutable_tensors();
    for (const TensorListEntry& entry : entries) {
      v1::TensorViewList::Entry* added = list->add_entries();
      if (const auto* view = std::get_if<TensorView>(&entry)) {
        ViewToProto(*view, added->mutable_view());
      } else if (const auto* scalar = std::get_if<ScalarTensor>(&entry)) {
        ScalarTensorToProto(*scalar, added->mutable_scalar_tensor());
      }
    }
  }
  void operator()(int64_t value) { message->set_integer(value); }
  void operator()(const std::vector<int64_t>& values) {
    message->mutable_integers()->mutable_values()->Add(values.begin(),
                                                       values.end());
  }
  void operator()(bool value) { message->set_boolean(value); }
  void operator()(const std::vector<bool>& values) {
    v1::BooleanList* list = message->mutable_booleans();
    for (const bool value : values) list->add_values(value);
  }
  void operator()(FloatHole hole) { message->set_float_hole(hole.index); }
  void operator()(const std::vector<double>& values) {
    message->mutable_reals()->mutable_values()->Add(values.begin(),
                                                    values.end());
  }
  void operator()(const std::complex<double>& value) {
    ComplexToProto(value, message->mutable_complex());
  }
  void operator()(const std::string& text) { message->set_text(text); }
  void operator()(const ScalarTensor& scalar) {
    ScalarTensorToProto(scalar, message->mutable_scalar_tensor());
  }
  void operator()(GeneratorSlot generator) {
    message->set_generator_slot(generator.slot);
  }
  void operator()(WorkerDevice) { message->set_device(true); }
  void operator()(const std::vector<Scalar>& scalars) {
    v1::ScalarList* list = message->mutable_scalars();
    for (const Scalar& scalar : scalars) {
      v1::ScalarList::Entry* added = list->add_entries();
      if (const auto* integer = std::get_if<int64_t>(&scalar)) {
        added->set_integer(*integer);
      } else if (const auto* boolean = std::get_if<bool>(&scalar)) {
        added->set_boolean(*boolean);
      } else if (const auto* real = std::get_if<double>(&scalar)) {
        added->set_real(*real);
      } else {
        ComplexToProto(std::get<std::complex<double>>(scalar),
                       added->mutable_complex());
      }
    }
  }
};

}  // namespace

absl::StatusOr<TensorView> FromProto(const v1::TensorView& message) {
  TensorView view;
  view.slot = message.slot();
  DJINN_ASSIGN_OR_RETURN(view.data_type,
                         DataTypeFromProto(message.data_type()));
  view.sizes.assign(message.sizes().begin(), message.sizes().end());
  view.strides.assign(message.strides().begin(), message.strides().end());
  view.storage_offset = message.storage_offset();
  view.conjugate = message.conjugate();
  view.negative = message.negative();
  return view;
}

absl::StatusOr<Graph> FromProto(const v1::Graph& message) {
  Graph graph;
  graph.operators.reserve(message.operators_size());
  for (const v1::Operator& op : message.operators()) {
    graph.operators.push_back({op.name(), op.overload(), op.schema_hash()});
  }
  graph.slots.reserve(message.slots_size());
  for (const v1::Slot& slot : message.slots()) {
    if (slot.kind() < v1::Slot::BOUND || slot.kind() > v1::Slot::GENERATOR) {
      return Malformed(absl::StrCat("slot ", graph.slots.size(),
                                    " has unknown kind ", slot.kind()));
    }
    graph.slots.push_back(
        {static_cast<Slot::Kind>(slot.kind()), slot.created_bytes()});
  }
  graph.nodes.reserve(message.nodes_size());
  for (const v1::Node& node : message.nodes()) {
    absl::StatusOr<Node> decoded = NodeFromProto(node);
    if (!decoded.ok()) {
      return Malformed(absl::StrCat("node ", graph.nodes.size(), ": ",
                                    decoded.status().message()));
    }
    graph.nodes.push_back(*std::move(decoded));
  }
  graph.float_hole_count = message.float_hole_count();
  graph.scalar_tensor_hole_count = message.scalar_tensor_hole_count();
  uint64_t position = 0;
  for (const uint32_t gap : message.size_hole().integer_gaps()) {
    position += gap;
    if (position > std::numeric_limits<uint32_t>::max()) {
      return Malformed("a size hole names an integer there is not");
    }
    graph.size_hole.integers.push_back(static_cast<uint32_t>(position));
    ++position;
  }
  graph.size_hole.slopes.assign(message.size_hole().slopes().begin(),
                                message.size_hole().slopes().end());
  return graph;
}

v1::TensorView ToProto(const TensorView& view) {
  v1::TensorView message;
  ViewToProto(view, &message);
  return message;
}

v1::Graph ToProto(const Graph& graph) {
  v1::Graph message;
  for (const Operator& op : graph.operators) {
    v1::Operator* added = message.add_operators();
    added->set_name(op.name);
    added->set_overload(op.overload);
    added->set_schema_hash(op.schema_hash);
  }
  for (const Slot& slot : graph.slots) {
    v1::Slot* added = message.add_slots();
    added->set_kind(static_cast<v1::Slot::Kind>(slot.kind));
    added->set_created_bytes(slot.created_bytes);
  }
  for (const Node& node : graph.nodes) {
    v1::Node* added = message.add_nodes();
    added->set_operator_index(node.operator_index);
    for (const Argument& argument : node.arguments) {
      std::visit(ArgumentWriter{added->add_arguments()}, argument);
    }
    for (const Result& result : node.results) {
      v1::Result* outcome = added->add_results();
      if (const auto* view = std::get_if<TensorView>(&result)) {
        ViewToProto(*view, outcome->mutable_view());
      } else if (const auto* unknown = std::get_if<UnknownResult>(&result)) {
        outcome->set_unknown_in_slot(unknown->slot);
      } else {
        outcome->set_undefined(true);
      }
    }
    added->mutable_writes()->Add(node.writes.begin(), node.writes.end());
    added->mutable_overwrites()->Add(node.overwrites.begin(),
                                     node.overwrites.end());
    if (node.implicit_generator_slot.has_value()) {
      added->set_implicit_generator_slot(*node.implicit_generator_slot);
    }
  }
  uint32_t next_integer = 0;
  for (const uint32_t position : graph.size_hole.integers) {
    message.mutable_size_hole()->add_integer_gaps(position - next_integer);
    next_integer = position + 1;
  }
  if (!graph.size_hole.empty()) {
    message.mutable_size_hole()->mutable_slopes()->Add(
        graph.size_hole.slopes.begin(), graph.size_hole.slopes.end());
  }
  message.set_float_hole_count(graph.float_hole_count);
  message.set_scalar_tensor_hole_count(graph.scalar_tensor_hole_count);
  return message;
}

}  // namespace djinn::srg
