#include "gpu_worker/device/torch/call_template.h"

#include <algorithm>
#include <complex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "ATen/core/List.h"
#include "ATen/core/Tensor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "c10/core/Layout.h"
#include "c10/core/MemoryFormat.h"
#include "c10/core/Scalar.h"
#include "c10/util/complex.h"
#include "common/base/status_macros.h"
#include "common/torch/data_type.h"
#include "common/torch/overwrite_table.h"
#include "gpu_worker/device/torch/torch_buffer.h"

namespace djinn::worker {
namespace {

// The greatest absolute value of an integer. No tensor has so much of anything,
// and kernels can add and multiply such values without overflow.
constexpr int64_t kMaxInteger = int64_t{1} << 40;

constexpr absl::string_view kAlternativeNames[] = {"none",
                                                   "a tensor",
                                                   "a list of tensors",
                                                   "an integer",
                                                   "a list of integers",
                                                   "a boolean",
                                                   "a list of booleans",
                                                   "a float",
                                                   "a list of floats",
                                                   "a complex number",
                                                   "text",
                                                   "a scalar tensor",
                                                   "a generator",
                                                   "a device",
                                                   "a list of scalars"};
static_assert(std::size(kAlternativeNames) ==
              std::variant_size_v<srg::Argument>);

// Builds one argument's value, and keeps the place if it varies.
class ArgumentBuilder {
 public:
  ArgumentBuilder(const c10::FunctionSchema& schema, uint32_t index,
                  bool written, c10::Device device)
      : schema_(schema), argument_(schema.arguments()[index]), device_(device) {
    place_.argument = index;
    place_.written = written;
  }

  absl::StatusOr<c10::IValue> Build(const srg::Argument& value) {
    return BuildAs(*argument_.real_type(), value);
  }

  // Returns an error after Build() if no kernel may see the value.
  const absl::Status& unusable() const { return unusable_; }
  // Returns whether a run fills the value in; valid after Build().
  bool varies() const { return varies_; }
  Place TakePlace() { return std::move(place_); }

 private:
  absl::Status Bad(absl::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("argument ", argument_.name(), " (",
                     argument_.real_type()->repr_str(), "): ", what));
  }
  absl::Status Mismatch(const srg::Argument& value) const {
    return Bad(absl::StrCat("given ", kAlternativeNames[value.index()]));
  }

  absl::StatusOr<c10::IValue> BuildAs(const c10::Type& type,
                                      const srg::Argument& value) {
    switch (type.kind()) {
      case c10::TypeKind::OptionalType: {
        const c10::Type& inner =
            *type.expectRef<c10::OptionalType>().getElementType();
        if (!std::holds_alternative<std::monostate>(value)) {
          return BuildAs(inner, value);
        }
        // None would select the worker's own default generator, which all
        // sessions share.
        if (inner.kind() == c10::TypeKind::GeneratorType) {
          return Bad("a generator must be named");
        }
        return c10::IValue();
      }
      case c10::TypeKind::TensorType:
        return BuildTensor(value);
      case c10::TypeKind::ListType:
        return BuildList(*type.expectRef<c10::ListType>().getElementType(),
                         value);
      case c10::TypeKind::IntType:
      case c10::TypeKind::SymIntType:
        if (const auto* integer = std::get_if<int64_t>(&value)) {
          CheckInteger(*integer);
          return c10::IValue(*integer);
        }
        return Mismatch(value);
      case c10::TypeKind::BoolType:
        if (const auto* boolean = std::get_if<bool>(&value)) {
          return c10::IValue(*boolean);
        }
        return Mismatch(value);
      case c10::TypeKind::FloatType:
        return BuildFloat(value);
      case c10::TypeKind::NumberType:
        return BuildNumber(value);
      case c10::TypeKind::StringType:
        if (const auto* text = std::get_if<std::string>(&value)) {
          return c10::IValue(*text);
        }
        return Mismatch(value);
      case c10::TypeKind::ScalarTypeType:
      case c10::TypeKind::LayoutType:
      case c10::TypeKind::MemoryFormatType:
        if (const auto* integer = std::get_if<int64_t>(&value)) {
          return BuildEnumerator(type.kind(), *integer);
        }
        return Mismatch(value);
      case c10::TypeKind::DeviceObjType:
        if (std::holds_alternative<srg::WorkerDevice>(value)) {
          return c10::IValue(device_);
        }
        return Mismatch(value);
      case c10::TypeKind::GeneratorType:
        if (const auto* slot = std::get_if<srg::GeneratorSlot>(&value)) {
          Vary(*slot);
          return c10::IValue();
        }
        return Mismatch(value);
      default:
        return Bad("type not supported");
    }
  }

