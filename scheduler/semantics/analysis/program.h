// A session's graphs one after the other, each understood with the help of
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

// Keeps the latest graphs of which not all is known, or whose projections a
// later one may join: it may show what they belong to. 16 of them, and 1 MiB of
// encodings, at most. Not thread-safe.
class Program {
 public:
  struct Finding {
    std::string name;  // as it was added
    std::shared_ptr<const srg::Graph> graph;
    Meaning meaning;  // points into `graph`
  };

  // Analyses a valid graph, whose encoding has so many bytes. The first
  // finding is about it; others are about earlier ones of which more is known
  // now.
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
    // Which a later graph may join.
    std::vector<Projection> left_projections;
  };
  // Whether there is something to look for again.
  bool IsOpen(const Open& open) const;
  bool IsJoinedSince(const Open& open) const;

  Context context_;
  std::deque<Open> open_;
  uint64_t open_bytes_ = 0;
};

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ANALYSIS_PROGRAM_H_
