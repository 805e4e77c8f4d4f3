#include "scheduler/semantics/program.h"

#include <algorithm>
#include <utility>

#include "scheduler/semantics/analysis.h"

namespace djinn::semantics {
namespace {

int CountUnknown(const Meaning& meaning) {
  return static_cast<int>(std::count_if(
      meaning.nodes.begin(), meaning.nodes.end(), [](const NodeMeaning& node) {
        return node.phase == Phase::kUnspecified ||
               node.modality == Modality::kUnspecified;
      }));
}

}  // namespace

std::vector<Program::Finding> Program::Add(
    std::string name, std::shared_ptr<const srg::Structure> structure,
    uint64_t encoded_bytes) {
  std::vector<Finding> findings;
  findings.push_back({name, structure, Analyze(*structure, &context_)});
  // Latest first: each may need what the one behind it has learnt.
  for (auto open = open_.rbegin(); open != open_.rend(); ++open) {
    Meaning again = Analyze(*open->structure, &context_);
    const int unknown = CountUnknown(again);
    if (unknown >= open->unknown) continue;
    open->unknown = unknown;
    findings.push_back({open->name, open->structure, std::move(again)});
  }
  std::erase_if(open_, [&](const Open& open) {
    // Defined anew, it is open under its name once.
    const bool done = open.unknown == 0 || open.name == name;
    if (done) open_bytes_ -= open.encoded_bytes;
    return done;
  });
  const int unknown = CountUnknown(findings.front().meaning);
  if (unknown > 0) {
    open_.push_back(
        {std::move(name), std::move(structure), encoded_bytes, unknown});
    open_bytes_ += encoded_bytes;
  }
  while (open_.size() > kMaxOpen || open_bytes_ > kMaxOpenBytes) {
    open_bytes_ -= open_.front().encoded_bytes;
    open_.pop_front();
  }
  return findings;
}

}  // namespace djinn::semantics
