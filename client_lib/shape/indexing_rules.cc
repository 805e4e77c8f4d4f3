// Rules for operators that select, place, repeat or reorder elements.
#include "ATen/ExpandUtils.h"
#include "c10/core/WrapDimMinimal.h"
#include "c10/util/StringUtil.h"
#include "client_lib/shape/rule_table.h"
#include "client_lib/shape/stride_inference.h"
#include "client_lib/shape/type_promotion.h"

namespace djinn {
namespace {

using c10::DimVector;
using c10::MemoryFormat;
using c10::ScalarType;

void CheckIndexType(const char* op, const at::Tensor& index) {
  TORCH_CHECK(index.scalar_type() == ScalarType::Long ||
                  index.scalar_type() == ScalarType::Int,
              op, ": Expected dtype int32 or int64 for index");
}

Results IndexSelect(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  const at::Tensor& index = args.Tensor(2);
  const int64_t dim = c10::maybe_wrap_dim(args.Integer(1), self.dim());
  TORCH_CHECK_INDEX(index.dim() <= 1,
                    "index_select(): Index is supposed to be a vector");
  CheckIndexType("index_select()", index);
  TORCH_CHECK(self.dim() <= 1 || self.numel() > 0 || index.numel() == 0 ||
                  self.size(dim) > 0,
              "index_select(): self indexing axis dim should be positive");
  DimVector sizes(self.sizes());
  if (self.dim() > 0) {
    sizes[dim] = index.numel();
  } else {
    TORCH_CHECK(index.numel() == 1,
                "index_select(): Index to scalar can have only 1 value");
  }
  return {Contiguous(self.scalar_type(), sizes)};
}

bool IsMask(const at::Tensor& index) {
  return index.scalar_type() == ScalarType::Bool ||
         index.scalar_type() == ScalarType::Byte;
}

// Checks that each mask has the sizes of the dimensions that it indexes.
void CheckMasks(const at::Tensor& self,
                const std::vector<at::Tensor>& indices) {
  int64_t place = 0;
  for (const at::Tensor& index : indices) {
    if (!index.defined() || !IsMask(index)) {
      ++place;
      continue;
    }
    for (int64_t d = 0; d < index.dim(); ++d, ++place) {
      TORCH_CHECK_INDEX(index.size(d) == self.size(place),
                        "The shape of the mask ", index.sizes(), " at index ",
                        d, " does not match the shape of the indexed tensor ",
                        self.sizes(), " at index ", place);
    }
  }
}

Results Embedding(const CallArguments& args) {
  const at::Tensor& weight = args.Tensor(0);
  const at::Tensor& indices = args.Tensor(1);
  TORCH_CHECK(weight.dim() == 2, "'weight' must be 2-D");
  CheckIndexType("embedding()", indices);
  DimVector sizes(indices.sizes());
  sizes.push_back(weight.size(1));
  return {Contiguous(weight.scalar_type(), sizes)};
}

Results EmbeddingDenseBackward(const CallArguments& args) {
  const at::Tensor& grad = args.Tensor(0);
  CheckIndexType("embedding_backward", args.Tensor(1));
  return {Contiguous(grad.scalar_type(), {args.Integer(2), grad.size(-1)})};
}

// Returns whether the kernel can sum the weight's rows without noting the bag
// of each index.
bool SumsDirectly(const at::Tensor& weight, const at::Tensor& scale,
                  int64_t padding_index) {
  const ScalarType dtype = weight.scalar_type();
  return (dtype == ScalarType::Float || dtype == ScalarType::Half ||
          dtype == ScalarType::BFloat16) &&
         weight.stride(1) == 1 && padding_index < 0 &&
         (!scale.defined() || scale.stride(0) == 1);
}

enum BagMode : int64_t { kSum = 0, kMean = 1, kMax = 2 };

// Returns (output, offset2bag, bag_size, max_indices) for arguments that begin
// with (weight, indices, offsets, scale_grad_by_freq, mode, sparse,
// per_sample_weights, include_last_offset).
Results EmbeddingBag(const CallArguments& args, int64_t padding_index,
                     bool needs_gradient) {
  const at::Tensor& weight = args.Tensor(0);
  const at::Tensor& indices = args.Tensor(1);
  const at::Tensor& offsets = args.Tensor(2);
  const int64_t mode = args.Integer(4);
  const at::Tensor scale = args.Has(6) ? args.Tensor(6) : at::Tensor();
  TORCH_CHECK(weight.dim() == 2, "embedding_bag: weight must be 2-D");
  TORCH_CHECK(indices.dim() == 1 && offsets.dim() == 1,
              "embedding_bag: indices and offsets have to be 1D Tensors");
  CheckIndexType("embedding_bag", indices);
  CheckIndexType("embedding_bag", offsets);
  TORCH_CHECK(
      !scale.defined() || (mode == kSum && scale.sizes() == indices.sizes() &&
                           scale.scalar_type() == weight.scalar_type()),
      "embedding_bag: per_sample_weights do not fit");
  const bool include_last = args.Boolean(7);
  TORCH_CHECK(!include_last || offsets.size(0) >= 1,
              "include_last_offset: number of offset should be at least 1");
  const int64_t bags = offsets.size(0) - (include_last ? 1 : 0);

  // Indices are promoted to the wider of the two dtypes.
  const ScalarType index_type =
      indices.scalar_type() == ScalarType::Long ||
              offsets.scalar_type() == ScalarType::Long
          ? ScalarType::Long
          : ScalarType::Int;
  const bool notes_bags =
      mode != kSum || !SumsDirectly(weight, scale, padding_index);
  const int64_t counted =
      needs_gradient || mode != kSum ? bags : offsets.size(0);
  const ResultMeta bag_size = Contiguous(index_type, {counted});
  return {
      Contiguous(weight.scalar_type(), {bags, weight.size(1)}),
      Contiguous(index_type, {notes_bags ? indices.size(0) : 0}), bag_size,
      mode == kMax ? Contiguous(index_type, {bags, weight.size(1)}) : bag_size};
}

Results EmbeddingBagWeightsBackward(const CallArguments& args) {
  return {Contiguous(args.Tensor(0).scalar_type(), {args.Tensor(2).size(0)})};
}

Results EmbeddingBagDenseBackward(const CallArguments& args) {
  const at::Tensor& grad = args.Tensor(0);
  return {Contiguous(grad.scalar_type(), {args.Integer(5), grad.size(1)})};
}

// The number of selected elements depends on the mask's values.
Results MaskedSelect(const CallArguments& args) {
  const ScalarType mask = args.Tensor(1).scalar_type();
  TORCH_CHECK(mask == ScalarType::Bool || mask == ScalarType::Byte,
              "masked_select: expected BoolTensor or ByteTensor for mask");
  Broadcast(args.Tensor(0).sizes(), args.Tensor(1).sizes());
  ResultMeta open;
  open.known = false;
  return {open};
}

Results Take(const CallArguments& args) {
  TORCH_CHECK(args.Tensor(1).scalar_type() == ScalarType::Long,
              "take(): Expected a long tensor for index");
  TORCH_CHECK_INDEX(args.Tensor(0).numel() != 0 || args.Tensor(1).numel() == 0,
                    "take(): tried to take from an empty tensor");
  return {Contiguous(args.Tensor(0).scalar_type(), args.Tensor(1).sizes())};
}

Results Flip(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  std::vector<bool> seen(std::max<int64_t>(self.dim(), 1), false);
  for (int64_t dim : args.Integers(1)) {
    const int64_t wrapped = c10::maybe_wrap_dim(dim, self.dim());
    TORCH_CHECK(!seen[wrapped], "dim ", wrapped,
                " appears multiple times in the list of dims");
    seen[wrapped] = true;
  }
  return {EmptyLike(self.scalar_type(), self)};
}

// Returns the result of rolling one dimension, which concatenates two slices
// and has their common format.
ResultMeta RollOne(const ResultMeta& meta, int64_t shift, int64_t dim) {
  TORCH_CHECK_INDEX(!meta.sizes.empty(), "Dimension specified as ", dim,
                    " but tensor has no dimensions");
  dim = c10::maybe_wrap_dim(dim, meta.sizes.size());
  const int64_t size = meta.sizes[dim];
  const int64_t start = ((size - shift) % size + size) % size;
  ResultMeta first = meta, second = meta;
  first.sizes[dim] = size - start;
  second.sizes[dim] = start;
  const MemoryFormat format = SuggestFormat(first);
  return InFormat(
      meta.dtype, meta.sizes,
      SuggestFormat(second) == format ? format : MemoryFormat::Contiguous);
}

Results Roll(const CallArguments& args) {
  ResultMeta meta = Describe(args.Tensor(0));
  const DimVector shifts = args.Integers(1), dims = args.Integers(2);
  TORCH_CHECK(!shifts.empty(), "`shifts` required");
  if (dims.empty() && shifts.size() == 1) {
    // The tensor is rolled as one long dimension.
    if (meta.sizes.size() == 1 && NumElements(meta) == 0) return {meta};
    return {Contiguous(meta.dtype, meta.sizes)};
  }
  if (NumElements(meta) == 0) return {EmptyLike(meta.dtype, meta)};
  TORCH_CHECK(shifts.size() == dims.size(),
              "shifts and dimensions must align. shifts: ", shifts.size(),
              ", dims:", dims.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    meta = RollOne(meta, shifts[i], dims[i]);
  }
  return {meta};
}

// A quarter turn flips one dimension and transposes the result.
Results Rotate90(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  const DimVector dims = args.Integers(2);
  TORCH_CHECK(
      dims.size() == 2,
      "expected total rotation dims == 2, but got dims = ", dims.size());
  TORCH_CHECK(self.dim() >= 2,
              "expected total dims >= 2, but got total dims = ", self.dim());
  const int64_t first = c10::maybe_wrap_dim(dims[0], self.dim());
  const int64_t second = c10::maybe_wrap_dim(dims[1], self.dim());
  TORCH_CHECK(first != second, "expected rotation dims to be different");
  const int64_t turns = ((args.Integer(1) % 4) + 4) % 4;
  if (turns == 0) return {Contiguous(self.scalar_type(), self.sizes())};
  const ResultMeta flipped = EmptyLike(self.scalar_type(), self);
  return {turns == 2 ? flipped : Transpose(flipped, first, second)};
}

Results Repeat(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  DimVector sizes = args.Integers(1);
  TORCH_CHECK(static_cast<int64_t>(sizes.size()) >= self.dim(),
              "Number of dimensions of repeat dims can not be smaller than "
              "number of dimensions of tensor");
  const int64_t offset = sizes.size() - self.dim();
  for (int64_t i = 0; i < self.dim(); ++i) sizes[offset + i] *= self.size(i);
  return {Contiguous(self.scalar_type(), sizes)};
}

Results SearchSorted(const CallArguments& args) {
  const at::Tensor& sorted = args.Tensor(0);
  const at::Tensor& self = args.Tensor(1);
  TORCH_CHECK(sorted.dim() != 0, "boundaries tensor should have positive rank");
  TORCH_CHECK(sorted.scalar_type() == self.scalar_type() ||
                  self.unsafeGetTensorImpl()->is_wrapped_number(),
              "torch.searchsorted(): boundary and input value tensors should "
              "have same dtype");
  if (sorted.dim() != 1) {
    TORCH_CHECK(self.dim() == sorted.dim() &&
                    self.sizes().slice(0, self.dim() - 1) ==
                        sorted.sizes().slice(0, self.dim() - 1),
                "torch.searchsorted(): boundaries tensor should be 1 dimension "
                "or the first N-1 dimensions of boundaries and input value "
                "tensor must match");
  }
  return {Contiguous(args.Boolean(2) ? ScalarType::Int : ScalarType::Long,
                     self.sizes())};
}

Results SearchSortedScalar(const CallArguments& args) {
  TORCH_CHECK(args.Tensor(0).dim() == 1,
              "input value can be a scalar only when boundaries tensor is 1 "
              "dimension");
  return {Contiguous(args.Boolean(2) ? ScalarType::Int : ScalarType::Long, {})};
}

Results Bucketize(const CallArguments& args) {
  TORCH_CHECK(args.Tensor(1).dim() == 1,
              "boundaries tensor must be 1 dimension");
  TORCH_CHECK(args.Tensor(0).scalar_type() == args.Tensor(1).scalar_type(),
              "boundary and input value tensors should have same dtype");
  return {Contiguous(args.Boolean(2) ? ScalarType::Int : ScalarType::Long,
                     args.Tensor(0).sizes())};
}

Results BucketizeScalar(const CallArguments& args) {
  return {Contiguous(args.Boolean(2) ? ScalarType::Int : ScalarType::Long, {})};
}

Results NonzeroStatic(const CallArguments& args) {
  return {
      Contiguous(ScalarType::Long, {args.Integer(1), args.Tensor(0).dim()})};
}

Results UnfoldBackward(const CallArguments& args) {
  return {Contiguous(args.Tensor(0).scalar_type(), args.Integers(1))};
}

Results UnfoldCopy(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  const int64_t dim = c10::maybe_wrap_dim(args.Integer(1), self.dim());
  const int64_t window = args.Integer(2), step = args.Integer(3);
  const int64_t length = self.dim() == 0 ? 1 : self.size(dim);
  TORCH_CHECK(window >= 0 && window <= length,
              "maximum size for tensor at dimension ", dim, " is ", length,
              " but size is ", window);
  TORCH_CHECK(step > 0, "step is ", step, " but must be > 0");
  DimVector sizes(self.sizes());
  if (self.dim() > 0) sizes[dim] = (length - window) / step + 1;
  sizes.push_back(window);
  return {Contiguous(self.scalar_type(), sizes)};
}

// Returns the sizes of self indexed by tensors, some of which may be undefined.
// The broadcast sizes of the indices replace the indexed dimensions. If the
// indexed dimensions are not adjacent, the broadcast sizes come first.
DimVector IndexedSizes(const at::Tensor& self,
                       const std::vector<at::Tensor>& indices) {
  TORCH_CHECK_INDEX(static_cast<int64_t>(indices.size()) <= self.dim(),
                    "too many indices for tensor of dimension ", self.dim(),
                    " (got ", indices.size(), ")");
  DimVector broadcast, before, after;
  bool together = true, ended = false;
  bool seen = false;
  for (int64_t i = 0; i < self.dim(); ++i) {
    const bool indexed =
        i < static_cast<int64_t>(indices.size()) && indices[i].defined();
    if (indexed) {
      broadcast = Broadcast(broadcast, indices[i].sizes());
      if (ended) together = false;
      seen = true;
      continue;
    }
    ended = seen;
    (seen ? after : before).push_back(self.size(i));
  }
  DimVector sizes;
  const DimVector& first = together ? before : broadcast;
  const DimVector& second = together ? broadcast : before;
  sizes.append(first.begin(), first.end());
  sizes.append(second.begin(), second.end());
  sizes.append(after.begin(), after.end());
  return sizes;
}

// Checks that the indices select something from self, in the CPU's words.
void CheckIndices(const at::Tensor& self,
                  const std::vector<at::Tensor>& indices) {
  std::string shapes;
  DimVector broadcast;
  bool fit = true, reaches_nothing = false;
  for (size_t i = 0; i < indices.size(); ++i) {
    const at::Tensor& index = indices[i];
    if (!index.defined()) continue;
    reaches_nothing |= self.size(static_cast<int64_t>(i)) == 0;
    shapes += c10::str(shapes.empty() ? "" : ", ", index.sizes());
    fit = fit && at::are_expandable(broadcast, index.sizes());
    if (fit) broadcast = Broadcast(broadcast, index.sizes());
  }
  TORCH_CHECK_INDEX(fit,
                    "shape mismatch: indexing tensors could not be broadcast "
                    "together with shapes ",
                    shapes);
  TORCH_CHECK_INDEX(!reaches_nothing || c10::multiply_integers(broadcast) == 0,
                    "index is out of bounds for dimension with size 0");
}

Results IndexPut(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  const std::vector<at::Tensor> indices = args.Tensors(1);
  const at::Tensor& values = args.Tensor(2);
  TORCH_CHECK_INDEX(indices.size() <= static_cast<size_t>(self.dim()),
                    "too many indices for tensor of dimension ", self.dim(),
                    " (got ", indices.size(), ")");
  bool masked = false;
  for (const at::Tensor& index : indices) {
    if (!index.defined()) continue;
    masked |= IsMask(index);
    TORCH_CHECK_INDEX(
        IsMask(index) || index.scalar_type() == ScalarType::Long ||
            index.scalar_type() == ScalarType::Int,
        "tensors used as indices must be long, int, byte or bool tensors");
  }
  CheckMasks(self, indices);
  // Only values say how many elements a mask selects.
  if (!masked) {
    CheckIndices(self, indices);
    const DimVector selected = IndexedSizes(self, indices);
    TORCH_CHECK(at::is_expandable_to(values.sizes(), selected),
                "shape mismatch: value tensor of shape ", values.sizes(),
                " cannot be broadcast to indexing result of shape ",
                c10::IntArrayRef(selected));
  }
  return {EmptyLike(self.scalar_type(), self)};
}

Results MaskedIndex(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  return {Contiguous(
      self.scalar_type(),
      Broadcast(IndexedSizes(self, args.Tensors(2)), args.Tensor(1).sizes()))};
}

Results LikeSelf(const CallArguments& args) {
  return {EmptyLike(args.Tensor(0).scalar_type(), args.Tensor(0))};
}

Results MaskedScatterBackward(const CallArguments& args) {
  return {Contiguous(args.Tensor(0).scalar_type(), args.Integers(2))};
}

Results EmbeddingBagBackward(const CallArguments& args) {
  TORCH_CHECK(!args.Boolean(9), "a sparse gradient has no strides");
  const at::Tensor& grad = args.Tensor(0);
  return {Contiguous(grad.scalar_type(), {args.Integer(6), grad.size(1)})};
}

}  // namespace

void AddIndexingRules(RuleTable* table) {
  table->Add({"aten::index_put", "aten::_index_put_impl"}, IndexPut);
  table->Add({"aten::index_select"}, IndexSelect);
  table->Add({"aten::embedding"}, Embedding);
  table->Add({"aten::embedding_dense_backward"}, EmbeddingDenseBackward);
  table->Add({"aten::_embedding_bag"}, [](const CallArguments& args) {
    return EmbeddingBag(args, args.Integer(8), /*needs_gradient=*/true);
  });
  table->Add({"aten::_embedding_bag_forward_only"},
             [](const CallArguments& args) {
               return EmbeddingBag(args, args.Integer(8),
                                   /*needs_gradient=*/false);
             });
  table->Add({"aten::embedding_bag"}, [](const CallArguments& args) {
    return EmbeddingBag(args, -1, /*needs_gradient=*/false);
  });
  table->Add({"aten::_embedding_bag_per_sample_weights_backward"},
             EmbeddingBagWeightsBackward);
  table->Add({"aten::_embedding_bag_dense_backward"},
             EmbeddingBagDenseBackward);
  table->Add({"aten::masked_select"}, MaskedSelect);
  table->Add({"aten::take"}, Take);
  table->Add({"aten::flip"}, Flip);
  table->Add({"aten::roll"}, Roll);
  table->Add({"aten::rot90"}, Rotate90);
  table->Add({"aten::repeat"}, Repeat);
  table->Add({"aten::searchsorted.Tensor"}, SearchSorted);
  table->Add({"aten::searchsorted.Scalar"}, SearchSortedScalar);
  table->Add({"aten::bucketize.Tensor"}, Bucketize);
  table->Add({"aten::bucketize.Scalar"}, BucketizeScalar);
  table->Add({"aten::nonzero_static"}, NonzeroStatic);
  table->Add({"aten::unfold_backward"}, UnfoldBackward);
  table->Add({"aten::unfold_copy"}, UnfoldCopy);
  table->Add({"aten::_unsafe_masked_index"}, MaskedIndex);
  table->Add({"aten::_unsafe_masked_index_put_accumulate"}, LikeSelf);
  table->Add({"aten::masked_scatter_backward"}, MaskedScatterBackward);
  table->Add({"aten::_embedding_bag_backward"}, EmbeddingBagBackward);
}

}  // namespace djinn
