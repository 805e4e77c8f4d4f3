#include "common/torch/sparse_operators.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "ATen/core/LegacyTypeDispatch.h"
#include "ATen/core/boxing/OperatorKernel.h"
#include "ATen/core/dispatch/Dispatcher.h"
#include "ATen/core/stack.h"
#include "ATen/ops/_sparse_compressed_tensor_unsafe.h"
#include "ATen/ops/_sparse_coo_tensor_unsafe.h"
#include "ATen/ops/_validate_sparse_compressed_tensor_args.h"
#include "ATen/ops/_validate_sparse_coo_tensor_args.h"
#include "ATen/ops/empty.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "c10/core/GradMode.h"
#include "common/torch/sparse_checks.h"
#include "torch/library.h"

namespace djinn {
namespace {

using torch::jit::Stack;

enum class Kind { kAnyLayout, kStrided, kStridedPair, kInPlace };

using sparse::Operands;
using sparse::OtherArguments;

struct SparseOperator {
  // PyTorch's operator, without "aten::".
  const char* name;
  const char* overload;
  Kind kind;
  // The arguments that are not tensors, as in a schema.
  const char* arguments;
  sparse::Prepare prepare = nullptr;
};

constexpr char kProductNumbers[] = ", *, Scalar beta=1, Scalar alpha=1";
constexpr char kReduced[] =
    ", int[] dim, bool keepdim=False, *, ScalarType? dtype=None";

constexpr char kBlocks[] = ", int[] blocksize, int? dense_dim=None";

constexpr SparseOperator kOperators[] = {
    {"_coalesce", "", Kind::kAnyLayout, ""},
    {"add", "Tensor", Kind::kAnyLayout, ", *, Scalar alpha=1"},
    {"mul", "Tensor", Kind::kAnyLayout, ""},
    {"addmm", "", Kind::kAnyLayout, kProductNumbers},
    {"hspmm", "", Kind::kAnyLayout, ""},
    {"index_select", "", Kind::kAnyLayout, ", int dim"},
    {"sparse_mask", "", Kind::kAnyLayout, ""},
    {"_sparse_mask_projection", "", Kind::kAnyLayout,
     ", bool accumulate_matches=False"},
    {"_sparse_sparse_matmul", "", Kind::kAnyLayout, ""},
    {"_sparse_sum_backward", "", Kind::kAnyLayout, ", int[] dim"},
    {"_sparse_softmax", "", Kind::kAnyLayout, ", int dim, bool half_to_float"},
    {"_sparse_softmax_backward_data", "", Kind::kAnyLayout, ", int dim"},
    {"_sparse_log_softmax", "", Kind::kAnyLayout,
     ", int dim, bool half_to_float"},
    {"_sparse_log_softmax_backward_data", "", Kind::kAnyLayout, ", int dim"},
    {"_sparse_csr_sum", "dim_dtype", Kind::kAnyLayout, kReduced},
    {"_sparse_csr_prod", "dim_dtype", Kind::kAnyLayout, kReduced},
    {"sparse_sampled_addmm", "", Kind::kAnyLayout, kProductNumbers},
    {"_to_sparse_csr", "", Kind::kAnyLayout, ", int? dense_dim=None"},
    {"_to_sparse_csc", "", Kind::kAnyLayout, ", int? dense_dim=None"},
    {"_to_sparse_bsr", "", Kind::kAnyLayout, kBlocks},
    {"_to_sparse_bsc", "", Kind::kAnyLayout, kBlocks},
    {"sspaddmm", "", Kind::kAnyLayout, kProductNumbers},
    {"_spdiags", "", Kind::kAnyLayout, ", int[] shape, int? result_layout=None",
     sparse::CheckDiagonals},
    {"triangular_solve", "", Kind::kAnyLayout,
     ", bool upper=True, bool transpose=False, bool unitriangular=False",
     sparse::CheckTriangular},
    {"_sparse_mm_reduce_impl", "", Kind::kStridedPair,
     ", str reduce, bool returns_sources=False", sparse::PrepareReducedProduct},
    {"_sparse_mm_reduce_impl_backward", "", Kind::kStridedPair,
     ", str reduce, bool[2] output_mask", sparse::CheckReducedProductGradient},
    {"addmm", "", Kind::kStrided, kProductNumbers},
    {"addmv", "out", Kind::kStrided, kProductNumbers},
    {"bmm", "", Kind::kStrided, ""},
    {"add_", "Tensor", Kind::kInPlace, ", *, Scalar alpha=1"},
};

// The description of one tensor in `layout`: its layout, whether it is
// coalesced, the number of its sizes, and its sizes. Instead of 0 and 1, the
// second number of a tensor that is the same as an earlier operand is the
// operand's position and kSame.
struct Description {
  c10::Layout layout;
  bool coalesced;
  std::optional<size_t> same_as;
  c10::IntArrayRef sizes;
};

constexpr int64_t kSame = 2;

size_t PartCount(c10::Layout layout) {
  switch (layout) {
    case c10::kStrided:
      return 1;
    case c10::kSparse:
      return 2;
    case c10::kSparseCsr:
    case c10::kSparseCsc:
    case c10::kSparseBsr:
    case c10::kSparseBsc:
      return 3;
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "tensors of layout ", layout,
                                  " are not supported on remote devices");
  }
}

// Takes the first description off `layout`.
Description TakeDescription(c10::IntArrayRef* layout) {
  constexpr size_t kHead = 3;
  TORCH_CHECK(layout->size() >= kHead, "a sparse operand has no description");
  const int64_t number = (*layout)[0];
  TORCH_CHECK(
      number >= 0 && number < static_cast<int64_t>(c10::Layout::NumOptions),
      "a sparse operand has an unknown layout, ", number);
  const int64_t dimensions = (*layout)[2];
  TORCH_CHECK(dimensions >= 0 &&
                  static_cast<size_t>(dimensions) <= layout->size() - kHead,
              "a sparse operand has ", dimensions,
              " dimensions and fewer sizes");
  const int64_t second = (*layout)[1];
  std::optional<size_t> same_as;
  if (second >= kSame) same_as = static_cast<size_t>(second - kSame);
  const Description description{
      static_cast<c10::Layout>(number), second == 1, same_as,
      layout->slice(kHead, static_cast<size_t>(dimensions))};
  for (const int64_t size : description.sizes) {
    TORCH_CHECK(size >= 0, "a sparse operand has the negative size ", size);
  }
  *layout = layout->slice(kHead + static_cast<size_t>(dimensions));
  return description;
}

// Takes the first `count` tensors off `parts`.
at::TensorList TakeParts(size_t count, at::TensorList* parts) {
  TORCH_CHECK(parts->size() >= count, "a sparse operand has too few parts");
  const at::TensorList taken = parts->slice(0, count);
  *parts = parts->slice(count);
  return taken;
}

at::Tensor Join(const Description& description, at::TensorList parts) {
  if (description.layout == c10::kStrided) return parts[0];
  const at::TensorOptions options =
      parts.back().options().layout(description.layout);
  if (description.layout == c10::kSparse) {
    return at::_sparse_coo_tensor_unsafe(parts[0], parts[1], description.sizes,
                                         options, description.coalesced);
  }
  return at::_sparse_compressed_tensor_unsafe(parts[0], parts[1], parts[2],
                                              description.sizes, options);
}

// Throws unless the indices of a compressed tensor are within it. They may be
// in any order within a row, which kernels accept and PyTorch's check does not.
void CheckCompressed(const Description& description,
                     const at::Tensor& compressed, const at::Tensor& plain,
                     const at::Tensor& values) {
  const int64_t batch = compressed.dim() - 1;
  const bool rows = description.layout == c10::kSparseCsr ||
                    description.layout == c10::kSparseBsr;
  const bool blocks = description.layout == c10::kSparseBsr ||
                      description.layout == c10::kSparseBsc;
  const int64_t dimension = batch + (rows ? 1 : 0);
  const int64_t size =
      description.sizes[dimension] /
      (blocks ? std::max<int64_t>(1, values.size(dimension + 1)) : 1);
  const at::Tensor counts = compressed.diff(1, -1);
  const auto all = [](const at::Tensor& holds) {
    return holds.all().item<bool>();
  };
  TORCH_CHECK(all(compressed.select(-1, 0).eq(0)) &&
                  all(compressed.select(-1, -1).eq(plain.size(-1))) &&
                  all(counts.ge(0)) && all(counts.le(size)) &&
                  all(plain.ge(0)) && all(plain.lt(size)),
              "a sparse operand has an index outside its sizes, ",
              description.sizes);
}

// Throws if an index is outside the tensor, or the parts do not fit together.
// Kernels trust both.
void CheckParts(const Description& description, at::TensorList parts) {
  if (description.layout == c10::kStrided) return;
  if (description.layout == c10::kSparse) {
    TORCH_CHECK(parts[0].scalar_type() == c10::kLong,
                "indices must be an int64 tensor");
    at::_validate_sparse_coo_tensor_args(parts[0], parts[1], description.sizes);
    return;
  }
  try {
    at::_validate_sparse_compressed_tensor_args(
        parts[0], parts[1], parts[2], description.sizes, description.layout);
  } catch (const c10::Error& error) {
    // The parts' sizes and types are right. Other rows were perhaps not
    // checked.
    if (!absl::StrContains(error.what_without_backtrace(),
                           "sorted and distinct")) {
      throw;
    }
    CheckCompressed(description, parts[0], parts[1], parts[2]);
  }
}

// Returns the operands that `parts` and `layout` describe, with indices that
// were checked.
std::vector<at::Tensor> JoinOperands(at::TensorList parts,
                                     c10::IntArrayRef layout) {
  std::vector<at::Tensor> operands;
  while (!layout.empty()) {
    const Description description = TakeDescription(&layout);
    const at::TensorList own = TakeParts(PartCount(description.layout), &parts);
    if (description.same_as.has_value()) {
      TORCH_CHECK(*description.same_as < operands.size(),
                  "a sparse operand is the same as one that is not there");
      operands.push_back(operands[*description.same_as]);
      continue;
    }
    CheckParts(description, own);
    operands.push_back(Join(description, own));
  }
  TORCH_CHECK(parts.empty(), "the operands have ", parts.size(),
              " parts too many");
  return operands;
}

// Returns the tensor, or a copy of it if it shares memory with one of `others`
// or is not the whole of its storage.
at::Tensor WithOwnMemory(const at::Tensor& tensor, at::TensorList others) {
  const bool shared = std::any_of(
      others.begin(), others.end(),
      [&](const at::Tensor& other) { return tensor.is_alias_of(other); });
  if (!shared && tensor.is_contiguous() && tensor.storage_offset() == 0 &&
      tensor.storage().nbytes() == tensor.nbytes()) {
    return tensor;
  }
  return tensor.clone(at::MemoryFormat::Contiguous);
}

// Appends the four tensors that JoinResult() takes. The last one has no
// elements: its sizes are 0 and the description, so that they arrive together
// with the sizes of the others.
void AppendResult(const at::Tensor& result, std::vector<at::Tensor> operands,
                  Stack* stack) {
  std::vector<at::Tensor> parts;
  std::vector<int64_t> layout = {0};
  AppendParts(result, &parts, &layout);
  at::TensorOptions options = parts[0].options();
  for (at::Tensor& part : parts) {
    part = WithOwnMemory(part, operands);
    operands.push_back(part);
  }
  while (parts.size() < 3) parts.push_back(at::empty({0}, options));
  parts.push_back(at::empty(layout, options.dtype(c10::kByte)));
  for (at::Tensor& part : parts) stack->emplace_back(std::move(part));
}

bool IsTensor(const c10::Argument& argument) {
  return argument.type()->kind() == c10::TypeKind::TensorType;
}

// Runs one of PyTorch's operators on tensors that it builds from parts.
class PartsKernel final : public c10::OperatorKernel {
 public:
  PartsKernel(c10::OperatorHandle op, const SparseOperator& description)
      : op_(op), kind_(description.kind), prepare_(description.prepare) {}

