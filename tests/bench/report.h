// Formats the rows of a report as a human-readable table and as JSON.
#ifndef TESTS_BENCH_REPORT_H_
#define TESTS_BENCH_REPORT_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/bench/statistics.h"

namespace djinn::bench {

// Returns three digits and a suitable unit: "1.23 us", "456 ms".
std::string FormatSeconds(double seconds);

// Returns a text such as "640 B" or "1.50 MiB".
std::string FormatBytes(double bytes);

// Returns a text such as "2.34 GB/s".
std::string FormatRate(double bytes, double seconds);

// One row. All times are in seconds.
struct Row {
  std::string benchmark;
  std::string variant;

  // Djinn's times. Absent in rows that only measure a floor.
  std::optional<Series> djinn;

  // The name and the times of the same measurement without Djinn, in rounds
  // that alternated with Djinn's.
  std::string baseline_name;
  std::optional<Series> baseline;
  // Times measured earlier, while no Djinn process was alive.
  std::optional<Series> baseline_alone;

  // Ratio of Djinn to the baseline; below 1, Djinn is faster. See SetRatio().
  std::optional<Interval> ratio;
  // Whether `ratio` is to baseline_alone.
  bool ratio_to_alone = false;

  // Counts and sizes, such as "bytes_up_warm".
  std::map<std::string, double> numbers;
  // Shown below the line.
  std::vector<std::string> notes;

  // Description of the comparison, such as "losses, equal bits". Empty in rows
  // without an output of their own.
  std::string checked;
  // Fault of the outputs or of the bytes moved. Empty: there is none.
  std::string error;
};

// Baselines that differ by more are not considered equal.
inline constexpr double kBaselineTolerance = 0.05;

// Fills `ratio` from the series. The baseline is the alternating one, unless it
// differs by more than kBaselineTolerance from the one measured alone. In that
// case Djinn's processes may have disturbed the alternating one; the faster of
// the two is then the baseline, and a note states both. Does nothing without
// Djinn's series or without a baseline.
void SetRatio(Row* row);

// Returns a summary row: the geometric mean of the ratios, which all rows have.
Row GeometricMeanRow(const std::vector<const Row*>& rows);

// Returns the table. Times are medians of rounds. p50 and p99 are over all
// samples: Djinn's samples if the row has any. The table ends with a newline.
std::string FormatTable(const std::vector<Row>& rows);

// Returns {"machine", "versions", "conditions" as given, "results": one per
// row}.
nlohmann::json MakeJson(nlohmann::json about, const std::vector<Row>& rows);

}  // namespace djinn::bench

#endif  // TESTS_BENCH_REPORT_H_
