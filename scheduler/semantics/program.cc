#include "scheduler/semantics/program.h"

#include <algorithm>
#include <utility>

#include "scheduler/semantics/analysis.h"

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

std::vector<Program::Finding> Program::Add(
    std::string name, std::shared_ptr<const srg::Structure> structure,
    uint64_t encoded_bytes) {
  std::vector<Finding> findings;
  findings.push_back({name, structure, Analyze(*structure, &context_)});
  // Latest first: each may need what the one behind it has learnt.
  for (auto open = open_.rbegin(); open != open_.rend(); ++open) {
    Meaning again = Analyze(*open->structure, &context_, &open->known);
    Known known = WhatStays(again);
    if (CountUnknown(known) == CountUnknown(open->known)) continue;
    open->known = std::move(known);
    findings.push_back({open->name, open->structure, std::move(again)});
  }
  std::erase_if(open_, [&](const Open& open) {
    // Defined anew, it is open under its name once.
    const bool done = CountUnknown(open.known) == 0 || open.name == name;
    if (done) open_bytes_ -= open.encoded_bytes;
    return done;
  });
  Known known = WhatStays(findings.front().meaning);
  if (CountUnknown(known) > 0) {
    open_.push_back({std::move(name), std::move(structure), encoded_bytes,
                     std::move(known)});
    open_bytes_ += encoded_bytes;
  }
  while (open_.size() > kMaxOpen || open_bytes_ > kMaxOpenBytes) {
    open_bytes_ -= open_.front().encoded_bytes;
    open_.pop_front();
  }
  return findings;
}

}  // namespace djinn::semantics
