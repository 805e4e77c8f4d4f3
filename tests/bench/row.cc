#include "tests/bench/row.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/bench/format.h"

namespace djinn::bench {
namespace {

bool HasSamples(const std::optional<Series>& series) {
  return series.has_value() && !series->empty();
}

}  // namespace

void SetRatio(Row* row) {
  if (!HasSamples(row->djinn) || !HasSamples(row->baseline)) return;
  const Interval interleaved = PairedRatio(*row->djinn, *row->baseline);
  row->ratio = interleaved;
  if (!HasSamples(row->baseline_alone)) return;

  const double beside = Median(row->baseline->RoundMedians());
  const double alone = Median(row->baseline_alone->RoundMedians());
  if (std::abs(beside - alone) <= kBaselineTolerance * alone) return;
  const Interval to_alone = UnpairedRatio(*row->djinn, *row->baseline_alone);
  row->ratio_to_alone = alone < beside;
  if (row->ratio_to_alone) row->ratio = to_alone;
  row->notes.push_back(absl::StrFormat(
      "baseline: %s with no Djinn process alive (ratio %.2f), %s between "
      "Djinn's rounds (ratio %.2f)",
      FormatSeconds(alone), to_alone.median, FormatSeconds(beside),
      interleaved.median));
}

Row GeometricMeanRow(const std::vector<const Row*>& rows) {
  std::vector<double> low, median, high;
  for (const Row* row : rows) {
    low.push_back(row->ratio->low);
    median.push_back(row->ratio->median);
    high.push_back(row->ratio->high);
  }
  Row mean;
  mean.benchmark = rows.front()->benchmark;
  mean.ratio = Interval{.low = GeometricMean(low),
                        .median = GeometricMean(median),
                        .high = GeometricMean(high)};
  return mean;
}

}  // namespace djinn::bench
