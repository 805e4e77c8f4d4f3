#include "tests/bench/report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace djinn::bench {
namespace {

// Formats three significant digits without an exponent.
std::string ThreeDigits(double value) {
  const double size = std::abs(value);
  return absl::StrFormat("%.*f",
                         size < 9.995   ? 2
                         : size < 99.95 ? 1
                                        : 0,
                         value);
}

bool HasSamples(const std::optional<Series>& series) {
  return series.has_value() && !series->empty();
}

using Cells = std::array<std::string, 7>;

// Returns "-" if there is no series.
std::string MedianCell(const std::optional<Series>& series) {
  if (!series.has_value() || series->empty()) return "-";
  return FormatSeconds(Median(series->RoundMedians()));
}

std::string PercentileCell(const Row& row) {
  const std::optional<Series>& series =
      row.djinn.has_value() ? row.djinn : row.baseline;
  if (!series.has_value() || series->empty()) return "-";
  const std::vector<double> all = series->All();
  return absl::StrCat(FormatSeconds(Percentile(all, 50)), " / ",
                      FormatSeconds(Percentile(all, 99)));
}

std::string RatioCell(const Row& row) {
  if (!row.ratio.has_value()) return "-";
  return absl::StrFormat("%.2f [%.2f, %.2f]", row.ratio->median, row.ratio->low,
                         row.ratio->high);
}

Cells RowCells(const Row& row) {
  std::string checked = row.checked.empty() ? "-" : row.checked;
  if (!row.error.empty()) checked = absl::StrCat("WRONG: ", row.error);
  // The baseline that was measured alone is shown if the ratio is to it.
  const bool alone = row.ratio_to_alone || !row.baseline.has_value();
  return {row.benchmark,
          row.variant,
          MedianCell(row.djinn),
          MedianCell(alone ? row.baseline_alone : row.baseline),
          RatioCell(row),
          PercentileCell(row),
          std::move(checked)};
}

std::string FormatLine(const Cells& cells, const std::array<size_t, 7>& width) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) line += "  ";
    // Text is aligned to the left, and figures to the right. The last column
    // has no fixed width.
    if (i < 2) {
      absl::StrAppendFormat(&line, "%-*s", static_cast<int>(width[i]),
                            cells[i]);
    } else if (i + 1 < cells.size()) {
      absl::StrAppendFormat(&line, "%*s", static_cast<int>(width[i]), cells[i]);
    } else {
      line += cells[i];
    }
  }
  return line + "\n";
}

nlohmann::json IntervalJson(const Interval& interval) {
  return {{"median", interval.median},
          {"low", interval.low},
          {"high", interval.high}};
}

nlohmann::json SeriesJson(const Series& series) {
  const std::vector<double> all = series.All();
  nlohmann::json json = IntervalJson(MedianInterval(series.RoundMedians()));
  json["p50"] = Percentile(all, 50);
  json["p99"] = Percentile(all, 99);
  json["min"] = Percentile(all, 0);
  json["max"] = Percentile(all, 100);
  json["samples"] = all.size();
  json["round_medians"] = series.RoundMedians();
  return json;
}

void PutSeries(const char* key, const std::optional<Series>& series,
               nlohmann::json* json) {
  if (series.has_value() && !series->empty())
    (*json)[key] = SeriesJson(*series);
}

nlohmann::json RowJson(const Row& row) {
  nlohmann::json json = {
      {"benchmark", row.benchmark}, {"variant", row.variant},
      {"unit", "seconds"},          {"notes", row.notes},
      {"numbers", row.numbers},     {"correct", row.error.empty()}};
  PutSeries("djinn", row.djinn, &json);
  PutSeries("baseline", row.baseline, &json);
  PutSeries("baseline_alone", row.baseline_alone, &json);
  if (!row.baseline_name.empty()) json["baseline_name"] = row.baseline_name;
  if (row.ratio.has_value()) {
    json["ratio"] = IntervalJson(*row.ratio);
    json["ratio_to"] = row.ratio_to_alone ? "baseline_alone" : "baseline";
  }
  if (!row.checked.empty()) json["checked"] = row.checked;
  if (!row.error.empty()) json["error"] = row.error;
  return json;
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

std::string FormatTable(const std::vector<Row>& rows) {
  std::vector<Cells> lines = {{"benchmark", "variant", "Djinn", "baseline",
                               "ratio [95 %]", "p50 / p99", "checked"}};
  for (const Row& row : rows) lines.push_back(RowCells(row));
  std::array<size_t, 7> width = {};
  for (const Cells& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) {
      width[i] = std::max(width[i], line[i].size());
    }
  }
  std::string table = FormatLine(lines[0], width);
  for (size_t i = 0; i < rows.size(); ++i) {
    table += FormatLine(lines[i + 1], width);
    for (const std::string& note : rows[i].notes) {
      absl::StrAppend(&table, "    ", note, "\n");
    }
  }
  return table;
}

nlohmann::json MakeJson(nlohmann::json about, const std::vector<Row>& rows) {
  about["results"] = nlohmann::json::array();
  for (const Row& row : rows) about["results"].push_back(RowJson(row));
  return about;
}

}  // namespace djinn::bench
