// The report of a run, as a table for people and as JSON for programs.
#ifndef TESTS_BENCH_REPORT_H_
#define TESTS_BENCH_REPORT_H_

#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/bench/row.h"

namespace djinn::bench {

// Times are medians of rounds; p50 and p99 are over all samples, Djinn's if the
// row has any. Ends with a newline.
std::string FormatTable(const std::vector<Row>& rows);

// {"machine", "versions", "conditions" as given, "results": one per row}.
nlohmann::json MakeJson(nlohmann::json about, const std::vector<Row>& rows);

}  // namespace djinn::bench

#endif  // TESTS_BENCH_REPORT_H_