  template <typename Source>
  void Vary(Source source) {
    place_.source = std::move(source);
    varies_ = true;
  }

  absl::StatusOr<TensorSource> SourceOf(const srg::TensorView& view) const {
    if (const absl::Status status = CheckViewOfTorch(view); !status.ok()) {
      return Bad(status.message());
    }
    DJINN_ASSIGN_OR_RETURN(const uint64_t extent, srg::ExtentBytes(view));
    srg::TensorView copy = view;
    return TensorSource(Operand{std::move(copy), extent});
  }

  absl::StatusOr<TensorSource> SourceOf(const srg::ScalarTensor& scalar) const {
    if (place_.written) return Bad("a scalar tensor would be written");
    if (!DataTypeToTorch(scalar.data_type).has_value()) {
      return Bad("scalar tensor of unknown data type");
    }
    return TensorSource(scalar);
  }

  absl::StatusOr<c10::IValue> BuildTensor(const srg::Argument& value) {
    TensorSource source;
    if (const auto* view = std::get_if<srg::TensorView>(&value)) {
      DJINN_ASSIGN_OR_RETURN(source, SourceOf(*view));
    } else if (const auto* scalar = std::get_if<srg::ScalarTensor>(&value)) {
      DJINN_ASSIGN_OR_RETURN(source, SourceOf(*scalar));
    } else {
      // An undefined tensor crashes many kernels if the schema requires one.
      return Mismatch(value);
    }
    Vary(std::move(source));
    return c10::IValue(at::Tensor());
  }

  absl::StatusOr<c10::IValue> BuildTensorList(bool optional,
                                              const srg::Argument& value) {
    const auto* entries =
        std::get_if<std::vector<srg::TensorListEntry>>(&value);
    if (entries == nullptr) return Mismatch(value);
    TensorListSource list;
    list.optional = optional;
    for (const srg::TensorListEntry& entry : *entries) {
      TensorSource source;
      if (const auto* view = std::get_if<srg::TensorView>(&entry)) {
        DJINN_ASSIGN_OR_RETURN(source, SourceOf(*view));
      } else if (const auto* scalar = std::get_if<srg::ScalarTensor>(&entry)) {
        DJINN_ASSIGN_OR_RETURN(source, SourceOf(*scalar));
      } else if (!optional) {
        return Bad("an entry is none");
      }
      list.entries.push_back(std::move(source));
    }
    Vary(std::move(list));
    if (optional) return c10::IValue(c10::List<std::optional<at::Tensor>>());
    return c10::IValue(c10::List<at::Tensor>());
  }

