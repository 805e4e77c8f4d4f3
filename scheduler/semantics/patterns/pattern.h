// Defines patterns and the regions of a graph in which they occur.
//
// A pattern looks at the nodes that are still free and adds regions; a node
// belongs to the first region that takes it. To add a pattern, write its file,
// declare it in patterns.h and put it into the table in pattern.cc, ahead of
// the patterns that would otherwise take its nodes.
#ifndef SCHEDULER_SEMANTICS_PATTERNS_PATTERN_H_
#define SCHEDULER_SEMANTICS_PATTERNS_PATTERN_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "scheduler/semantics/patterns/frame.h"

namespace djinn::semantics {

// A node and its role, such as "attention.scores".
struct Member {
  int node;
  std::string role;
};

struct Region {
  std::string pattern;
  std::vector<Member> members;      // ascending by node, each once
  std::vector<std::string> traits;  // particularities: "fused", "causal"
  // For cross attention, the value from which keys and values are projected. -1
  // for other regions, or when the graph does not show it.
  int memory = -1;

  bool HasTrait(absl::string_view trait) const;
};

// The regions found so far, and the nodes that they own.
class Regions {
 public:
  explicit Regions(int node_count) : region_of_(node_count, -1) {}

  // Adds the region with those of its members that are free; does nothing when
  // none is.
  void Add(Region region);

  // Adds a free node to a region.
  void Join(int region, Member member);

  // Assigns a region to another pattern; its roles then begin with the new
  // name.
  void Rename(int region, const std::string& pattern);

  bool IsFree(int node) const { return region_of_[node] < 0; }
  // Returns the region's index into all(), or -1.
  int region_of(int node) const { return region_of_[node]; }
  // Returns the node's role; empty when no region has it.
  absl::string_view role(int node) const;
  // Returns the name of its region's pattern; empty when no region has it.
  absl::string_view pattern(int node) const;
  const std::vector<Region>& all() const { return regions_; }

 private:
  std::vector<Region> regions_;
  std::vector<int> region_of_;
};

// Finds occurrences of one pattern. Stateless.
class Pattern {
 public:
  virtual ~Pattern() = default;
  virtual absl::string_view name() const = 0;
  virtual void Match(const Frame& frame, Regions* regions) const = 0;
};

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_PATTERNS_PATTERN_H_
