#include "common/torch/allow_list.h"

#include <algorithm>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "common/base/error.h"
#include "common/torch/generator_operators.h"
#include "common/torch/packed_operators.h"
#include "common/torch/sparse_operators.h"

namespace djinn {
namespace {

using NameSet = absl::flat_hash_set<absl::string_view>;

// Prefixes of operator families that are refused as a whole, of tensors that
// are not plain.
constexpr absl::string_view kSparsePrefixes[] = {
    "sparse_",     "_sparse",     "to_sparse", "_to_sparse",   "copy_sparse_",
    "_nested",     "nested_",     "_cslt",     "crow_indices", "ccol_indices",
    "col_indices", "row_indices", "_coalesce", "_indices",     "_values"};
constexpr absl::string_view kQuantizedPrefixes[] = {
    "quantize_",  "quantized_", "_quantize",     "q_",
    "_make_per_", "fbgemm_",    "_empty_affine", "_empty_per_channel",
    "_wrapped_"};
// Prefixes of other families.
constexpr absl::string_view kRefusedPrefixes[] = {
    // PyTorch's own tests and helpers.
    "_test", "_foobar", "_print", "_validate_", "_use_",
    // Backends of single vendors.
    "mkldnn_", "_mkldnn", "cudnn_", "_cudnn", "_cufft", "miopen_", "_nnpack",
    "mps_", "_mps", "_triton",
    // Storages, and sizes that change under an operand.
    "resize", "_resize", "set_", "_pin_memory",
    // Autograd, functorch and other backends' bookkeeping.
    "_fw_primal", "_make_dual", "_unpack_dual", "_propagate", "align_",
    "rename", "refine_names"};

const NameSet& RefusedNames() {
  static const auto* const kNames = new NameSet{
      "from_file", "set", "record_stream", "pin_memory", "_to_cpu",
      // Metadata changes in place, which the client executes itself.
      "as_strided_", "t_", "transpose_", "squeeze_", "unsqueeze_", "swapaxes_",
      "swapdims_", "detach_", "requires_grad_", "retain_grad",
      // These operators return results that have no memory, share memory under
      // another storage, or are views that may reach beyond their storage.
      "_lazy_clone", "_efficientzerotensor", "_reshape_alias",
      "_reshape_alias_copy",
      // Kernels behind an operator that checks its arguments. The kernels do
      // not, and with invalid arguments they read and write outside their
      // operands. The operator itself is sent instead.
      "_stack", "_chunk_cat", "_foreach_copy", "_cummax_helper",
      "_cummin_helper", "_cholesky_solve_helper",
      "_convert_indices_from_coo_to_csr", "_convert_indices_from_csr_to_coo",
      "_batch_norm_no_update", "_sobol_engine_draw", "_sobol_engine_ff_",
      "_sobol_engine_scramble_", "_sobol_engine_initialize_state_",
      "_new_zeros_with_same_feature_meta",
      "_thnn_differentiable_lstm_cell_backward",
      "_thnn_differentiable_gru_cell_backward", "_transform_bias_rescale_qkv",
      "choose_qparams_optimized", "_linalg_eigvals",
      "_grid_sampler_2d_cpu_fallback", "_grid_sampler_2d_cpu_fallback_backward",
      // Autograd and functorch.
      "_backward", "_add_batch_dim", "_remove_batch_dim", "get_gradients",
      "_make_dep_token",
      // Sparse, nested, quantised and vendor formats under plain names.
      "hspmm", "smm", "sspaddmm", "_spdiags", "_spsolve", "indices", "values",
      "coalesce", "embedding_sparse_backward", "_embedding_bag_sparse_backward",
      "_gather_sparse_backward", "to_padded_tensor", "indices_copy",
      "values_copy", "empty_quantized", "dequantize", "int_repr", "to_mkldnn",
      "to_mkldnn_backward", "_lstm_mps", "lstm_mps_backward"};
  return *kNames;
}

bool IsPlainType(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::OptionalType:
      return IsPlainType(*type.expectRef<c10::OptionalType>().getElementType());
    case c10::TypeKind::ListType: {
      const c10::Type& element =
          *type.expectRef<c10::ListType>().getElementType();
      // Lists of strings are dimension names.
      return element.kind() != c10::TypeKind::StringType &&
             element.kind() != c10::TypeKind::ListType && IsPlainType(element);
    }
    case c10::TypeKind::TensorType:
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::NumberType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::ScalarTypeType:
    case c10::TypeKind::LayoutType:
    case c10::TypeKind::MemoryFormatType:
    case c10::TypeKind::DeviceObjType:
    case c10::TypeKind::GeneratorType:
      return true;
    default:
      return false;
  }
}

bool IsObject(const c10::Type& type) {
  return type.kind() == c10::TypeKind::ClassType;
}

bool IsTensorOrList(const c10::Type& type) {
  if (const auto* list = type.castRaw<c10::ListType>()) {
    return list->getElementType()->kind() == c10::TypeKind::TensorType;
  }
  return type.kind() == c10::TypeKind::TensorType;
}

bool BeginsWithAny(absl::string_view name,
                   absl::Span<const absl::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [name](absl::string_view prefix) {
                       return absl::StartsWith(name, prefix);
                     });
}

