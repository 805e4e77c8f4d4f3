// Analyzes the graphs of a session one after the other, each with the help of
// the others.
#ifndef SCHEDULER_SEMANTICS_ANALYSIS_PROGRAM_H_
#define SCHEDULER_SEMANTICS_ANALYSIS_PROGRAM_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "common/srg/graph.h"
#include "scheduler/semantics/analysis/context.h"
#include "scheduler/semantics/cost/meaning.h"

namespace djinn::semantics {

// Keeps the latest graphs that are not completely understood, or whose
// projections a later graph may join, because a later graph may show what they
// belong to. Keeps at most 16 graphs and 1 MiB of encodings. Not thread-safe.
class Program {
 public:
  struct Finding {
    std::string name;  // as it was added
    std::shared_ptr<const srg::Graph> graph;
    Meaning meaning;  // points into `graph`
  };

  // Analyzes a valid graph, whose encoding has `encoded_bytes` bytes. The first
  // finding is about this graph. Further findings are about earlier graphs of
  // which more is known now.
  std::vector<Finding> Add(std::string name,
                           std::shared_ptr<const srg::Graph> graph,
                           uint64_t encoded_bytes);

 private:
  static constexpr size_t kMaxOpen = 16;
  static constexpr uint64_t kMaxOpenBytes = uint64_t{1} << 20;
  struct Open {
    std::string name;
    std::shared_ptr<const srg::Graph> graph;
    uint64_t encoded_bytes;
    Known known;
    // The projections that a later graph may join.
    std::vector<Projection> left_projections;
  };
  // Returns whether a further analysis may find more.
  bool IsOpen(const Open& open) const;
  bool IsJoinedSince(const Open& open) const;

  Context context_;
  std::deque<Open> open_;
  uint64_t open_bytes_ = 0;
};

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ANALYSIS_PROGRAM_H_
