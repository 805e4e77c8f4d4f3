// Measures how long the coordinator's placement takes to decide in a large
// cluster.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "tests/bench/benchmark.h"
#include "tests/bench/child_process.h"

namespace djinn::bench {
namespace {

class DecisionsBenchmark : public Benchmark {
 public:
  absl::string_view name() const override { return "decisions"; }
  bool needs_session() const override { return false; }

  absl::Status Measure(std::vector<Row>* rows) override {
    DJINN_ASSIGN_OR_RETURN(
        const auto program,
        ChildProcess::Start(
            SiblingProgram("../../scheduler/simulator/decision_benchmark"),
            {}));
    for (;;) {
      DJINN_ASSIGN_OR_RETURN(const std::string line, program->ReadLine());
      if (line == "done") return program->Wait();
      if (line == ".") continue;
      DJINN_ASSIGN_OR_RETURN(Row row, RowOf(line));
      rows->push_back(std::move(row));
    }
  }

 private:
  absl::StatusOr<Row> RowOf(const std::string& line) const {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    std::vector<double> numbers;
    for (size_t i = 1; i < words.size(); ++i) {
      if (!absl::SimpleAtod(words[i], &numbers.emplace_back())) {
        return absl::InternalError(line);
      }
    }
    if (numbers.size() != 4) return absl::InternalError(line);
    Row row;
    row.benchmark = std::string(name());
    row.variant = words[0];
    row.numbers["decisions_per_second"] = numbers[0];
    row.numbers["p50"] = numbers[1];
    row.numbers["p99"] = numbers[2];
    row.numbers["p999"] = numbers[3];
    row.notes.push_back(absl::StrFormat(
        "%.0f decisions a second of one core; p50 %.1f us, p99 %.1f us, p99.9 "
        "%.1f us; %s",
        numbers[0], 1e6 * numbers[1], 1e6 * numbers[2], 1e6 * numbers[3],
        absl::StartsWith(words[0], "line_")
            ? "100,000 requests wait in line, of 1,000 tenants"
            : "10,000 workers, 1,000 tenants, 100,000 requests placed one "
              "after the other"));
    return row;
  }
};

}  // namespace

std::unique_ptr<Benchmark> MakeDecisions(const Options&) {
  return std::make_unique<DecisionsBenchmark>();
}

}  // namespace djinn::bench