  void operator()(const c10::OperatorHandle& called, c10::DispatchKeySet,
                  Stack* stack) {
    const std::vector<c10::IValue> arguments =
        torch::jit::pop(*stack, called.schema().arguments().size());
    auto argument = arguments.begin();
    Operands operands;
    if (kind_ == Kind::kInPlace) operands.push_back((argument++)->toTensor());
    const std::vector<at::Tensor> parts = (argument++)->toTensorVector();
    const std::vector<int64_t> layout = (argument++)->toIntVector();
    for (at::Tensor& operand : JoinOperands(parts, layout)) {
      operands.push_back(std::move(operand));
    }
    OtherArguments others(argument, arguments.end());
    if (prepare_ != nullptr) prepare_(&operands, &others);
    Stack call = Arrange(operands, others);
    Execute(&call);
    const at::Tensor result = call.at(0).toTensor();
    switch (kind_) {
      case Kind::kAnyLayout:
        AppendResult(result, parts, stack);
        return;
      case Kind::kStrided:
        TORCH_CHECK(result.layout() == c10::kStrided, op_.schema().name(),
                    " returned a tensor of layout ", result.layout());
        stack->emplace_back(WithOwnMemory(result, parts));
        return;
      case Kind::kStridedPair:
        for (const c10::IValue& value : call) {
          stack->emplace_back(
              WithOwnMemory(Strided(value.toTensor(), parts), parts));
        }
        return;
      case Kind::kInPlace:
        stack->emplace_back(operands[0]);
        return;
    }
  }

