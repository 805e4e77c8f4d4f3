#include "client_lib/session/stream/graph_history.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client_lib/session/model/operator_table.h"

namespace djinn {
namespace {

size_t CommonStart(absl::Span<const Segment::Mark> a,
                   absl::Span<const Segment::Mark> b) {
  const auto same = [](const Segment::Mark& x, const Segment::Mark& y) {
    return x.hash == y.hash;
  };
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end(), same).first -
         a.begin();
}

std::string NameOf(const Segment::Mark& call) {
  return OperatorTable::Global().Get(call.operator_id).FullName();
}

std::string Difference(absl::Span<const Segment::Mark> own,
                       absl::Span<const Segment::Mark> other, size_t same) {
  if (same == own.size() && same == other.size()) {
    return "the same calls, on storages that are shared or created differently";
  }
  if (same == own.size()) {
    return absl::StrCat("ends after ", same, " of its ", other.size(),
                        " calls");
  }
  if (same == other.size()) {
    return absl::StrCat("goes on after its ", same, " calls");
  }
  const bool same_operator = own[same].operator_id == other[same].operator_id;
  return absl::StrCat("call ", same, " is ", NameOf(own[same]),
                      same_operator
                          ? std::string(" with other shapes or arguments")
                          : absl::StrCat(" instead of ", NameOf(other[same])));
}

}  // namespace

std::string GraphHistory::Explain(const Segment& segment, uint64_t graph_id) {
  const absl::Span<const Segment::Mark> calls = segment.calls();
  const Kept* nearest = nullptr;
  size_t same = 0;
  for (const Kept& kept : kept_) {
    const size_t common = CommonStart(calls, kept.calls);
    const bool as_long = kept.calls.size() == calls.size();
    if (nearest != nullptr && (common < same || (common == same && !as_long))) {
      continue;
    }
    nearest = &kept;
    same = common;
  }
  const std::string reason =
      nearest == nullptr
          ? "the first that is looked at"
          : absl::StrCat("unlike graph ", nearest->graph_id, ": ",
                         Difference(calls, nearest->calls, same));
  kept_.push_front({graph_id, {calls.begin(), calls.end()}});
  if (kept_.size() > kMaxKept) kept_.pop_back();
  return reason;
}

}  // namespace djinn
