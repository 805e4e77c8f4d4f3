#include "ATen/ops/eye.h"
#include "client_lib/shape/rule_check.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

// Returns the identity, which is well-conditioned, in several layouts.
std::vector<at::Tensor> Squares(at::ScalarType dtype) {
  const at::Tensor eye = at::eye(3, dtype);
  return {eye,
          eye.transpose(0, 1),
          eye.expand({2, 3, 3}),
          eye.expand({2, 3, 3}).contiguous(),
          eye.expand({2, 3, 3}).contiguous().transpose(1, 2),
          eye.expand({2, 1, 3, 3}),
          eye.expand({2, 3, 3}).contiguous().slice(0, 0, 0)};
}

TEST(LinalgRulesTest, DecompositionsAndSolvers) {
  for (at::ScalarType dtype : {at::kFloat, at::kDouble, at::kComplexFloat}) {
    for (const at::Tensor& a : Squares(dtype)) {
      for (const char* name :
           {"aten::cholesky", "aten::cholesky_inverse", "aten::linalg_eig",
            "aten::_linalg_eigvals", "aten::linalg_eigvals",
            "aten::linalg_matrix_exp", "aten::geqrf"}) {
        CheckRule(name, {a});
      }
      CheckRule("aten::linalg_householder_product", {a, a.select(-1, 0)});
      CheckRule("aten::ormqr", {a, a.select(-1, 0), a});
      for (const at::Tensor& b : Layouts({3, 4}, dtype)) {
        CheckRule("aten::linalg_solve_triangular", {a, b, true});
        CheckRule("aten::linalg_solve_triangular",
                  {a, b.transpose(0, 1), false, false});
        CheckRule("aten::cholesky_solve", {b, a});
      }
      for (const at::Tensor& b : Layouts({2, 3, 4}, dtype)) {
        if (a.numel() == 0) continue;
        CheckRule("aten::linalg_solve_triangular", {a, b, true});
        CheckRule("aten::cholesky_solve", {b, a});
      }
    }
  }
  for (const at::Tensor& a : Layouts({2, 5, 3})) {
    CheckRule("aten::geqrf", {a});
    CheckRule("aten::linalg_householder_product", {a, Make({2, 3})});
    CheckRule("aten::ormqr", {a, Make({2, 3}), Make({2, 5, 4})});
    CheckRule("aten::ormqr", {a, Make({2, 3}), Make({2, 4, 5}), false});
  }
  for (const at::Tensor& a : Layouts({2, 5, 3})) {
    CheckRule("aten::linalg_pinv.atol_rtol_tensor", {a});
    CheckRule("aten::linalg_pinv.atol_rtol_tensor", {a, Make({}), Make({2})});
  }
  for (const at::Tensor& a : Squares(at::kFloat)) {
    CheckRule("aten::linalg_pinv.atol_rtol_tensor", {a});
    CheckRule("aten::linalg_pinv.atol_rtol_tensor", {a, None(), None(), true});
  }
  CheckRule("aten::geqrf", {Make({3, 5})});
}

TEST(LinalgRulesTest, Products) {
  for (const at::Tensor& x : Layouts({2, 3, 4})) {
    for (const at::Tensor& y : Layouts({2, 4, 5})) {
      CheckRule("aten::addbmm", {Make({3, 5}), x, y});
      CheckRule("aten::addbmm", {Make({5}), x, y});
    }
  }
  for (const at::Tensor& self : Layouts({3, 5})) {
    CheckRule("aten::addbmm", {self, Make({2, 3, 4}), Make({2, 4, 5})});
  }
  CheckRule("aten::_weight_int8pack_mm",
            {Make({3, 32}, at::kBFloat16), Make({16, 32}, at::kChar),
             Make({16}, at::kBFloat16)});
  // These are the arguments of bilinear()'s call.
  CheckRule("aten::_trilinear",
            {Make({2, 3}), Make({5, 3, 4}), Make({2, 4}), Ints({1, 3}),
             Ints({0}), Ints({1, 2}), Ints({2, 3})});
  CheckRule("aten::_int_mm",
            {Make({3, 4}, at::kChar), Make({4, 5}, at::kChar)});
}

