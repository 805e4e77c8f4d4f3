#include "tests/bench/format.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"

namespace djinn::bench {
namespace {

// Three significant digits, no exponent.
std::string ThreeDigits(double value) {
  const double size = std::abs(value);
  return absl::StrFormat("%.*f",
                         size < 9.995   ? 2
                         : size < 99.95 ? 1
                                        : 0,
                         value);
}

}  // namespace

std::string FormatSeconds(double seconds) {
  const double size = std::abs(seconds);
  if (size < 999.5e-9) return ThreeDigits(seconds * 1e9) + " ns";
  if (size < 999.5e-6) return ThreeDigits(seconds * 1e6) + " us";
  if (size < 999.5e-3) return ThreeDigits(seconds * 1e3) + " ms";
  return ThreeDigits(seconds) + " s";
}

std::string FormatBytes(double bytes) {
  if (bytes < 1024) return absl::StrFormat("%.0f B", bytes);
  if (bytes < 1024 * 1024) return ThreeDigits(bytes / 1024) + " KiB";
  return ThreeDigits(bytes / (1024 * 1024)) + " MiB";
}

std::string FormatRate(double bytes, double seconds) {
  return ThreeDigits(bytes / seconds * 1e-9) + " GB/s";
}

}  // namespace djinn::bench