  absl::StatusOr<c10::IValue> BuildList(const c10::Type& element,
                                        const srg::Argument& value) {
    switch (element.kind()) {
      case c10::TypeKind::TensorType:
        return BuildTensorList(/*optional=*/false, value);
      case c10::TypeKind::OptionalType:
        if (element.expectRef<c10::OptionalType>().getElementType()->kind() !=
            c10::TypeKind::TensorType) {
          return Bad("type not supported");
        }
        return BuildTensorList(/*optional=*/true, value);
      case c10::TypeKind::IntType:
      case c10::TypeKind::SymIntType:
        return BuildPlainList<int64_t>(value);
      case c10::TypeKind::BoolType:
        return BuildPlainList<bool>(value);
      case c10::TypeKind::FloatType:
        return BuildPlainList<double>(value);
      case c10::TypeKind::NumberType: {
        const auto* scalars = std::get_if<std::vector<srg::Scalar>>(&value);
        if (scalars == nullptr) return Mismatch(value);
        c10::List<c10::Scalar> list;
        list.reserve(scalars->size());
        for (const srg::Scalar& scalar : *scalars) {
          list.push_back(std::visit(
              [](const auto& number) { return ToScalar(number); }, scalar));
        }
        return c10::IValue(std::move(list));
      }
      default:
        return Bad("type not supported");
    }
  }

  template <typename Element>
  absl::StatusOr<c10::IValue> BuildPlainList(const srg::Argument& value) {
    const auto* elements = std::get_if<std::vector<Element>>(&value);
    if (elements == nullptr) return Mismatch(value);
    DJINN_RETURN_IF_ERROR(CheckLength(elements->size()));
    c10::List<Element> list;
    list.reserve(elements->size());
    for (const Element element : *elements) {
      if constexpr (std::is_same_v<Element, int64_t>) {
        CheckInteger(element);
      }
      list.push_back(element);
    }
    return c10::IValue(std::move(list));
  }

  // Limits sizes, strides, dimensions and diagonals, because kernels compute
  // with them before they check them. Does not limit ends of ranges and values
  // to compare with.
  void CheckInteger(int64_t value) {
    if (value <= kMaxInteger && value >= -kMaxInteger) return;
    for (const absl::string_view name :
         {"start", "end", "from", "to", "low", "high", "ignore_index"}) {
      if (argument_.name() == name) return;
    }
    unusable_.Update(Bad(absl::StrCat(value, " is out of range")));
  }

  // Checks a list's length. PyTorch's own front ends make lists of a fixed
  // length, and kernels index them unchecked. Only pooling and convolutions
  // extend shorter lists.
  absl::Status CheckLength(size_t length) const {
    const size_t fixed = argument_.N().value_or(1);
    if (fixed <= 1 || length == fixed) return absl::OkStatus();
    if (length <= 1 && (absl::StrContains(schema_.name(), "pool") ||
                        absl::StartsWith(schema_.name(), "aten::conv"))) {
      return absl::OkStatus();
    }
    return Bad(absl::StrCat(length, " entries, must be ", fixed));
  }

  absl::StatusOr<c10::IValue> BuildFloat(const srg::Argument& value) {
    const auto* hole = std::get_if<srg::FloatHole>(&value);
    if (hole == nullptr) return Mismatch(value);
    Vary(*hole);
    return c10::IValue(0.0);
  }

  absl::StatusOr<c10::IValue> BuildNumber(const srg::Argument& value) {
    if (const auto* integer = std::get_if<int64_t>(&value)) {
      return c10::IValue(*integer);
    }
    if (const auto* boolean = std::get_if<bool>(&value)) {
      return c10::IValue(*boolean);
    }
    if (const auto* number = std::get_if<std::complex<double>>(&value)) {
      return c10::IValue(c10::complex<double>(*number));
    }
    return BuildFloat(value);
  }

  absl::StatusOr<c10::IValue> BuildEnumerator(c10::TypeKind kind,
                                              int64_t number) const {
    bool known = false;
    if (kind == c10::TypeKind::ScalarTypeType) {
      known =
          number >= 0 &&
          number < static_cast<int64_t>(c10::ScalarType::NumOptions) &&
          DataTypeFromTorch(static_cast<c10::ScalarType>(number)).has_value();
    } else if (kind == c10::TypeKind::LayoutType) {
      known = number == static_cast<int64_t>(c10::Layout::Strided);
    } else {
      known = number >= 0 &&
              number < static_cast<int64_t>(c10::MemoryFormat::NumOptions);
    }
    if (!known) return Bad(absl::StrCat("unknown value ", number));
    return c10::IValue(number);
  }