TEST(LinalgRulesTest, Distances) {
  for (const at::Tensor& x : Layouts({2, 3, 4})) {
    for (const at::Tensor& y : Layouts({2, 5, 4})) {
      for (double p : {0.0, 1.0, 2.0, 3.0}) {
        CheckRule("aten::cdist", {x, y, p});
        CheckRule("aten::_cdist_forward", {x, y, p, None()});
      }
      CheckRule("aten::cdist", {x, y, 2.0, 1});
      CheckRule("aten::cdist", {x, y, 2.0, 2});
    }
    CheckRule("aten::cdist", {x, Make({5, 4})});
    CheckRule("aten::_cdist_backward",
              {Make({2, 3, 5}), x, Make({2, 5, 4}), 2.0, Make({2, 3, 5})});
  }
  CheckRule("aten::cdist", {Make({0, 4}), Make({5, 4})});
  CheckRule("aten::cdist", {Make({3, 0}), Make({5, 0})});
  CheckRule("aten::cdist", {Make({30, 4}), Make({40, 4})});
  for (const at::Tensor& x : Layouts({4, 3})) {
    CheckRule("aten::_pdist_forward", {x.contiguous()});
    CheckRule("aten::_pdist_backward",
              {Make({6}), x.contiguous(), 2.0, Make({6})});
  }
  CheckRule("aten::_pdist_forward", {Make({1, 3})});
}

TEST(LinalgRulesTest, DistancesOfNothing) {
  CheckRule("aten::_cdist_backward", {Make({0, 3, 5}), Make({3, 4}),
                                      Make({0, 5, 4}), 2.0, Make({0, 3, 5})});
  CheckRule("aten::_cdist_backward", {Make({2, 0, 5}), Make({2, 0, 4}),
                                      Make({5, 4}), 2.0, Make({2, 0, 5})});
}

TEST(LinalgRulesTest, ConjugatedTriangles) {
  for (const at::Tensor& a : Layouts({2, 3, 3}, at::kComplexFloat)) {
    for (const at::Tensor& b :
         {Make({2, 3, 4}, at::kComplexFloat), Make({3, 4}, at::kComplexFloat),
          Make({5, 2, 3, 4}, at::kComplexFloat)}) {
      CheckRule("aten::linalg_solve_triangular", {a.conj(), b, true});
      CheckRule("aten::linalg_solve_triangular", {a.mH(), b, false});
    }
  }
}

TEST(LinalgRulesTest, MatrixVector) {
  for (const at::Tensor& matrix : Layouts({3, 4})) {
    CheckRule("aten::mv", {matrix, Make({4})});
    CheckRejected("aten::mv", {matrix, Make({5})});
    CheckRejected("aten::mv", {matrix, Make({4}, at::kDouble)});
  }
  CheckRule("aten::mv", {Make({3, 0}), Make({0})});
  CheckRejected("aten::mv", {Make({3, 4}), Make({0})});
  CheckRejected("aten::mv", {Make({4}), Make({4})});
}

TEST(LinalgRulesTest, RejectWhatTheKernelsReject) {
  const at::Tensor a = Make({3, 3});
  CheckRejected("aten::linalg_solve_triangular", {a, Make({4, 4}), true});
  CheckRejected("aten::linalg_solve_triangular", {Make({3, 4}), a, true});
  CheckRejected("aten::cholesky", {Make({3, 4})});
  CheckRejected("aten::cholesky", {Make({3})});
  CheckRule("aten::cholesky", {Make({2, 1, 0})});
  CheckRule("aten::cholesky", {Make({2, 0, 0}, at::kLong)});
  CheckRejected("aten::cholesky_solve", {Make({4, 2}), a});
  CheckRejected("aten::linalg_eig", {Make({3, 3}, at::kLong)});
  CheckRejected("aten::linalg_householder_product", {Make({3, 5}), Make({5})});
  CheckRejected("aten::addbmm", {a, Make({2, 3, 4}), Make({2, 5, 3})});
  CheckRejected("aten::cdist", {Make({3, 4}), Make({3, 5})});
  CheckRejected("aten::cdist", {Make({3, 4}), Make({3, 4}), -1.0});
}

}  // namespace
}  // namespace djinn
