// Builds graphs of programs that arrive in pieces, for tests.
#ifndef SCHEDULER_SEMANTICS_ANALYSIS_PROGRAM_TESTING_H_
#define SCHEDULER_SEMANTICS_ANALYSIS_PROGRAM_TESTING_H_

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/semantics/analysis/program.h"
#include "scheduler/semantics/analysis/testing.h"

namespace djinn::semantics {

inline std::shared_ptr<const srg::Graph> Share(const Builder& builder) {
  return std::make_shared<srg::Graph>(builder.graph());
}

// Looks up the vectors of `tokens` tokens.
inline Builder LookUp(int64_t tokens) {
  Builder b;
  b.Call("embedding", {b.Bound({96, 128}), b.Integers({1, tokens})},
         {1, tokens, 128});
  return b;
}

inline Builder WithCache(int64_t tokens) {
  Builder b;
  const auto x = b.Call("relu", {b.Bound({1, tokens, 128})}, {1, tokens, 128});
  const auto k = b.Linear(x, 128);
  b.Call("cat",
         {std::vector<srg::TensorListEntry>{b.Bound({0}),
                                            Builder::As(k, {1, 4, tokens, 32})},
          int64_t{-2}},
         {1, 4, tokens, 32});
  return b;
}

// Leaves the rows of seven tokens, and 16 patches of an image, for another
// graph.
inline Builder TextAndPatches() {
  Builder b;
  const auto tokens =
      b.Call("embedding", {b.Bound({96, 64}), b.Integers({1, 7})}, {1, 7, 64});
  b.Call("layer_norm", {tokens, std::vector<int64_t>{64}, b.Bound({64})},
         {1, 7, 64});
  b.Call("conv2d",
         {b.Bound({1, 3, 16, 16}), b.Bound({64, 3, 4, 4}), std::monostate(),
          std::vector<int64_t>{4, 4}},
         {1, 64, 4, 4});
  return b;
}

using Entries = std::vector<srg::TensorListEntry>;

inline const Program::Finding* Find(
    const std::vector<Program::Finding>& findings, const std::string& name) {
  for (const Program::Finding& finding : findings) {
    if (finding.name == name) return &finding;
  }
  return nullptr;
}

inline void ExpectEach(const Meaning& meaning, Phase phase, Modality modality) {
  for (const NodeMeaning& node : meaning.nodes) {
    EXPECT_EQ(node.phase, phase);
    EXPECT_EQ(node.modality, modality);
  }
}

inline std::vector<std::string> RolesOf(const Program::Finding& finding) {
  std::vector<std::string> roles;
  for (const NodeMeaning& node : finding.meaning.nodes) {
    roles.push_back(node.role);
  }
  return roles;
}

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ANALYSIS_PROGRAM_TESTING_H_
