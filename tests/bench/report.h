// The rows of a report, as a human-readable table and as JSON.
#ifndef TESTS_BENCH_REPORT_H_
#define TESTS_BENCH_REPORT_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/bench/statistics.h"

namespace djinn::bench {

// Three digits and a fitting unit: "1.23 us", "456 ms".
std::string FormatSeconds(double seconds);

// "640 B", "1.50 MiB".
std::string FormatBytes(double bytes);

// "2.34 GB/s".
std::string FormatRate(double bytes, double seconds);

// All times are in seconds.
struct Row {
  std::string benchmark;
  std::string variant;

  // What Djinn took. Absent in rows that only measure a floor.
  std::optional<Series> djinn;

  // What the same took without Djinn, in words and in rounds that alternated
  // with Djinn's.
  std::string baseline_name;
  std::optional<Series> baseline;
  // Measured earlier, while no Djinn process was alive.
  std::optional<Series> baseline_alone;

  // Djinn to baseline: below 1, Djinn is faster. See SetRatio().
  std::optional<Interval> ratio;
  // Whether `ratio` is to baseline_alone.
  bool ratio_to_alone = false;

  // Counts and sizes, such as "bytes_up_warm".
  std::map<std::string, double> numbers;
  // Shown below the line.
  std::vector<std::string> notes;

  // What was compared, such as "losses, equal bits"; empty in rows without an
  // output of their own.
  std::string checked;
  // What was wrong with the outputs or the bytes moved. Empty: nothing.
  std::string error;
};

// Baselines this much apart do not count as the same.
inline constexpr double kBaselineTolerance = 0.05;

// Fills `ratio` from the series. The alternating baseline counts, unless the
// one measured alone was more than kBaselineTolerance away: then Djinn's
// processes may have disturbed it, the faster of the two counts, and a note
// says both. Does nothing without Djinn's series or without a baseline.
void SetRatio(Row* row);

// The summary row of others: the geometric mean of their ratios. All have one.
Row GeometricMeanRow(const std::vector<const Row*>& rows);

// Times are medians of rounds; p50 and p99 are over all samples, Djinn's if the
// row has any. Ends with a newline.
std::string FormatTable(const std::vector<Row>& rows);

// {"machine", "versions", "conditions" as given, "results": one per row}.
nlohmann::json MakeJson(nlohmann::json about, const std::vector<Row>& rows);

}  // namespace djinn::bench

#endif  // TESTS_BENCH_REPORT_H_
