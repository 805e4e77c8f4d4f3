// How occurrences of a pattern are found in a graph.
//
// A pattern looks at what is still free and adds regions; a node belongs to the
// first region that takes it. To add a pattern, write its file, declare it in
// patterns.h and put it into the table in patterns.cc, ahead of those whose
// nodes it must have first.
#ifndef SCHEDULER_SEMANTICS_PATTERNS_PATTERN_H_
#define SCHEDULER_SEMANTICS_PATTERNS_PATTERN_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "scheduler/semantics/patterns/frame.h"

namespace djinn::semantics {

// A node and what it does: "attention.scores".
struct Member {
  int node;
  std::string role;
};

struct Region {
  std::string pattern;
  std::vector<Member> members;      // ascending by node, each once
  std::vector<std::string> traits;  // what is particular: "fused", "causal"
  // Cross attention's: the value that keys and values are projected from; -1
  // otherwise, or when that is not in sight.
  int memory = -1;

  bool HasTrait(absl::string_view trait) const;
};

// The regions found so far.
class Regions {
 public:
  explicit Regions(int node_count) : region_of_(node_count, -1) {}

  // Takes those of the members that are free; nothing when none is.
  void Add(Region region);

  // A region turns out to be another pattern's; its roles begin with the new
  // name.
  void Rename(int region, const std::string& pattern);

  bool IsFree(int node) const { return region_of_[node] < 0; }
  // Index into all(), or -1.
  int region_of(int node) const { return region_of_[node]; }
  // The node's role; empty when no region has it.
  absl::string_view role(int node) const;
  // The name of its region's pattern; empty when no region has it.
  absl::string_view pattern(int node) const;
  const std::vector<Region>& all() const { return regions_; }

 private:
  std::vector<Region> regions_;
  std::vector<int> region_of_;
};

// Stateless.
class Pattern {
 public:
  virtual ~Pattern() = default;
  virtual absl::string_view name() const = 0;
  virtual void Match(const Frame& frame, Regions* regions) const = 0;
};

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_PATTERNS_PATTERN_H_
