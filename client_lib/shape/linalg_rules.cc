// Rules for linear algebra and for distances between points.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "client_lib/shape/rule_table.h"
#include "client_lib/shape/stride_inference.h"
#include "client_lib/shape/type_promotion.h"

namespace djinn {
namespace {

using c10::DimVector;
using c10::IntArrayRef;
using c10::ScalarType;

void CheckMatrices(const char* op, const at::Tensor& tensor) {
  TORCH_CHECK(tensor.dim() >= 2, op,
              ": The input tensor must have at least 2 dimensions.");
  CheckFloating(op, tensor, /*complex_too=*/true);
}

void CheckSquare(const char* op, const at::Tensor& tensor) {
  CheckMatrices(op, tensor);
  TORCH_CHECK(tensor.size(-1) == tensor.size(-2), op,
              ": A must be batches of square matrices, but they are ",
              tensor.size(-2), " by ", tensor.size(-1), " matrices");
}

DimVector BatchSizes(const at::Tensor& tensor) {
  return DimVector(tensor.sizes().slice(0, tensor.dim() - 2));
}

DimVector WithMatrix(DimVector batch, int64_t rows, int64_t columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return batch;
}

// PyTorch's own function leaves the check of the sizes to a kernel.
Results MatrixVector(const CallArguments& args) {
  const at::Tensor& matrix = args.Tensor(0);
  const at::Tensor& vector = args.Tensor(1);
  TORCH_CHECK(matrix.dim() == 2 && vector.dim() == 1 &&
                  matrix.size(1) == vector.size(0),
              "size mismatch, got input (", matrix.sizes(), "), vec (",
              vector.sizes(), ")");
  TORCH_CHECK(
      matrix.numel() == 0 || matrix.scalar_type() == vector.scalar_type(),
      "expected scalar type ", matrix.scalar_type(), " but found ",
      vector.scalar_type());
  return {Contiguous(vector.scalar_type(), {matrix.size(0)})};
}

// ---- Decompositions and solvers ----

Results SolveTriangular(const CallArguments& args) {
  const at::Tensor& a = args.Tensor(0);
  const at::Tensor& b = args.Tensor(1);
  const bool left = args.Boolean(3);
  CheckSquare("linalg.solve_triangular", a);
  CheckMatrices("linalg.solve_triangular", b);
  CheckSameType("linalg.solve_triangular", {a, b});
  TORCH_CHECK(a.size(-1) == b.size(left ? -2 : -1),
              "linalg.solve_triangular: Incompatible shapes of A and B");
  const DimVector batch = Broadcast(BatchSizes(a), BatchSizes(b));
  const DimVector sizes = WithMatrix(batch, b.size(-2), b.size(-1));
  // A conjugated matrix is solved in transposed form instead of being copied.
  ResultMeta matrix = Describe(a);
  const bool expanded = IntArrayRef(batch) != BatchSizes(a);
  if (a.is_conj() && !expanded &&
      IsContiguous(Transpose(matrix, a.dim() - 2, a.dim() - 1))) {
    return {Contiguous(b.scalar_type(), sizes)};
  }
  return {ColumnMajor(b.scalar_type(), sizes)};
}

Results Cholesky(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  // The CPU looks at nothing else then.
  if (self.numel() == 0) return {EmptyLike(self.scalar_type(), self)};
  CheckSquare("cholesky", self);
  return {ColumnMajor(self.scalar_type(), self.sizes())};
}

Results CholeskyInverse(const CallArguments& args) {
  CheckSquare("cholesky_inverse", args.Tensor(0));
  return {ColumnMajor(args.Tensor(0).scalar_type(), args.Tensor(0).sizes())};
}

Results CholeskySolve(const CallArguments& args) {
  const at::Tensor& b = args.Tensor(0);
  const at::Tensor& factor = args.Tensor(1);
  CheckMatrices("cholesky_solve", b);
  CheckSquare("cholesky_solve", factor);
  CheckSameType("cholesky_solve", {b, factor});
  TORCH_CHECK(b.size(-2) == factor.size(-1),
              "Incompatible matrix sizes for cholesky_solve");
  return {ColumnMajor(b.scalar_type(),
                      WithMatrix(Broadcast(BatchSizes(b), BatchSizes(factor)),
                                 b.size(-2), b.size(-1)))};
}

Results ComplexEigenvalues(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  CheckSquare("linalg.eig", self);
  DimVector sizes = BatchSizes(self);
  sizes.push_back(self.size(-1));
  return {Contiguous(c10::toComplexType(self.scalar_type()), sizes)};
}

Results Eigenvectors(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  Results results = ComplexEigenvalues(args);
  results.push_back(
      ColumnMajor(c10::toComplexType(self.scalar_type()), self.sizes()));
  return results;
}

// The drivers lay their results out in several ways, and differ for a matrix
// without elements.
Results LeastSquares(const CallArguments&) {
  ResultMeta open;
  open.known = false;
  return {open, open, open, open};
}

Results HouseholderProduct(const CallArguments& args) {
  const at::Tensor& input = args.Tensor(0);
  const at::Tensor& tau = args.Tensor(1);
  CheckMatrices("torch.linalg.householder_product", input);
  CheckSameType("torch.linalg.householder_product", {input, tau});
  TORCH_CHECK(input.size(-2) >= input.size(-1),
              "torch.linalg.householder_product: input.shape[-2] must be "
              "greater than or equal to input.shape[-1]");
  TORCH_CHECK(tau.dim() == input.dim() - 1 && input.size(-1) >= tau.size(-1),
              "torch.linalg.householder_product: input and tau do not fit");
  return {ColumnMajor(input.scalar_type(), input.sizes())};
}

Results Geqrf(const CallArguments& args) {
  const at::Tensor& input = args.Tensor(0);
  CheckMatrices("torch.geqrf", input);
  DimVector tau = BatchSizes(input);
  tau.push_back(std::min(input.size(-2), input.size(-1)));
  return {ColumnMajor(input.scalar_type(), input.sizes()),
          Contiguous(input.scalar_type(), tau)};
}

Results Ormqr(const CallArguments& args) {
  const at::Tensor& input = args.Tensor(0);
  const at::Tensor& tau = args.Tensor(1);
  const at::Tensor& other = args.Tensor(2);
  CheckMatrices("torch.ormqr", input);
  CheckMatrices("torch.ormqr", other);
  CheckSameType("torch.ormqr", {input, tau, other});
  TORCH_CHECK(other.size(args.Boolean(3) ? -2 : -1) >= tau.size(-1) &&
                  other.size(args.Boolean(3) ? -2 : -1) == input.size(-2),
              "torch.ormqr: incompatible shapes");
  return {ColumnMajor(other.scalar_type(), other.sizes())};
}

Results MatrixExponential(const CallArguments& args) {
  CheckSquare("linalg.matrix_exp", args.Tensor(0));
  return {Contiguous(args.Tensor(0).scalar_type(), args.Tensor(0).sizes())};
}

Results PseudoInverse(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  if (args.Boolean(3)) {
    CheckSquare("linalg.pinv", self);
  } else {
    CheckMatrices("linalg.pinv", self);
  }
  return {
      Contiguous(self.scalar_type(),
                 WithMatrix(BatchSizes(self), self.size(-1), self.size(-2)))};
}

// ---- Products ----

Results AddBatchProducts(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  const at::Tensor& left = args.Tensor(1);
  const at::Tensor& right = args.Tensor(2);
  TORCH_CHECK(left.dim() == 3 && right.dim() == 3,
              "batch1 and batch2 must be 3D tensors");
  TORCH_CHECK(left.size(0) == right.size(0) && left.size(2) == right.size(1),
              "batch1 and batch2 do not fit, got ", left.sizes(), " and ",
              right.sizes());
  CheckSameType("addbmm", {self, left, right});
  const DimVector sizes = {left.size(1), right.size(2)};
  TORCH_CHECK(Broadcast(self.sizes(), sizes) == sizes,
              "addbmm: the size of self must fit ", IntArrayRef(sizes));
  return {Contiguous(self.scalar_type(), sizes)};
}

Results IntegerProduct(const CallArguments& args) {
  const at::Tensor& left = args.Tensor(0);
  const at::Tensor& right = args.Tensor(1);
  TORCH_CHECK(
      left.dim() == 2 && right.dim() == 2 && left.size(1) == right.size(0),
      "_int_mm: expected matrices that fit");
  TORCH_CHECK(left.scalar_type() == ScalarType::Char &&
                  right.scalar_type() == ScalarType::Char,
              "_int_mm: expected int8 matrices");
  return {Contiguous(ScalarType::Int, {left.size(0), right.size(1)})};
}

// Returns the product of activations and packed or narrow weights: (rows,
// inner) x (columns, inner).
Results NarrowProduct(const CallArguments& args) {
  const at::Tensor& left = args.Tensor(0);
  const at::Tensor& weight = args.Tensor(1);
  TORCH_CHECK(left.dim() == 2 && weight.dim() == 2, "expected matrices");
  return {Contiguous(left.scalar_type(), {left.size(0), weight.size(0)})};
}

// Returns the sum, over the dimensions `summed`, of the product of three
// operands. An operand gets dimensions of size 1 where it lacks them.
Results Trilinear(const CallArguments& args) {
  DimVector sizes;
  for (size_t i = 0; i < 3; ++i) {
    ResultMeta operand = Describe(args.Tensor(i));
    DimVector expanded = args.Integers(i + 3);
    std::sort(expanded.begin(), expanded.end());
    for (int64_t dim : expanded) operand = Unsqueeze(operand, dim);
    sizes = Broadcast(sizes, operand.sizes);
  }
  const auto total = static_cast<int64_t>(sizes.size());
  const int64_t unrolled = args.Integer(7);
  TORCH_CHECK(unrolled >= 0 && unrolled < total, "unroll_dim must be in [0,",
              total - 1, "]");
  DimVector summed = args.Integers(6);
  std::sort(summed.begin(), summed.end());
  for (size_t i = summed.size(); i-- > 0;) {
    TORCH_CHECK_INDEX(summed[i] >= 0 && summed[i] < total &&
                          (i == 0 || summed[i] != summed[i - 1]),
                      "_trilinear: sumdim ", summed[i],
                      " appears twice or is out of range of ", total,
                      " dimensions");
    sizes.erase(sizes.begin() + summed[i]);
  }
  return {Contiguous(TypePromotion()
                         .Add(args.Tensor(0))
                         .Add(args.Tensor(1))
                         .Add(args.Tensor(2))
                         .Result(),
                     sizes)};
}

// ---- Distances ----

ResultMeta DistancesBetween(const at::Tensor& x1, const at::Tensor& x2) {
  TORCH_CHECK(x1.dim() >= 2 && x2.dim() >= 2,
              "cdist only supports at least 2D tensors");
  TORCH_CHECK(x1.size(-1) == x2.size(-1),
              "X1 and X2 must have the same number of columns. X1: ",
              x1.size(-1), " X2: ", x2.size(-1));
  CheckFloating("cdist", x1);
  CheckFloating("cdist", x2);
  return Contiguous(x1.scalar_type(),
                    WithMatrix(Broadcast(BatchSizes(x1), BatchSizes(x2)),
                               x1.size(-2), x2.size(-2)));
}

Results Distances(const CallArguments& args) {
  TORCH_CHECK(args.Real(2) >= 0, "cdist only supports non-negative p values");
  return {DistancesBetween(args.Tensor(0), args.Tensor(1))};
}

Results DistancesBackward(const CallArguments& args) {
  const at::Tensor& x1 = args.Tensor(1);
  const at::Tensor& x2 = args.Tensor(2);
  const bool empty =
      x1.numel() == 0 || x2.numel() == 0 || args.Tensor(4).numel() == 0;
  // An empty result is not even broadcast.
  if (empty) return {EmptyLike(x1.scalar_type(), x1)};
  return {Contiguous(x1.scalar_type(),
                     WithMatrix(Broadcast(BatchSizes(x1), BatchSizes(x2)),
                                x1.size(-2), x1.size(-1)))};
}

Results PairDistances(const CallArguments& args) {
  const at::Tensor& self = args.Tensor(0);
  CheckFloating("pdist", self);
  const int64_t n = self.size(0);
  return {Contiguous(self.scalar_type(), {n <= 1 ? 0 : n * (n - 1) / 2})};
}

Results PairDistancesBackward(const CallArguments& args) {
  return {Contiguous(args.Tensor(1).scalar_type(), args.Tensor(1).sizes())};
}

}  // namespace

void AddLinalgRules(RuleTable* table) {
  table->Add({"aten::mv"}, MatrixVector);
  table->Add({"aten::linalg_solve_triangular"}, SolveTriangular);
  table->Add({"aten::cholesky"}, Cholesky);
  table->Add({"aten::cholesky_inverse"}, CholeskyInverse);
  table->Add({"aten::cholesky_solve", "aten::_cholesky_solve_helper"},
             CholeskySolve);
  table->Add({"aten::linalg_eig"}, Eigenvectors);
  table->Add({"aten::_linalg_eigvals", "aten::linalg_eigvals"},
             ComplexEigenvalues);
  table->Add({"aten::linalg_lstsq"}, LeastSquares);
  table->Add({"aten::linalg_householder_product"}, HouseholderProduct);
  table->Add({"aten::geqrf"}, Geqrf);
  table->Add({"aten::ormqr"}, Ormqr);
  table->Add({"aten::linalg_matrix_exp"}, MatrixExponential);
  table->Add({"aten::linalg_pinv.atol_rtol_tensor"}, PseudoInverse);
  table->Add({"aten::addbmm"}, AddBatchProducts);
  table->Add({"aten::_int_mm"}, IntegerProduct);

  table->Add({"aten::_weight_int8pack_mm"}, NarrowProduct);
  table->Add({"aten::_trilinear"}, Trilinear);

  table->Add({"aten::cdist", "aten::_cdist_forward"}, Distances);
  table->Add({"aten::_cdist_backward"}, DistancesBackward);
  table->Add({"aten::_pdist_forward"}, PairDistances);
  table->Add({"aten::_pdist_backward"}, PairDistancesBackward);
}

}  // namespace djinn
