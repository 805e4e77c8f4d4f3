// Rules for operators that reduce all or some dimensions.
#include <algorithm>
#include <vector>

#include "c10/core/WrapDimMinimal.h"
#include "client_lib/shape/rule_table.h"
#include "client_lib/shape/stride_inference.h"
#include "client_lib/shape/type_promotion.h"

namespace djinn {
namespace {

using c10::DimVector;
using c10::ScalarType;

// Checks `dims` and returns the dimensions that it names: all if it is empty.
std::vector<bool> DimensionMask(int64_t rank, const DimVector& dims) {
  if (dims.empty()) return std::vector<bool>(rank, true);
  // A tensor without dimensions counts as having one.
  std::vector<bool> mask(std::max<int64_t>(rank, 1), false);
  for (int64_t dim : dims) {
    const int64_t wrapped = c10::maybe_wrap_dim(dim, rank);
    TORCH_CHECK(!mask[wrapped], "dim ", wrapped,
                " appears multiple times in the list of dims");
    mask[wrapped] = true;
  }
  return mask;
}

DimVector ReducedSizes(const at::Tensor& self, const DimVector& dims,
                       bool keep) {
  const std::vector<bool> mask = DimensionMask(self.dim(), dims);
  DimVector sizes;
  for (int64_t i = 0; i < self.dim(); ++i) {
    if (!mask[i]) {
      sizes.push_back(self.size(i));
    } else if (keep) {
      sizes.push_back(1);
    }
  }
  return sizes;
}

ResultMeta Reduce(ScalarType dtype, const at::Tensor& self,
                  const DimVector& dims, bool keep) {
  return Contiguous(dtype, ReducedSizes(self, dims, keep));
}

ResultMeta Scalar(ScalarType dtype) { return Contiguous(dtype, {}); }

// ---- Whole tensor ----

Results Extremum(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  TORCH_CHECK(self.numel() > 0,
              "Expected reduction dim to be specified for input.numel() == 0. "
              "Specify the reduction dim with the 'dim' argument.");
  TORCH_CHECK(!self.is_complex(), "min and max do not support complex");
  return {Scalar(self.scalar_type())};
}

Results Prod(const CallArguments& args) {
  return {Scalar(args.DtypeOr(1, SumType(args.Tensor(0).scalar_type())))};
}

Results Trace(const CallArguments& args) {
  TORCH_CHECK(args.Tensor(0).dim() == 2, "trace: expected a matrix");
  return {Scalar(SumType(args.Tensor(0).scalar_type()))};
}

Results Median(const CallArguments& args) {
  TORCH_CHECK(args.Tensor(0).numel() == 0 ||
                  (!args.Tensor(0).is_complex() &&
                   args.Tensor(0).scalar_type() != ScalarType::Bool),
              "median is not implemented for this type");
  return {Scalar(args.Tensor(0).scalar_type())};
}

Results Dot(const CallArguments& args) {
  const at::Tensor& left = args.Tensor(0);
  const at::Tensor& right = args.Tensor(1);
  TORCH_CHECK(left.dim() == 1 && right.dim() == 1,
              "1D tensors expected, but got ", left.dim(), "D and ",
              right.dim(), "D tensors");
  TORCH_CHECK(left.scalar_type() == right.scalar_type(),
              "dot : expected both vectors to have same dtype, but found ",
              c10::toString(left.scalar_type()), " and ",
              c10::toString(right.scalar_type()));
  TORCH_CHECK(left.numel() == right.numel(),
              "inconsistent tensor size, expected tensor [", left.numel(),
              "] and src [", right.numel(),
              "] to have the same number of elements");
  return {Scalar(left.scalar_type())};
}

// ---- Some dimensions ----

ScalarType SpreadType(const at::Tensor& self) {
  TORCH_CHECK(c10::isFloatingType(self.scalar_type()) ||
                  c10::isComplexType(self.scalar_type()),
              "std and var only support floating point and complex dtypes");
  return c10::toRealValueType(self.scalar_type());
}

// Warns as the CPU's kernel does.
void WarnOfFreedom(const char* op, const CallArguments& args,
                   const ResultMeta& result) {
  const int64_t results = NumElements(result);
  const int64_t reduced = results == 0 ? 0 : args.Tensor(0).numel() / results;
  const double correction = args.Has(2) ? args.Scalar(2).toDouble() : 1;
  if (static_cast<double>(reduced) - correction > 0) return;
  // The kernel computes real and imaginary parts one after the other.
  const int parts = args.Tensor(0).is_complex() ? 2 : 1;
  for (int part = 0; part < parts; ++part) {
    TORCH_WARN(op,
               "(): degrees of freedom is <= 0. Correction should be strictly "
               "less than the reduction factor (input numel divided by output "
               "numel).");
  }
}

Results Spread(const char* op, const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  Results results = {
      Reduce(SpreadType(self), self, args.Integers(1), args.Boolean(3))};
  WarnOfFreedom(op, args, results[0]);
  return results;
}

Results SpreadAndMean(const char* op, const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  const DimVector dims = args.Integers(1);
  const bool keep = args.Boolean(3);
  Results results = {Reduce(SpreadType(self), self, dims, keep),
                     Reduce(self.scalar_type(), self, dims, keep)};
  WarnOfFreedom(op, args, results[0]);
  return results;
}

Results NanSum(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  TORCH_CHECK(!self.is_complex(), "nansum does not support complex inputs");
  return {Reduce(args.DtypeOr(3, SumType(self.scalar_type())), self,
                 args.Integers(1), args.Boolean(2))};
}

Results LogSumExp(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  return {Reduce(FloatingOrDefault(self.scalar_type()), self, args.Integers(1),
                 args.Boolean(2))};
}

Results CountNonzeroDims(const CallArguments& args) {
  return {Reduce(ScalarType::Long, args.Tensor(0), args.Integers(1),
                 /*keep=*/false)};
}

Results CountNonzero(const CallArguments& args) {
  DimVector dims;
  if (args.Has(1)) dims.push_back(args.Integer(1));
  return {Reduce(ScalarType::Long, args.Tensor(0), dims, /*keep=*/false)};
}

// Returns values and their indices along one dimension.
Results Selected(const at::Tensor& self, int64_t dim, bool keep) {
  const DimVector sizes = ReducedSizes(self, {dim}, keep);
  return {Contiguous(self.scalar_type(), sizes),
          Contiguous(ScalarType::Long, sizes)};
}

void CheckNotEmpty(const char* op, const at::Tensor& self, int64_t dim) {
  if (self.dim() == 0) return;
  const int64_t wrapped = c10::maybe_wrap_dim(dim, self.dim());
  TORCH_CHECK_INDEX(self.size(wrapped) != 0, op, ": Expected reduction dim ",
                    wrapped, " to have non-zero size.");
}

Results MedianDim(const CallArguments& args) {
  CheckNotEmpty("median()", args.Tensor(0), args.Integer(1));
  return Selected(args.Tensor(0), args.Integer(1), args.Boolean(2));
}

Results Mode(const CallArguments& args) {
  CheckNotEmpty("mode()", args.Tensor(0), args.Integer(1));
  return Selected(args.Tensor(0), args.Integer(1), args.Boolean(2));
}

Results KthValue(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  const int64_t dim = c10::maybe_wrap_dim(args.Integer(2), self.dim());
  CheckNotEmpty("kthvalue()", self, dim);
  const int64_t length = self.dim() == 0 ? 1 : self.size(dim);
  TORCH_CHECK(args.Integer(1) >= 1 && args.Integer(1) <= length,
              "kthvalue(): selected number k out of range for dimension ", dim);
  return Selected(self, dim, args.Boolean(3));
}

Results AMinMax(const CallArguments& args) {
  const ScalarType dtype = args.Tensor(0).scalar_type();
  TORCH_CHECK(args.Tensor(0).numel() > 0,
              "aminmax(): cannot compute over an empty dimension");
  return {Scalar(dtype), Scalar(dtype)};
}

Results AMinMaxDim(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  const ResultMeta result =
      Reduce(self.scalar_type(), self, {args.Integer(1)}, args.Boolean(2));
  return {result, result};
}

// ---- Segments, scans and histograms ----

Results LogCumSumExp(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  c10::maybe_wrap_dim(args.Integer(1), self.dim());
  CheckFloating("logcumsumexp", self, /*complex_too=*/true);
  return {Contiguous(self.scalar_type(), self.sizes())};
}

// Returns one result for each segment along the axis.
Results SegmentReduce(const CallArguments& args) {
  const at::Tensor& data = args.Tensor(0);
  const int64_t axis = c10::maybe_wrap_dim(args.Integer(5), data.dim());
  TORCH_CHECK(args.Has(2) != args.Has(4),
              "segment_reduce(): Either lengths or offsets must be defined.");
  const at::Tensor& segments = args.Tensor(args.Has(2) ? 2 : 4);
  TORCH_CHECK(segments.dim() == axis + 1,
              "segment_reduce(): the segments must have axis + 1 dimensions");
  DimVector sizes(data.sizes());
  sizes[axis] = segments.size(axis) - (args.Has(2) ? 0 : 1);
  return {Contiguous(data.scalar_type(), sizes)};
}

// Returns the gradient of the data, which is the third argument.
Results SegmentReduceBackward(const CallArguments& args) {
  return {Contiguous(args.Tensor(2).scalar_type(), args.Tensor(2).sizes())};
}

Results Histc(const CallArguments& args) {
  TORCH_CHECK(args.Integer(1) > 0, "bins must be > 0");
  return {Contiguous(args.Tensor(0).scalar_type(), {args.Integer(1)})};
}

Results Histogram(const CallArguments& args) {
  const ScalarType dtype = args.Tensor(0).scalar_type();
  CheckFloating("histogram", args.Tensor(0));
  TORCH_CHECK(args.Integer(1) > 0, "histogramdd(): bins must be positive");
  return {Contiguous(dtype, {args.Integer(1)}),
          Contiguous(dtype, {args.Integer(1) + 1})};
}

// The kernel returns the given edges, or a dense copy of them.
Results HistogramWithEdges(const CallArguments& args) {
  const ScalarType dtype = args.Tensor(0).scalar_type();
  const at::Tensor& edges = args.Tensor(1);
  CheckFloating("histogram", args.Tensor(0));
  CheckSameType("histogram", {args.Tensor(0), edges});
  TORCH_CHECK(edges.dim() == 1 && edges.numel() > 0,
              "histogramdd(): bins tensor should have one dimension");
  return {Contiguous(dtype, {edges.numel() - 1}),
          Contiguous(dtype, {edges.numel()})};
}

// Checks that the innermost dimension has a coordinate for each dimension of
// the histogram.
void CheckPoints(const at::Tensor& self, size_t dimensions) {
  TORCH_CHECK(
      self.dim() >= 2 && self.size(-1) == static_cast<int64_t>(dimensions),
      "histogramdd(): the number of bins does not match the size of "
      "the innermost dimension of the input");
  CheckFloating("histogramdd", self);
}

Results HistogramEdges(const CallArguments& args) {
  const DimVector bins = args.Integers(1);
  CheckPoints(args.Tensor(0), bins.size());
  Results results;
  for (int64_t count : bins) {
    results.push_back(Contiguous(args.Tensor(0).scalar_type(), {count + 1}));
  }
  return results;
}

Results HistogramCounts(const CallArguments& args) {
  CheckPoints(args.Tensor(0), args.Integers(1).size());
  return {Contiguous(args.Tensor(0).scalar_type(), args.Integers(1))};
}

Results HistogramCountsWithEdges(const CallArguments& args) {
  const std::vector<at::Tensor> edges = args.Tensors(1);
  CheckPoints(args.Tensor(0), edges.size());
  DimVector sizes;
  for (const at::Tensor& edge : edges) sizes.push_back(edge.numel() - 1);
  return {Contiguous(args.Tensor(0).scalar_type(), sizes)};
}

}  // namespace

void AddReductionRules(RuleTable* table) {
  table->Add({"aten::max", "aten::min"}, Extremum);
  table->Add({"aten::prod"}, Prod);
  table->Add({"aten::trace"}, Trace);
  table->Add({"aten::median", "aten::nanmedian"}, Median);
  table->Add({"aten::dot", "aten::vdot"}, Dot);
  table->Add({"aten::std.correction"},
             [](const CallArguments& args) { return Spread("std", args); });
  table->Add({"aten::var.correction"},
             [](const CallArguments& args) { return Spread("var", args); });
  table->Add({"aten::std_mean.correction"}, [](const CallArguments& args) {
    return SpreadAndMean("std_mean", args);
  });
  table->Add({"aten::var_mean.correction"}, [](const CallArguments& args) {
    return SpreadAndMean("var_mean", args);
  });
  table->Add({"aten::nansum"}, NanSum);
  table->Add({"aten::logsumexp"}, LogSumExp);
  table->Add({"aten::count_nonzero.dim_IntList"}, CountNonzeroDims);
  table->Add({"aten::count_nonzero"}, CountNonzero);
  table->Add({"aten::median.dim", "aten::nanmedian.dim"}, MedianDim);
  table->Add({"aten::mode"}, Mode);
  table->Add({"aten::kthvalue"}, KthValue);
  table->Add({"aten::logcumsumexp", "aten::_logcumsumexp"}, LogCumSumExp);
  table->Add({"aten::segment_reduce"}, SegmentReduce);
  table->Add({"aten::_segment_reduce_backward"}, SegmentReduceBackward);
  table->Add({"aten::histc"}, Histc);
  table->Add({"aten::histogram.bin_ct"}, Histogram);
  table->Add({"aten::histogram.bins_tensor"}, HistogramWithEdges);
  table->Add({"aten::_histogramdd_bin_edges"}, HistogramEdges);
  table->Add({"aten::_histogramdd_from_bin_cts"}, HistogramCounts);
  table->Add({"aten::_histogramdd_from_bin_tensors"}, HistogramCountsWithEdges);
  table->Add({"aten::_aminmax"}, AMinMax);
  table->Add({"aten::_aminmax.dim"}, AMinMaxDim);
}

}  // namespace djinn