 private:
  // Calls the operator and records nothing of it, even if an operand requires
  // gradients.
  void Execute(Stack* call) const {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const at::AutoGradMode as_recorded(
        std::any_of(call->begin(), call->end(), [](const c10::IValue& value) {
          return value.isTensor() && value.toTensor().requires_grad();
        }));
    op_.callBoxed(*call);
  }

  // Returns the values of a sparse result, and no elements for an undefined
  // one.
  static at::Tensor Strided(const at::Tensor& result, at::TensorList parts) {
    if (!result.defined()) return at::empty({0}, parts.back().options());
    return result.layout() == c10::kStrided ? result : result.values();
  }

  // Returns the arguments in the order of PyTorch's operator. An output is a
  // new tensor.
  Stack Arrange(const Operands& operands, const OtherArguments& others) const {
    Stack call;
    size_t next = 0;
    auto other = others.begin();
    for (const c10::Argument& argument : op_.schema().arguments()) {
      if (argument.is_out()) {
        call.emplace_back(at::empty({0}, operands.at(0).options()));
      } else if (IsTensor(argument)) {
        TORCH_CHECK(next < operands.size(), op_.schema().name(),
                    " misses the operand ", argument.name());
        call.emplace_back(operands[next++]);
      } else {
        TORCH_CHECK(other != others.end(), op_.schema().name(),
                    " misses the argument ", argument.name());
        call.push_back(*other++);
      }
    }
    TORCH_CHECK(next == operands.size(), op_.schema().name(), " takes ", next,
                " tensors, not ", operands.size());
    return call;
  }