  static c10::Scalar ToScalar(const std::complex<double>& number) {
    return c10::Scalar(c10::complex<double>(number));
  }
  template <typename Number>
  static c10::Scalar ToScalar(Number number) {
    return c10::Scalar(number);
  }

  const c10::FunctionSchema& schema_;
  const c10::Argument& argument_;
  const c10::Device device_;
  Place place_;
  bool varies_ = false;
  absl::Status unusable_;
};

// Returns whether the call writes argument `index`, even if the schema does not
// mark it as written.
bool IsWritten(const c10::FunctionSchema& schema, size_t index,
               const std::vector<srg::Argument>& arguments) {
  const c10::AliasInfo* const alias = schema.arguments()[index].alias_info();
  if (alias != nullptr && alias->isWrite()) return true;
  const std::optional<UnmarkedWrite> write = FindUnmarkedWrite(schema, index);
  if (!write.has_value()) return false;
  if (!write->flag.has_value()) return true;
  const bool* const flag = std::get_if<bool>(&arguments[*write->flag]);
  return flag != nullptr && *flag;
}

// Returns the view that the place reads, or null if it is no plain operand.
const srg::TensorView* ReadView(const Place& place) {
  if (place.written) return nullptr;
  const auto* const source = std::get_if<TensorSource>(&place.source);
  if (source == nullptr) return nullptr;
  const auto* const operand = std::get_if<Operand>(source);
  return operand == nullptr ? nullptr : &operand->view;
}

// Finds the first earlier argument that reads the same view as `place`.
void FindSame(const std::vector<Place>& earlier, Place* place) {
  const srg::TensorView* const view = ReadView(*place);
  if (view == nullptr) return;
  for (const Place& other : earlier) {
    const srg::TensorView* const read = ReadView(other);
    if (read != nullptr && *read == *view) {
      place->same_as = other.argument;
      return;
    }
  }
}

}  // namespace

absl::StatusOr<CallTemplate> BuildCallTemplate(
    const c10::FunctionSchema& schema,
    const std::vector<srg::Argument>& arguments, c10::Device device) {
  if (arguments.size() != schema.arguments().size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(arguments.size(), " arguments, the schema has ",
                     schema.arguments().size()));
  }
  CallTemplate call;
  call.values.reserve(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    ArgumentBuilder builder(schema, static_cast<uint32_t>(i),
                            IsWritten(schema, i, arguments), device);
    DJINN_ASSIGN_OR_RETURN(c10::IValue value, builder.Build(arguments[i]));
    call.values.push_back(std::move(value));
    call.unusable.Update(builder.unusable());
    if (!builder.varies()) continue;
    Place place = builder.TakePlace();
    FindSame(call.places, &place);
    call.places.push_back(std::move(place));
  }
  return call;
}

const Place* PlaceAt(const CallTemplate& call, uint32_t argument) {
  for (const Place& place : call.places) {
    if (place.argument == argument) return &place;
  }
  return nullptr;
}

bool HasPlainFloats(const srg::TensorView& view) {
  return (view.data_type == srg::DataType::kFloat32 ||
          view.data_type == srg::DataType::kFloat16 ||
          view.data_type == srg::DataType::kBfloat16) &&
         !view.conjugate && !view.negative &&
         std::all_of(view.sizes.begin(), view.sizes.end(),
                     [](int64_t size) { return size > 0; });
}

const Operand* FloatsAt(const CallTemplate& call, uint32_t argument) {
  const Place* const place = PlaceAt(call, argument);
  if (place == nullptr || place->written) return nullptr;
  const auto* const source = std::get_if<TensorSource>(&place->source);
  if (source == nullptr) return nullptr;
  const auto* const operand = std::get_if<Operand>(source);
  return operand != nullptr && HasPlainFloats(operand->view) ? operand
                                                             : nullptr;
}

}  // namespace djinn::worker
