#include "client_lib/capture/operators/operator_info.h"

#include <ATen/core/jit_type.h>

#include <string>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/session/model/operator_table.h"
#include "common/torch/allow_list.h"
#include "common/torch/overwrite_table.h"
#include "common/torch/schema_hash.h"

namespace djinn::capture {
namespace {

bool IsTensorLike(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::TensorType) return true;
  if (const auto optional = type->cast<c10::OptionalType>()) {
    return IsTensorLike(optional->getElementType());
  }
  return false;
}

ArgumentKind ListKind(const c10::TypePtr& element) {
  if (IsTensorLike(element)) return ArgumentKind::kTensorList;
  switch (element->kind()) {
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return ArgumentKind::kIntegerList;
    case c10::TypeKind::FloatType:
      return ArgumentKind::kRealList;
    case c10::TypeKind::BoolType:
      return ArgumentKind::kBooleanList;
    case c10::TypeKind::NumberType:
      return ArgumentKind::kScalarList;
    default:
      return ArgumentKind::kUnsupported;
  }
}

ArgumentKind KindOf(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::OptionalType:
      return KindOf(type->castRaw<c10::OptionalType>()->getElementType());
    case c10::TypeKind::TensorType:
      return ArgumentKind::kTensor;
    case c10::TypeKind::ListType:
      return ListKind(type->castRaw<c10::ListType>()->getElementType());
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
    case c10::TypeKind::ScalarTypeType:
    case c10::TypeKind::LayoutType:
    case c10::TypeKind::MemoryFormatType:
      return ArgumentKind::kInteger;
    case c10::TypeKind::FloatType:
      return ArgumentKind::kReal;
    case c10::TypeKind::BoolType:
      return ArgumentKind::kBoolean;
    case c10::TypeKind::NumberType:
      return ArgumentKind::kScalar;
    case c10::TypeKind::StringType:
      return ArgumentKind::kText;
    case c10::TypeKind::DeviceObjType:
      return ArgumentKind::kDevice;
    case c10::TypeKind::GeneratorType:
      return ArgumentKind::kGenerator;
    default:
      return ArgumentKind::kUnsupported;
  }
}

// Returns the position of the number that fills the first argument, for
// operators such as fill_ and masked_fill.
std::optional<size_t> FindFilling(const c10::FunctionSchema& schema) {
  std::string base = schema.name();
  if (base.back() == '_') base.pop_back();
  if (base != "aten::fill" && base != "aten::masked_fill" &&
      base != "aten::index_fill") {
    return std::nullopt;
  }
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (argument.name() == "value" &&
        argument.type()->kind() == c10::TypeKind::NumberType) {
      return i;
    }
  }
  return std::nullopt;
}

bool IsWritten(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// Returns whether the operator's floating-point arguments decide the result's
// shape, or whether there is a result. For example, dropout returns its input
// if the probability is 0, attention has other strides with dropout than
// without, and cross entropy refuses to smooth labels by more than 1.
bool RealsDecideShape(const std::string& name) {
  return name == "aten::dropout" || name == "aten::cross_entropy_loss" ||
         name == "aten::scaled_dot_product_attention" ||
         absl::StartsWith(name, "aten::arange") ||
         absl::StartsWith(name, "aten::range") ||
         absl::StrContains(name, "upsample");
}

bool WritesByOthers(const c10::OperatorHandle& op, bool is_out) {
  const c10::FunctionSchema& schema = op.schema();
  if (op.hasKernelForDispatchKey(c10::DispatchKey::ADInplaceOrView) ||
      !(is_out ? absl::StartsWith(schema.name(), "aten::")
               : absl::StartsWith(schema.name(), "aten::_foreach_"))) {
    return false;
  }
  return absl::c_any_of(schema.arguments(), [](const c10::Argument& argument) {
    return IsWritten(argument) &&
           KindOf(argument.real_type()) == ArgumentKind::kTensorList;
  });
}

c10::DispatchKey ReentryKey(const c10::OperatorHandle& op) {
  for (const c10::DispatchKey key :
       {c10::DispatchKey::CompositeExplicitAutogradNonFunctional,
        c10::DispatchKey::CompositeExplicitAutograd,
        c10::DispatchKey::CompositeImplicitAutograd}) {
    if (op.hasKernelForDispatchKey(key)) return key;
  }
  return c10::DispatchKey::Undefined;
}

// Returns the operators that, in all their overloads and as long as all numbers
// are integers, neither round nor draw random numbers nor depend on a mode.
const absl::flat_hash_set<std::string>& ExactOperators() {
  static const auto* const names = new absl::flat_hash_set<std::string>{
      "aten::add",
      "aten::all",
      "aten::amax",
      "aten::amin",
      "aten::any",
      "aten::arange",
      "aten::bitwise_and",
      "aten::bitwise_not",
      "aten::bitwise_or",
      "aten::bitwise_xor",
      "aten::cat",
      "aten::clone",
      "aten::constant_pad_nd",
      "aten::count_nonzero",
      "aten::cumsum",
      "aten::eq",
      "aten::full",
      "aten::full_like",
      "aten::ge",
      "aten::gt",
      "aten::le",
      "aten::logical_and",
      "aten::logical_not",
      "aten::logical_or",
      "aten::logical_xor",
      "aten::lt",
      "aten::max",
      "aten::min",
      "aten::mul",
      "aten::ne",
      "aten::neg",
      "aten::new_full",
      "aten::new_ones",
      "aten::new_zeros",
      "aten::ones",
      "aten::ones_like",
      "aten::rsub",
      "aten::sub",
      "aten::sum",
      "aten::zeros",
      "aten::zeros_like",
  };
  return *names;
}

bool OverwritesByName(const std::string& name) {
  return name == "aten::copy_" || name == "aten::fill_" ||
         name == "aten::zero_";
}

// Operators whose kernels, on the CPU, throw for matrices that they cannot
// decompose. PyTorch checks the others by _linalg_check_errors.
bool MayNotConverge(const std::string& name) {
  static const auto* const names = new absl::flat_hash_set<std::string>{
      "aten::_linalg_eigh",   "aten::_linalg_eigvals",  "aten::_linalg_svd",
      "aten::cholesky",       "aten::cholesky_inverse", "aten::linalg_eig",
      "aten::linalg_eigvals", "aten::linalg_lstsq",     "aten::linalg_pinv",
  };
  return names->contains(name);
}

}  // namespace

