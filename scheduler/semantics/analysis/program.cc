#include "scheduler/semantics/analysis/program.h"

#include <algorithm>
#include <utility>

#include "scheduler/semantics/analysis/analysis.h"

namespace djinn::semantics {
namespace {

Known WhatStays(const Meaning& meaning) {
  Known known;
  known.nodes.reserve(meaning.nodes.size());
  for (const NodeMeaning& node : meaning.nodes) {
    known.nodes.push_back({node.phase, node.modality});
  }
  known.sources.reserve(meaning.slots.size());
  for (const SlotMeaning& slot : meaning.slots) {
    known.sources.push_back(slot.source);
    known.embedded.push_back(slot.embedded);
  }
  return known;
}

int64_t CountUnknown(const Known& known) {
  return std::count_if(known.nodes.begin(), known.nodes.end(),
                       [](const Origin& origin) {
                         return origin.phase == Phase::kUnspecified ||
                                origin.modality == Modality::kUnspecified;
                       });
}

}  // namespace

bool Program::IsOpen(const Open& open) const {
  return CountUnknown(open.known) > 0 || !open.left_projections.empty();
}

bool Program::IsJoinedSince(const Open& open) const {
  return std::any_of(
      open.left_projections.begin(), open.left_projections.end(),
      [this](const Projection& left) { return context_.IsJoined(left); });
}

std::vector<Program::Finding> Program::Add(
    std::string name, std::shared_ptr<const srg::Graph> graph,
    uint64_t encoded_bytes) {
  std::vector<Finding> findings;
  findings.push_back({name, graph, Analyze(*graph, &context_)});
  // Goes from the latest to the earliest graph: each may need what the one
  // after it has learned.
  for (auto open = open_.rbegin(); open != open_.rend(); ++open) {
    const bool joined = IsJoinedSince(*open);
    if (!joined && CountUnknown(open->known) == 0) continue;
    Meaning again = Analyze(*open->graph, &context_, &open->known);
    Known known = WhatStays(again);
    if (!joined && CountUnknown(known) == CountUnknown(open->known)) continue;
    open->known = std::move(known);
    open->left_projections = again.left_projections;
    findings.push_back({open->name, open->graph, std::move(again)});
  }
  std::erase_if(open_, [&](const Open& open) {
    // A graph that is defined again is open only once under its name.
    const bool done = !IsOpen(open) || open.name == name;
    if (done) open_bytes_ -= open.encoded_bytes;
    return done;
  });
  const Meaning& first = findings.front().meaning;
  Open open = {std::move(name), std::move(graph), encoded_bytes,
               WhatStays(first), first.left_projections};
  if (IsOpen(open)) {
    open_.push_back(std::move(open));
    open_bytes_ += encoded_bytes;
  }
  while (open_.size() > kMaxOpen || open_bytes_ > kMaxOpenBytes) {
    open_bytes_ -= open_.front().encoded_bytes;
    open_.pop_front();
  }
  return findings;
}

}  // namespace djinn::semantics
