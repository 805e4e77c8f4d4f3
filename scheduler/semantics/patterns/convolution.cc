// Finds the stages of a convolutional network: a convolution with the padding
// before it, the batch normalization and the activation directly behind it, and
// pooling.
#include "scheduler/semantics/patterns/patterns.h"
#include "scheduler/semantics/patterns/walk.h"

namespace djinn::semantics {
namespace {

bool IsBatchNorm(const Frame& frame, int node) {
  const absl::string_view op = frame.op(node);
  return op == "batch_norm" || op == "native_batch_norm" ||
         op == "cudnn_batch_norm" || op == "_native_batch_norm_legit";
}

// Returns whether the node pads images of several channels with zeros.
bool PadsImages(const Frame& frame, int node) {
  const auto in = frame.Sizes(node, 0), out = frame.OutputSizes(node);
  return frame.op(node) == "constant_pad_nd" && in.size() == 4 &&
         out.size() == 4 && in[1] == out[1] && in[2] != out[2] &&
         in[3] != out[3] && IsFloating(frame.outputs(node)[0].view->data_type);
}

// Returns whether the node averages over the rows and columns of an image.
bool IsGlobalPooling(const Frame& frame, int node) {
  if (frame.op(node) != "mean" || frame.Sizes(node, 0).size() != 4) {
    return false;
  }
  const auto* const argument = frame.argument(node, 1);
  const auto* const dimensions =
      argument == nullptr ? nullptr
                          : std::get_if<std::vector<int64_t>>(argument);
  return dimensions != nullptr && dimensions->size() == 2;
}

class Convolution : public Pattern {
 public:
  absl::string_view name() const override { return "conv"; }

  void Match(const Frame& frame, Regions* regions) const override {
    for (int i = 0; i < frame.node_count(); ++i) {
      if (!regions->IsFree(i)) continue;
      if (frame.op_class(i) == OpClass::kConvolution) {
        Region region{"conv", {{i, "conv.product"}}, {}};
        const int before = frame.Producer(i, 0);
        if (before >= 0 && PadsImages(frame, before)) {
          region.members.push_back({before, "conv.padding"});
        }
        AddBehind(frame, *regions, i, &region);
        regions->Add(std::move(region));
      } else if (IsBatchNorm(frame, i)) {
        // Its convolution is in the previous piece.
        Region region{"conv", {{i, "conv.norm"}}, {}};
        AddBehind(frame, *regions, i, &region);
        regions->Add(std::move(region));
      } else if (PadsImages(frame, i) && frame.Consumers(i).empty()) {
        // Its convolution is in the next piece.
        regions->Add({"conv", {{i, "conv.padding"}}, {}});
      } else if (frame.op_class(i) == OpClass::kPooling ||
                 IsGlobalPooling(frame, i)) {
        regions->Add({"conv", {{i, "conv.pooling"}}, {}});
      }
    }
  }

 private:
  static void AddBehind(const Frame& frame, const Regions& regions, int node,
                        Region* region) {
    for (const int next : frame.Consumers(node)) {
      if (!regions.IsFree(next)) continue;
      if (IsBatchNorm(frame, next)) {
        region->members.push_back({next, "conv.norm"});
        AddBehind(frame, regions, next, region);
      } else if (frame.op_class(next) == OpClass::kActivation &&
                 // Excludes an activation of rows that were made of the image.
                 frame.Sizes(next, 0) == frame.OutputSizes(node)) {
        region->members.push_back({next, "conv.activation"});
      }
    }
    // PyTorch counts the batches in a separate tensor, and increments it
    // before.
    if (IsBatchNorm(frame, node) && node > 0 && frame.op(node - 1) == "add_" &&
        regions.IsFree(node - 1) && frame.Sizes(node - 1, 0).empty()) {
      region->members.push_back({node - 1, "conv.norm"});
    }
  }
};

}  // namespace

const Pattern& ConvolutionPattern() {
  static const Convolution pattern;
  return pattern;
}

}  // namespace djinn::semantics
