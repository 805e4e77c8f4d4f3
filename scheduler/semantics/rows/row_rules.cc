#include "scheduler/semantics/rows/row_rules.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"

namespace djinn::semantics {
namespace {

// Further parameters of an entry in the table.
struct Parameters {
  // Index of the argument that names dimensions, or of the list of tensors.
  int argument = 1;
  // Number of dimensions of an image, or number of trailing dimensions that
  // belong together.
  int dims = 0;
};

using Rule = absl::Status (*)(RowCall* call, const Parameters& parameters);

absl::Status SetAligned(RowCall* call, const RowCall::Place& place) {
  const srg::TensorView* const result = call->result(0);
  // what the call writes is cut
  if (result == nullptr) return absl::OkStatus();
  call->SetResults(
      {static_cast<int>(result->sizes.size()) - place.from_end, place.block});
  return absl::OkStatus();
}

std::vector<RowOperand*> AllOf(RowCall* call) {
  std::vector<RowOperand*> all;
  for (RowOperand& operand : call->operands()) all.push_back(&operand);
  return all;
}

// Elementwise operators, whose operands are broadcast.
absl::Status Elementwise(RowCall* call, const Parameters&) {
  DJINN_ASSIGN_OR_RETURN(const RowCall::Place place, call->Align(AllOf(call)));
  return SetAligned(call, place);
}

// Returns the first operand; requires that no other operand is cut.
absl::StatusOr<const RowOperand*> OnlyFirst(RowCall* call) {
  const RowOperand* const input = call->Tensor(0);
  for (RowOperand& operand : call->operands()) {
    if (&operand == input) continue;
    DJINN_RETURN_IF_ERROR(call->KeepWhole(&operand, "other operand"));
  }
  if (input == nullptr || !input->cut()) {
    return MixesRows("its first operand has no rows");
  }
  return input;
}

// Operators on the first operand alone, along dimensions that an argument
// names. The result may or may not keep these dimensions.
absl::Status AlongDimensions(RowCall* call, const Parameters& parameters) {
  DJINN_ASSIGN_OR_RETURN(const RowOperand* const input, OnlyFirst(call));
  const auto named = call->Integers(parameters.argument);
  if (!named.has_value() || named->empty()) {
    return MixesRows("it goes over all elements, those of all rows");
  }
  std::vector<int> dims;
  for (const int64_t each : *named) {
    DJINN_ASSIGN_OR_RETURN(const int dim,
                           RowCall::Dimension(each, input->dims()));
    if (dim == input->rows->dim) {
      return MixesRows(
          absl::StrCat("it goes along dimension ", dim, ", that of the rows"));
    }
    dims.push_back(dim);
  }
  RowDimension rows = *input->rows;
  const srg::TensorView* const result = call->result(0);
  if (result != nullptr &&
      static_cast<int>(result->sizes.size()) != input->dims()) {
    rows.dim -= static_cast<int>(
        absl::c_count_if(dims, [&](int dim) { return dim < rows.dim; }));
  }
  call->SetResults(rows);
  return absl::OkStatus();
}

// The form that reduces over all elements has no dimensions and no overload.
absl::Status Reduction(RowCall* call, const Parameters& parameters) {
  if (call->overload().empty()) {
    return MixesRows("it goes over all elements, those of all rows");
  }
  return AlongDimensions(call, parameters);
}

// Like Reduction(), or elementwise with a second operand.
absl::Status Extremum(RowCall* call, const Parameters& parameters) {
  if (call->overload() == "other") return Elementwise(call, parameters);
  return Reduction(call, parameters);
}

// Operators that treat each of the leading dimensions independently. The
// trailing dimensions belong together; their number is `dims`, or the length of
// the list argument.
absl::Status AlongLast(RowCall* call, const Parameters& parameters) {
  DJINN_ASSIGN_OR_RETURN(const RowOperand* const input, OnlyFirst(call));
  int last = parameters.dims;
  if (last == 0) {
    const auto sizes = call->Integers(parameters.argument);
    if (!sizes.has_value()) return MixesRows("it does not say along what");
    last = static_cast<int>(sizes->size());
  }
  if (input->rows->dim >= input->dims() - last) {
    return MixesRows("it goes along the dimension of the rows");
  }
  call->SetResults(*input->rows);
  return absl::OkStatus();
}

// Operators on independent images: the first of `dims` dimensions is the batch,
// and weights are the same for all images.
absl::Status OfImages(RowCall* call, const Parameters& parameters) {
  DJINN_ASSIGN_OR_RETURN(const RowOperand* const input, OnlyFirst(call));
  const int dims = parameters.dims != 0 ? parameters.dims : input->dims();
  if (input->dims() != dims || input->rows->dim != 0) {
    return MixesRows("its rows are not its batch");
  }
  call->SetResults(*input->rows);
  return absl::OkStatus();
}

// A convolution has as many dimensions as its weight: batch, channels and
// space.
absl::Status Convolution(RowCall* call, const Parameters&) {
  const RowOperand* const weight = call->Tensor(1);
  if (weight == nullptr) return MixesRows("it has no weight");
  return OfImages(call, {.dims = weight->dims()});
}

// Batch normalization with given statistics. In training, the statistics are
// the batch's.
absl::Status BatchNorm(RowCall* call, const Parameters&) {
  if (call->Boolean(5) != false) {
    return MixesRows("it takes the batch's mean and variance");
  }
  return OfImages(call, {});
}

absl::Status InstanceNorm(RowCall* call, const Parameters&) {
  if (!call->IsNone(3) || !call->IsNone(4)) {
    return MixesRows("it has running statistics");
  }
  return OfImages(call, {});
}

absl::Status GroupNorm(RowCall* call, const Parameters&) {
  return OfImages(call, {});
}

// Samples images at positions; both have the batch first.
absl::Status GridSampler(RowCall* call, const Parameters&) {
  for (RowOperand& operand : call->operands()) {
    DJINN_RETURN_IF_ERROR(call->CutAt(&operand, {0, 1}));
  }
  call->SetResults({0, 1});
  return absl::OkStatus();
}

// Rows of a table, each by an independent index.
absl::Status Embedding(RowCall* call, const Parameters&) {
  DJINN_RETURN_IF_ERROR(call->KeepWhole(call->Tensor(0), "table"));
  const RowOperand* const indices = call->Tensor(1);
  if (indices == nullptr || !indices->cut()) {
    return MixesRows("its indices are in no row");
  }
  call->SetResults(*indices->rows);
  return absl::OkStatus();
}

// Elements of the first operand by an index along another dimension.
absl::Status Gather(RowCall* call, const Parameters&) {
  const RowDimension rows = *call->FirstCut().rows;
  for (RowOperand& operand : call->operands()) {
    const std::optional<int64_t> named = call->Integer(1);
    if (!named.has_value()) return MixesRows("it does not say along what");
    DJINN_ASSIGN_OR_RETURN(const int dim,
                           RowCall::Dimension(*named, operand.dims()));
    if (dim == rows.dim) {
      return MixesRows("it goes along the dimension of the rows");
    }
    DJINN_RETURN_IF_ERROR(call->CutAt(&operand, rows));
  }
  call->SetResults(rows);
  return absl::OkStatus();
}

absl::Status IndexSelect(RowCall* call, const Parameters& parameters) {
  RowOperand* const input = call->Tensor(0);
  RowOperand* const index = call->Tensor(2);
  if (input == nullptr || index == nullptr) {
    return MixesRows("it has no index");
  }
  if (input->cut()) return AlongDimensions(call, parameters);
  const std::optional<int64_t> named = call->Integer(1);
  if (!named.has_value() || index->dims() != 1) {
    return MixesRows("it does not say along what");
  }
  DJINN_ASSIGN_OR_RETURN(const int dim,
                         RowCall::Dimension(*named, input->dims()));
  call->SetResults({dim, index->rows->block});
  return absl::OkStatus();
}

// Elements of a table by indices of its first dimensions, which are broadcast.
absl::Status Index(RowCall* call, const Parameters&) {
  DJINN_RETURN_IF_ERROR(call->KeepWhole(call->Tensor(0), "table"));
  if (call->node().arguments.size() < 2) return MixesRows("it has no indices");
  const auto* list = std::get_if<std::vector<srg::TensorListEntry>>(
      &call->node().arguments[1]);
  if (list == nullptr) return MixesRows("it has no indices");
  for (const srg::TensorListEntry& entry : *list) {
    const auto* view = std::get_if<srg::TensorView>(&entry);
    if (view == nullptr || view->data_type == srg::DataType::kBool ||
        view->data_type == srg::DataType::kUint8) {
      return MixesRows("it takes dimensions whole, or picks by a mask");
    }
  }
  const std::vector<RowOperand*> indices = call->Tensors(1);
  DJINN_ASSIGN_OR_RETURN(const RowCall::Place place, call->Align(indices));
  int dims = 0;
  for (const RowOperand* index : indices) dims = std::max(dims, index->dims());
  call->SetResults({dims - place.from_end, place.block});
  return absl::OkStatus();
}

// Joins tensors that are cut in the same way along another dimension.
absl::Status Cat(RowCall* call, const Parameters&) {
  const RowDimension rows = *call->FirstCut().rows;
  const int dims = call->FirstCut().dims();
  const std::optional<int64_t> named = call->Integer(1);
  if (!named.has_value()) return MixesRows("it does not say along what");
  DJINN_ASSIGN_OR_RETURN(const int dim, RowCall::Dimension(*named, dims));
  if (dim == rows.dim) {
    return MixesRows("it joins along the dimension of the rows");
  }
  for (RowOperand& operand : call->operands()) {
    // PyTorch ignores an empty vector.
    if (operand.dims() == 1 && dims != 1 && operand.size(0) == 0) continue;
    DJINN_RETURN_IF_ERROR(call->CutAt(&operand, rows));
  }
  call->SetResults(rows);
  return absl::OkStatus();
}

absl::Status Stack(RowCall* call, const Parameters&) {
  RowDimension rows = *call->FirstCut().rows;
  const int dims = call->FirstCut().dims();
  const std::optional<int64_t> named = call->Integer(1);
  if (!named.has_value()) return MixesRows("it does not say along what");
  DJINN_ASSIGN_OR_RETURN(const int dim, RowCall::Dimension(*named, dims + 1));
  for (RowOperand& operand : call->operands()) {
    DJINN_RETURN_IF_ERROR(call->CutAt(&operand, rows));
  }
  if (dim <= rows.dim) ++rows.dim;
  call->SetResults(rows);
  return absl::OkStatus();
}

absl::Status Repeat(RowCall* call, const Parameters&) {
  DJINN_ASSIGN_OR_RETURN(const RowOperand* const input, OnlyFirst(call));
  const auto times = call->Integers(1);
  if (!times.has_value()) return MixesRows("it does not say how often");
  const int dim =
      static_cast<int>(times->size()) - input->dims() + input->rows->dim;
  if (dim < 0 || (*times)[dim] != 1) return MixesRows("it repeats the rows");
  call->SetResults({dim, input->rows->block});
  return absl::OkStatus();
}

absl::Status RepeatInterleave(RowCall* call, const Parameters& parameters) {
  if (call->overload() != "self_int") {
    return MixesRows("how often it repeats is data");
  }
  return AlongDimensions(call, parameters);
}

// Pads the trailing dimensions, two numbers for each, from the last one.
absl::Status Pad(RowCall* call, const Parameters&) {
  DJINN_ASSIGN_OR_RETURN(const RowOperand* const input, OnlyFirst(call));
  const auto pads = call->Integers(1);
  if (!pads.has_value()) return MixesRows("it does not say how much");
  const size_t from_end =
      2 * static_cast<size_t>(input->dims() - 1 - input->rows->dim);
  if (from_end + 1 < pads->size() &&
      ((*pads)[from_end] != 0 || (*pads)[from_end + 1] != 0)) {
    return MixesRows("it pads the rows");
  }
  call->SetResults(*input->rows);
  return absl::OkStatus();
}

absl::Status Sort(RowCall* call, const Parameters&) {
  return AlongDimensions(call,
                         {.argument = call->overload() == "stable" ? 2 : 1});
}

struct Entry {
  const char* names;
  Rule rule;
  Parameters parameters = {};
};

constexpr Entry kEntries[] = {
    {"add sub rsub mul div neg pow sqrt rsqrt exp exp2 expm1 log log2 log10 "
     "log1p abs where masked_fill clamp clamp_min clamp_max cos sin tan acos "
     "asin atan atan2 cosh sinh eq ne lt le gt ge bitwise_and bitwise_or "
     "bitwise_not bitwise_xor logical_and logical_or logical_not logical_xor "
     "minimum maximum fmin fmax reciprocal square sign sgn floor ceil round "
     "trunc frac remainder fmod addcmul addcdiv lerp floor_divide isnan isinf "
     "isfinite true_divide multiply subtract divide nan_to_num xlogy erfc "
     "relu gelu silu sigmoid tanh elu selu celu leaky_relu hardswish "
     "hardsigmoid hardtanh relu6 softplus mish threshold erf log_sigmoid "
     "softsign hardshrink softshrink tanhshrink",
     Elementwise},
    {"copy clone contiguous _to_copy to fill zero zeros_like ones_like "
     "full_like",
     Elementwise},
    // Dropout that drew numbers would name a generator.
    {"dropout", Elementwise},
    {"softmax log_softmax _softmax _log_softmax _safe_softmax cumsum cumprod "
     "logcumsumexp argsort glu flip mode amax amin argmax argmin "
     "logsumexp",
     AlongDimensions,
     {.argument = 1}},
    {"sum mean any all prod var std var_mean std_mean median nanmedian "
     "count_nonzero",
     Reduction,
     {.argument = 1}},
    {"max min", Extremum, {.argument = 1}},
    {"sort", Sort},
    {"linalg_vector_norm topk kthvalue roll", AlongDimensions, {.argument = 2}},
    {"repeat_interleave", RepeatInterleave, {.argument = 2}},
    {"layer_norm native_layer_norm rms_norm _fused_rms_norm",
     AlongLast,
     {.argument = 1}},
    {"tril triu", AlongLast, {.dims = 2}},
    {"pixel_shuffle pixel_unshuffle", AlongLast, {.dims = 3}},
    {"convolution _convolution conv1d conv2d conv3d conv_transpose1d "
     "conv_transpose2d conv_transpose3d",
     Convolution},
    {"max_pool1d avg_pool1d adaptive_avg_pool1d adaptive_max_pool1d "
     "upsample_nearest1d upsample_linear1d",
     OfImages,
     {.dims = 3}},
    {"max_pool2d avg_pool2d adaptive_avg_pool2d _adaptive_avg_pool2d "
     "adaptive_max_pool2d max_pool2d_with_indices upsample_nearest2d "
     "upsample_bilinear2d upsample_bicubic2d _upsample_nearest_exact2d",
     OfImages,
     {.dims = 4}},
    {"max_pool3d avg_pool3d adaptive_avg_pool3d _adaptive_avg_pool3d "
     "max_pool3d_with_indices upsample_nearest3d upsample_trilinear3d",
     OfImages,
     {.dims = 5}},
    {"batch_norm", BatchNorm},
    {"instance_norm", InstanceNorm},
    {"group_norm", GroupNorm},
    {"grid_sampler grid_sampler_2d", GridSampler},
    {"embedding", Embedding},
    {"gather", Gather},
    {"index_select", IndexSelect, {.argument = 1}},
    {"index", Index},
    {"cat concat", Cat},
    {"stack", Stack},
    {"repeat", Repeat},
    {"constant_pad_nd", Pad},
};

struct Found {
  Rule rule;
  Parameters parameters;
};

const absl::flat_hash_map<std::string, Found>& Table() {
  static const auto* const table = [] {
    auto* const rules = new absl::flat_hash_map<std::string, Found>;
    for (const Entry& entry : kEntries) {
      for (const absl::string_view name :
           absl::StrSplit(entry.names, ' ', absl::SkipEmpty())) {
        rules->emplace(name, Found{entry.rule, entry.parameters});
      }
    }
    return rules;
  }();
  return *table;
}

// Returns whether the operator writes its operand elementwise. Apart from a few
// exceptions, such operators have the elementwise rule and a name like "add_".
// The function does not examine other writing operators.
bool WritesElementwise(const RowCall& call, Rule rule) {
  return rule == &Elementwise &&
         (absl::EndsWith(call.op(), "_") || call.op() == "copy" ||
          call.op() == "fill" || call.op() == "zero") &&
         call.overload() != "out";
}

}  // namespace

absl::Status ApplyRowRule(RowCall* call) {
  if (const ProductRule product = FindProductRule(call->op())) {
    if (!call->node().writes.empty()) {
      return MixesRows("it writes a product into its operand");
    }
    return product(call);
  }
  const auto& table = Table();
  auto found = table.find(call->op());
  if (found == table.end() && !call->node().writes.empty()) {
    found = table.find(absl::StripSuffix(call->op(), "_"));
  }
  if (found == table.end()) {
    return MixesRows("nothing is known of how it treats rows");
  }
  const auto& [rule, parameters] = found->second;
  if (!call->node().writes.empty() && !WritesElementwise(*call, rule)) {
    return MixesRows("it writes its operand");
  }
  return rule(call, parameters);
}

int SizesArgument(absl::string_view op) {
  static constexpr struct {
    absl::string_view op;
    int argument;
  } kFactories[] = {{"zeros", 0},     {"ones", 0},     {"full", 0},
                    {"new_zeros", 1}, {"new_ones", 1}, {"new_full", 1}};
  for (const auto& factory : kFactories) {
    if (op == factory.op) return factory.argument;
  }
  return -1;
}

bool FillsWithOneNumber(absl::string_view op) {
  return op == "zero_" || op == "fill_";
}

}  // namespace djinn::semantics