  const c10::OperatorHandle op_;
  const Kind kind_;
  const sparse::Prepare prepare_;
};

// Checks the operands of a product and returns the sizes of its result.
std::vector<int64_t> ProductSizes(absl::string_view name,
                                  const std::vector<c10::IntArrayRef>& sizes) {
  const bool has_addend = name != "bmm";
  const c10::IntArrayRef first = sizes.at(has_addend ? 1 : 0);
  const c10::IntArrayRef second = sizes.at(has_addend ? 2 : 1);
  const size_t rank = name == "bmm" ? 3 : 2;
  const size_t second_rank = name == "addmv" ? 1 : rank;
  TORCH_CHECK(first.size() == rank && second.size() == second_rank,
              std::string(name), ": expected operands of ", rank, " and ",
              second_rank, " dimensions, but got sizes ", first, " and ",
              second);
  const size_t inner = second_rank == 1 ? 0 : rank - 2;
  TORCH_CHECK(first[rank - 1] == second[inner], std::string(name),
              ": the operands' inner sizes differ: ", first, " and ", second);
  TORCH_CHECK(rank == 2 || first[0] == second[0], std::string(name),
              ": the numbers of matrices differ: ", first, " and ", second);
  std::vector<int64_t> result(first.begin(), first.end() - 1);
  if (second_rank > 1) result.push_back(second.back());
  return result;
}

// Returns a result without data for a product of any of the operands' layouts.
at::Tensor MetaProduct(absl::string_view name, at::TensorList parts,
                       c10::IntArrayRef layout) {
  std::vector<c10::IntArrayRef> sizes;
  std::vector<c10::ScalarType> types;
  c10::ScalarType expected = parts.back().scalar_type();
  while (!layout.empty()) {
    const Description description = TakeDescription(&layout);
    const at::Tensor& values =
        TakeParts(PartCount(description.layout), &parts).back();
    types.push_back(values.scalar_type());
    if (description.layout != c10::kStrided) expected = types.back();
    sizes.push_back(description.sizes);
  }
  for (const c10::ScalarType type : types) {
    TORCH_CHECK(type == expected, "expected scalar type ", expected,
                " but found ", type);
  }
  return at::empty(ProductSizes(name, sizes),
                   at::TensorOptions(c10::kMeta).dtype(expected));
}

class MetaProductKernel final : public c10::OperatorKernel {
 public:
  explicit MetaProductKernel(std::string name) : name_(std::move(name)) {}

  void operator()(const c10::OperatorHandle& called, c10::DispatchKeySet,
                  Stack* stack) {
    const std::vector<c10::IValue> arguments =
        torch::jit::pop(*stack, called.schema().arguments().size());
    stack->emplace_back(MetaProduct(name_, arguments[0].toTensorVector(),
                                    arguments[1].toIntVector()));
  }

