#include "scheduler/semantics/analysis/vision_decoding.h"

#include <algorithm>

namespace djinn::semantics {
namespace {

bool Enlarges(const Frame& frame, const Regions& regions, int node) {
  if (regions.pattern(node) == "embedding") return false;
  const auto in = frame.Sizes(node, 0), out = frame.OutputSizes(node);
  if (in.size() != 4 || out.size() != 4 || out[3] < in[3]) return false;
  if (frame.op_class(node) == OpClass::kResampling) {
    return !frame.IsBound(node, 0);
  }
  return frame.op_class(node) == OpClass::kConvolution && out[3] > in[3];
}

// Returns whether the node convolves each position by itself. An encoder's
// stage passes such a value to a decoder, beside the image that the decoder
// enlarged.
bool MixesChannels(const Frame& frame, int node) {
  if (frame.op_class(node) != OpClass::kConvolution) return false;
  const auto weight = frame.Sizes(node, 1);
  return weight.size() == 4 && weight[2] == 1 && weight[3] == 1 &&
         frame.Sizes(node, 0).size() == 4 &&
         frame.OutputSizes(node).size() == 4 &&
         frame.Sizes(node, 0)[3] == frame.OutputSizes(node)[3];
}

// Returns whether a convolution reads rows of tokens that were rearranged as
// an image, possibly through other convolutions.
bool IsOfTokens(const Frame& frame, int node) {
  for (int made = frame.Producer(node, 0), steps = 0; made >= 0 && steps < 4;
       made = frame.Producer(made, 0), ++steps) {
    if (frame.op_class(made) == OpClass::kConvolution) continue;
    if (frame.op_class(made) != OpClass::kLayout) return false;
    // The elements of a token are adjacent in memory.
    const srg::TensorView& rows = *frame.operands(made)[0].view;
    return rows.sizes.size() == 4 && rows.sizes[1] > 1 && rows.strides[1] == 1;
  }
  return false;
}

bool LeadsToDecoding(const Frame& frame, const Regions& regions, int node) {
  if (regions.pattern(node) == "attention" ||
      regions.pattern(node) == "embedding") {
    return false;
  }
  switch (frame.op_class(node)) {
    case OpClass::kPointwise:
    case OpClass::kLayout:
    case OpClass::kActivation:
    case OpClass::kMatmul:
      return true;
    case OpClass::kNormalization:
      return frame.op(node) != "layer_norm";
    case OpClass::kConvolution: {
      const auto in = frame.Sizes(node, 0), out = frame.OutputSizes(node);
      return in.size() == 4 && out.size() == 4 && in[3] == out[3] &&
             (in[1] <= out[1] || IsOfTokens(frame, node));
    }
    default:
      return false;
  }
}

}  // namespace

std::vector<bool> FindVisionDecoding(const Frame& frame, const Regions& regions,
                                     const std::vector<int>& towers) {
  std::vector<bool> decodes(frame.node_count(), false);
  for (int i = 0; i < frame.node_count(); ++i) {
    if (!Enlarges(frame, regions, i)) continue;
    decodes[i] = true;
    const auto leads = [&](int node) {
      const std::vector<int> consumers = frame.Consumers(node);
      return LeadsToDecoding(frame, regions, node) &&
             std::all_of(consumers.begin(), consumers.end(),
                         [&](int consumer) { return decodes[consumer]; });
    };
    // Each node is looked at only after one of its consumers was marked.
    std::vector<int> open = {i};
    while (!open.empty()) {
      const int node = open.back();
      open.pop_back();
      for (const int before : frame.Producers(node)) {
        if (decodes[before] || !leads(before)) continue;
        decodes[before] = true;
        open.push_back(before);
      }
    }
  }
  for (int i = 0; i < frame.node_count(); ++i) {
    for (const int producer : frame.Producers(i)) {
      decodes[i] = decodes[i] || (decodes[producer] && towers[i] >= 0);
    }
  }
  for (int i = 0; i < frame.node_count(); ++i) {
    if (!decodes[i] && MixesChannels(frame, i)) {
      const std::vector<int> consumers = frame.Consumers(i);
      decodes[i] = !consumers.empty() &&
                   std::all_of(consumers.begin(), consumers.end(),
                               [&](int reader) { return decodes[reader]; });
    }
  }
  return decodes;
}

}  // namespace djinn::semantics
