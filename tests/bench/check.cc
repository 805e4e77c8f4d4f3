#include "tests/bench/check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "ATen/TensorOperators.h"
#include "ATen/ops/abs.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace djinn::bench {
namespace {

bool EqualBits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

constexpr size_t kLongError = 200;

void Append(absl::string_view text, std::string* error) {
  if (error->size() > kLongError) return;
  absl::StrAppend(error, error->empty() ? "" : "; ", text);
}

}  // namespace

void Agreement::Add(const at::Tensor& expected, const at::Tensor& actual) {
  ++count_;
  const at::Tensor a = expected.contiguous();
  const at::Tensor b = actual.contiguous();
  if (EqualBits(a, b)) return;
  equal_bits_ = false;
  double difference = std::numeric_limits<double>::infinity();
  if (a.sizes() == b.sizes()) {
    const at::Tensor wanted = a.to(at::kDouble);
    const double scale = std::max(1.0, wanted.abs().max().item<double>());
    difference =
        (wanted - b.to(at::kDouble)).abs().max().item<double>() / scale;
  }
  // The condition is written so that NaN counts as infinite.
  if (!(difference <= std::numeric_limits<double>::max())) {
    difference = std::numeric_limits<double>::infinity();
  }
  difference_ = std::max(difference_, difference);
}

std::string Agreement::Describe(absl::string_view what) const {
  if (equal_bits_) return absl::StrCat(count_, " ", what, ", equal bits");
  return absl::StrFormat("%d %s, within %.1g", count_, what, difference_);
}

void Agreement::ExpectWithin(double tolerance, absl::string_view what,
                             std::string* error) const {
  if (count_ == 0) {
    Append(absl::StrCat("no ", what, " were compared"), error);
  } else if (difference_ > tolerance) {
    Append(
        absl::StrFormat("%s differ by %.2g from local ones, not at most %.0g",
                        what, difference_, tolerance),
        error);
  }
}

Statistics operator-(const Statistics& after, const Statistics& before) {
  Statistics delta;
  delta.calls = after.calls - before.calls;
  delta.synchronous_calls = after.synchronous_calls - before.synchronous_calls;
  delta.runs = after.runs - before.runs;
  delta.graphs_defined = after.graphs_defined - before.graphs_defined;
  delta.plan_cache_hits = after.plan_cache_hits - before.plan_cache_hits;
  delta.reads = after.reads - before.reads;
  delta.uploads_inline = after.uploads_inline - before.uploads_inline;
  delta.uploads_sent = after.uploads_sent - before.uploads_sent;
  delta.uploads_already_held =
      after.uploads_already_held - before.uploads_already_held;
  delta.bytes_up = after.bytes_up - before.bytes_up;
  delta.bytes_down = after.bytes_down - before.bytes_down;
  delta.root_errors = after.root_errors - before.root_errors;
  return delta;
}

void ExpectAtLeast(absl::string_view what, uint64_t value, uint64_t least,
                   std::string* error) {
  if (value >= least) return;
  Append(absl::StrCat(what, " is ", value, ", not at least ", least), error);
}

void ExpectAtMost(absl::string_view what, uint64_t value, uint64_t most,
                  std::string* error) {
  if (value <= most) return;
  Append(absl::StrCat(what, " is ", value, ", not at most ", most), error);
}

}  // namespace djinn::bench