OperatorInfo::OperatorInfo(const c10::OperatorHandle& op) : handle(op) {
  const c10::FunctionSchema& schema = op.schema();
  name = schema.overload_name().empty()
             ? schema.name()
             : absl::StrCat(schema.name(), ".", schema.overload_name());
  operator_id = OperatorTable::Global().Add(
      {schema.name(), schema.overload_name(), SchemaHash(schema)});
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    ArgumentInfo info;
    info.kind = KindOf(argument.real_type());
    if (IsWritten(argument)) {
      writes = true;
      info.is_out = argument.is_out();
      is_out |= info.is_out;
      info.access = Overwrites(schema, i) ? kOverwrites : kWrites;
    } else {
      info.unmarked = FindUnmarkedWrite(schema, i);
    }
    if (info.kind == ArgumentKind::kGenerator) may_draw = true;
    if (argument.name() == "check_errors") checks_errors = i;
    if (info.kind == ArgumentKind::kDevice && i > 0 &&
        arguments[0].kind == ArgumentKind::kTensor) {
      other_device = i;
    }
    arguments.push_back(info);
  }
  bool returns_argument = false;
  for (const c10::Argument& returned : schema.returns()) {
    int source = -1;
    if (returned.alias_info() != nullptr) {
      if (!returned.alias_info()->isWrite()) {
        is_view = true;
      } else {
        for (size_t i = 0; i < schema.arguments().size(); ++i) {
          const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
          if (alias != nullptr && *alias == *returned.alias_info()) {
            source = static_cast<int>(i);
            break;
          }
        }
      }
    }
    returned_arguments.push_back(source);
    returns_list.push_back(KindOf(returned.real_type()) ==
                           ArgumentKind::kTensorList);
    (source < 0 ? fresh_results : returns_argument) = true;
  }
  may_draw = may_draw || op.hasTag(at::Tag::nondeterministic_seeded);
  is_custom = !absl::StartsWith(name, "aten::");
  if (writes && !is_custom) output_rules = OutputRulesOf(op);
  writes_by_others = WritesByOthers(op, is_out);
  filling = FindFilling(schema);
  host_use = HostUseOf(schema);
  takes_numbers = absl::c_any_of(arguments, [](const ArgumentInfo& argument) {
    return argument.kind == ArgumentKind::kScalar;
  });
  reals_shape = may_draw || RealsDecideShape(name);
  takes_cpu_indices = absl::StartsWith(name, "aten::index.") ||
                      absl::StartsWith(name, "aten::index_put") ||
                      absl::StartsWith(name, "aten::_index_put_impl") ||
                      absl::StartsWith(name, "aten::_unsafe_index");
  may_not_converge = checks_errors.has_value() || MayNotConverge(schema.name());
  if (!writes) reentry = ReentryKey(op);
  is_composite_on_cpu =
      reentry == c10::DispatchKey::CompositeExplicitAutograd &&
      !op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
  // Dropout's composite shows whether it returns its input; a rule cannot.
  if (name != "aten::dropout") rule = FindShapeRule(name);
  if (!is_view) {
    const absl::Status allowed =
        is_custom ? CheckCustom(schema) : CheckAllowed(schema);
    if (!allowed.ok()) {
      refusal = std::string(allowed.message());
    } else if (fresh_results && returns_argument) {
      refusal = absl::StrCat(name,
                             " returns both an argument that it writes and a "
                             "new tensor, which remote devices do not support");
    }
  }
}

bool AwaitsOutcome(const OperatorInfo& info,
                   c10::ArrayRef<c10::IValue> arguments) {
  return info.may_not_converge && (!info.checks_errors.has_value() ||
                                   arguments[*info.checks_errors].toBool());
}

HostUse HostUseOf(const c10::FunctionSchema& schema) {
  const bool makes_one_tensor =
      schema.returns().size() == 1 &&
      schema.returns()[0].type()->kind() == c10::TypeKind::TensorType;
  if (!makes_one_tensor) return HostUse::kNone;
  if (OverwritesByName(schema.name())) return HostUse::kOverwrites;
  const bool writes =
      absl::c_any_of(schema.arguments(), [](const c10::Argument& argument) {
        return argument.alias_info() != nullptr &&
               argument.alias_info()->isWrite();
      });
  return !writes && ExactOperators().contains(schema.name()) ? HostUse::kReturns
                                                             : HostUse::kNone;
}

}  // namespace djinn::capture