absl::Status Refuse(const c10::FunctionSchema& schema,
                    absl::string_view cause) {
  std::string name = schema.name();
  if (!schema.overload_name().empty()) {
    absl::StrAppend(&name, ".", schema.overload_name());
  }
  return MakeError(absl::StatusCode::kPermissionDenied, "OPERATOR_REFUSED",
                   absl::StrCat("operator ", name, " is refused: ", cause),
                   {{"operator", name}});
}

}  // namespace

absl::Status CheckAllowed(const c10::FunctionSchema& schema) {
  absl::string_view name = schema.name();
  // These check what they are given.
  if (absl::StartsWith(name, kRandomNamespace) ||
      absl::StartsWith(name, kSparseNamespace) ||
      absl::StartsWith(name, kPackedNamespace)) {
    return CheckCustom(schema);
  }
  if (!absl::ConsumePrefix(&name, "aten::")) {
    return Refuse(schema, "only operators of namespace aten run remotely");
  }
  if (RefusedNames().contains(name)) return Refuse(schema, "not on the list");
  if (BeginsWithAny(name, kSparsePrefixes)) {
    return Refuse(schema, "remote devices have strided tensors only");
  }
  if (BeginsWithAny(name, kQuantizedPrefixes)) {
    return Refuse(schema, "remote devices have no quantised tensors");
  }
  if (BeginsWithAny(name, kRefusedPrefixes)) {
    return Refuse(schema, "not on the list");
  }
  // Overloads that take dimension names, which are strings to the schema, show
  // it in their names: "Dimname", "DimnameList_out", "names_dim".
  for (const absl::string_view mark : {"Dimname", "dimname", "names"}) {
    if (absl::StrContains(schema.overload_name(), mark)) {
      return Refuse(schema, "dimension names are not supported");
    }
  }
  return CheckCustom(schema);
}

absl::Status CheckCustom(const c10::FunctionSchema& schema) {
  if (schema.is_vararg() || schema.is_varret()) {
    return Refuse(schema, "it takes or returns a varying number of values");
  }
  for (const c10::Argument& argument : schema.arguments()) {
    if (!IsPlainType(*argument.real_type())) {
      return Refuse(schema,
                    absl::StrCat("argument ", argument.name(), " is of type ",
                                 argument.real_type()->repr_str(),
                                 IsObject(*argument.real_type())
                                     ? ", an object such as packed weights, "
                                       "which stays in its process: take the "
                                       "operands to it by cpu()"
                                     : ""));
    }
  }
  for (const c10::Argument& result : schema.returns()) {
    if (!IsTensorOrList(*result.real_type())) {
      return Refuse(
          schema, absl::StrCat("it returns ", result.real_type()->repr_str()));
    }
  }
  return absl::OkStatus();
}

}  // namespace djinn
