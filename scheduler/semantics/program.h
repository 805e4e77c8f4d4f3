// A session's structures one after the other, each understood with the help of
// the others.
#ifndef SCHEDULER_SEMANTICS_PROGRAM_H_
#define SCHEDULER_SEMANTICS_PROGRAM_H_

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "common/srg/structure.h"
#include "scheduler/semantics/context.h"
#include "scheduler/semantics/meaning.h"

namespace djinn::semantics {

// Keeps the latest structures whose phases are not all known, 16 at most: a
// later one may show what they belong to. Not thread-safe.
class Program {
 public:
  struct Finding {
    std::string name;  // as it was added
    std::shared_ptr<const srg::Structure> structure;
    Meaning meaning;  // points into `structure`
  };

  // Analyses a valid structure. The first finding is about it; others are about
  // earlier ones of which more is known now.
  std::vector<Finding> Add(std::string name,
                           std::shared_ptr<const srg::Structure> structure);

 private:
  static constexpr size_t kMaxOpen = 16;
  struct Open {
    std::string name;
    std::shared_ptr<const srg::Structure> structure;
    int unknown;  // nodes without a phase
  };

  Context context_;
  std::deque<Open> open_;
};

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_PROGRAM_H_
