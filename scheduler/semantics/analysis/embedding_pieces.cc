#include "scheduler/semantics/analysis/embedding_pieces.h"

#include "absl/algorithm/container.h"
#include "scheduler/semantics/patterns/walk.h"

namespace djinn::semantics {
namespace {

bool IsWhole(const srg::TensorView* view) {
  return view != nullptr && view->data_type == srg::DataType::kInt64;
}

bool MakesFloats(const Frame& frame, int node) {
  return absl::c_any_of(frame.outputs(node), [](const Frame::Output& output) {
    return output.view != nullptr && IsFloating(output.view->data_type);
  });
}

// Returns whether the node moves elements, multiplies them by one number, or
// adds rows. A reordered copy belongs to its reader instead.
bool MovesRows(const Frame& frame, int node) {
  if (frame.op(node) == "clone") return false;
  const OpClass op_class = frame.op_class(node);
  return op_class == OpClass::kLayout || op_class == OpClass::kIndexing ||
         IsScaling(frame, node) || frame.op(node) == "add" ||
         frame.op(node) == "add_";
}

// Returns whether the view has one vector per row of the batch, such as an
// image's class token before its patches.
bool IsVector(const srg::TensorView& view) {
  return view.sizes.size() == 3 && view.sizes[1] == 1;
}

// Returns whether the view has rows of two integers each.
bool ArePlaces(const srg::TensorView& view) {
  return IsWhole(&view) && view.sizes.size() == 2 && view.sizes[1] == 2;
}

// Returns whether the view is a column of pairs of integers.
bool IsColumn(const srg::TensorView& view) {
  return IsWhole(&view) && view.sizes.size() == 1 && view.strides[0] == 2;
}

// Returns whether the node indexes by both columns of the same pairs.
bool PicksByPlaces(const Frame& frame, int node) {
  const auto operands = frame.operands(node);
  return frame.op(node) == "index" && operands.size() == 3 &&
         IsColumn(*operands[1].view) && IsColumn(*operands[2].view) &&
         operands[1].value == operands[2].value;
}

bool WorksOnPlaces(const Frame& frame, int node) {
  const absl::string_view op = frame.op(node);
  const auto operands = frame.operands(node);
  if (operands.empty()) return false;
  const srg::TensorView& first = *operands[0].view;
  if (op == "nonzero") return IsWhole(&first) && first.sizes.size() == 2;
  if (op == "eq" || op == "_unique2") return IsColumn(first);
  if (op == "index" && ArePlaces(first)) return true;
  if (op == "cat") {
    return absl::c_all_of(operands, [](const Frame::Operand& operand) {
      return ArePlaces(*operand.view);
    });
  }
  return PicksByPlaces(frame, node);
}

// Returns whether the graph works only on integers, apart from the rows and
// positions of images.
bool IsOnlyPlaces(const Frame& frame, const Regions& regions) {
  bool images = false;
  for (int i = 0; i < frame.node_count(); ++i) {
    const absl::string_view role = regions.role(i);
    images |= role == "embedding.places" || role == "embedding.positions";
    if (regions.IsFree(i) ? MakesFloats(frame, i)
                          : regions.pattern(i) != "embedding") {
      return false;
    }
  }
  return images;
}

}  // namespace

std::vector<bool> FindEmbedded(const Frame& frame, const Context& context) {
  std::vector<bool> embedded(frame.graph().slots.size());
  for (int i = 0; i < frame.node_count(); ++i) {
    for (const Frame::Operand& operand : frame.operands(i)) {
      if (!frame.IsFromElsewhere(operand)) continue;
      if (context.IsLeftByEmbedding(*operand.view)) {
        embedded[operand.view->slot] = true;
      }
    }
  }
  return embedded;
}

void AddEmbeddingPieces(const Frame& frame, const std::vector<bool>& embedded,
                        Regions* regions) {
  for (int i = 0; i < frame.node_count(); ++i) {
    if (!regions->IsFree(i) || !MovesRows(frame, i) || !MakesFloats(frame, i)) {
      continue;
    }
    bool any = false, all = true;
    for (const Frame::Operand& operand : frame.operands(i)) {
      if (!IsFloating(operand.view->data_type)) continue;
      const int made = frame.value(operand.value).producer;
      const bool rows = made >= 0 ? regions->pattern(made) == "embedding"
                                  : frame.IsFromElsewhere(operand) &&
                                        embedded[operand.view->slot];
      any |= rows;
      all &=
          rows || (made < 0 && frame.op(i) == "cat" && IsVector(*operand.view));
    }
    if (any && all) {
      regions->Add({"embedding", {{i, "embedding.positions"}}, {"piece"}});
    }
  }
}

void AddPlaces(const Frame& frame, Regions* regions) {
  for (int i = 0; i < frame.node_count(); ++i) {
    if (!regions->IsFree(i) || !WorksOnPlaces(frame, i)) continue;
    Region region{"embedding", {{i, "embedding.places"}}, {"piece"}};
    for (const int before : Upstream(frame, i, [&](int node) {
           return regions->IsFree(node) && IsElementwise(frame, node) &&
                  !MakesFloats(frame, node);
         })) {
      // GCC 12 warns about moving a short string, which push_back() would do.
      Member& member = region.members.emplace_back();
      member.node = before;
      member.role = "embedding.places";
    }
    regions->Add(std::move(region));
  }
  if (!IsOnlyPlaces(frame, *regions)) return;
  for (int i = 0; i < frame.node_count(); ++i) {
    if (!regions->IsFree(i)) continue;
    regions->Add({"embedding", {{i, "embedding.places"}}, {"piece"}});
  }
}

bool HasPatches(const Regions& regions) {
  return absl::c_any_of(regions.all(), [](const Region& region) {
    return region.HasTrait("patches");
  });
}

}  // namespace djinn::semantics