 private:
  const std::string name_;
};

void MetaInPlace(const c10::OperatorHandle& called, Stack* stack) {
  torch::jit::drop(*stack, called.schema().arguments().size() - 1);
}

std::string SchemaOf(const SparseOperator& op) {
  constexpr absl::string_view kParts = "Tensor[] parts, int[] layout";
  switch (op.kind) {
    case Kind::kAnyLayout:
      return absl::StrCat(op.name, "(", kParts, op.arguments,
                          ") -> (Tensor, Tensor, Tensor, Tensor)");
    case Kind::kStrided:
      return absl::StrCat(op.name, ".strided(", kParts, op.arguments,
                          ") -> Tensor");
    case Kind::kStridedPair:
      return absl::StrCat(op.name, "(", kParts, op.arguments,
                          ") -> (Tensor, Tensor)");
    case Kind::kInPlace:
      return absl::StrCat(op.name, "(Tensor(a!) self, ", kParts, op.arguments,
                          ") -> Tensor(a!)");
  }
  return "";
}

class Definitions {
 public:
  Definitions() {
    for (const SparseOperator& op : kOperators) Define(op);
  }

 private:
  void Define(const SparseOperator& op) {
    library_.def(SchemaOf(op).c_str());
    const std::string name =
        absl::StrCat(op.name, op.kind == Kind::kStrided ? ".strided" : "");
    const c10::OperatorHandle own =
        c10::Dispatcher::singleton().findSchemaOrThrow(
            absl::StrCat("aten::", op.name).c_str(), op.overload);
    for (torch::Library* library : {&cpu_, &cuda_}) {
      library->impl(name.c_str(), torch::CppFunction::makeFromBoxedFunctor(
                                      std::make_unique<PartsKernel>(own, op)));
    }
    if (op.kind == Kind::kStrided) {
      meta_.impl(name.c_str(),
                 torch::CppFunction::makeFromBoxedFunctor(
                     std::make_unique<MetaProductKernel>(op.name)));
    } else if (op.kind == Kind::kInPlace) {
      meta_.impl(name.c_str(),
                 torch::CppFunction::makeFromBoxedFunction<&MetaInPlace>());
    }
  }

  torch::Library library_{torch::Library::DEF, "djinn_sparse", std::nullopt,
                          __FILE__, __LINE__};
  torch::Library cpu_{torch::Library::IMPL, "djinn_sparse",
                      c10::DispatchKey::CPU, __FILE__, __LINE__};
  torch::Library cuda_{torch::Library::IMPL, "djinn_sparse",
                       c10::DispatchKey::CUDA, __FILE__, __LINE__};
  torch::Library meta_{torch::Library::IMPL, "djinn_sparse",
                       c10::DispatchKey::Meta, __FILE__, __LINE__};
};

}  // namespace

void DefineSparseOperators() {
  // Never destroyed, because the dispatcher outlives static destructors. A
  // process may load two libraries that contain this function.
  static const Definitions* const definitions =
      c10::Dispatcher::singleton()
              .findSchema({absl::StrCat(kSparseNamespace, "_coalesce"), ""})
              .has_value()
          ? nullptr
          : new Definitions;
  (void)definitions;
}

void AppendParts(const at::Tensor& tensor, std::vector<at::Tensor>* parts,
                 std::vector<int64_t>* layout, std::optional<size_t> same_as) {
  const c10::Layout kind = tensor.layout();
  (void)PartCount(kind);  // throws for other layouts
  layout->push_back(static_cast<int64_t>(kind));
  if (same_as.has_value()) {
    layout->push_back(static_cast<int64_t>(*same_as) + kSame);
  } else {
    layout->push_back(kind == c10::kSparse && tensor.is_coalesced() ? 1 : 0);
  }
  layout->push_back(tensor.dim());
  layout->insert(layout->end(), tensor.sizes().begin(), tensor.sizes().end());
  if (kind == c10::kStrided) {
    parts->push_back(tensor);
    return;
  }
  if (kind == c10::kSparse) {
    parts->push_back(tensor._indices());
    parts->push_back(tensor._values());
    return;
  }
  const bool rows = kind == c10::kSparseCsr || kind == c10::kSparseBsr;
  parts->push_back(rows ? tensor.crow_indices() : tensor.ccol_indices());
  parts->push_back(rows ? tensor.col_indices() : tensor.row_indices());
  parts->push_back(tensor.values());
}

at::Tensor JoinResult(at::TensorList results) {
  TORCH_CHECK(results.size() == 4 && results[3].dim() > 0,
              "a sparse result has no description");
  c10::IntArrayRef layout = results[3].sizes().slice(1);
  const Description description = TakeDescription(&layout);
  return Join(description, results.slice(0, PartCount(description.layout)));
}

}  // namespace djinn
