#include "client_lib/session/recording/graph_recorder.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/srg/canonical.h"
#include "common/srg/proto_codec.h"

namespace djinn {

GraphRecorder& GraphRecorder::Global() {
  static GraphRecorder* const recorder = new GraphRecorder;
  return *recorder;
}

absl::Status GraphRecorder::Begin(int virtual_device) {
  MutexLock lock(&mu_);
  if (virtual_device_.load(std::memory_order_relaxed) != kNone) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "EXPORT_RUNNING",
                     "graphs are being exported already");
  }
  found_.Clear();
  pieces_.clear();
  bytes_ = 0;
  virtual_device_.store(virtual_device, std::memory_order_release);
  return absl::OkStatus();
}

absl::StatusOr<v1::GraphExport> GraphRecorder::End() {
  MutexLock lock(&mu_);
  virtual_device_.store(kNone, std::memory_order_release);
  pieces_.clear();
  v1::GraphExport found = std::exchange(found_, {});
  if (bytes_ <= max_bytes_) return found;
  return MakeError(absl::StatusCode::kResourceExhausted, "EXPORT_TOO_LARGE",
                   absl::StrCat("graphs of more than ", max_bytes_,
                                " bytes: export a part of the program"));
}

void GraphRecorder::Add(v1::Graph graph, v1::GraphNotes notes) {
  const auto decoded = srg::FromProto(graph);
  if (!decoded.ok()) return;  // sessions send valid graphs only
  const std::string fingerprint = srg::Fingerprint(*decoded);
  MutexLock lock(&mu_);
  if (virtual_device_.load(std::memory_order_relaxed) == kNone) return;
  const auto [it, fresh] =
      pieces_.try_emplace(fingerprint, found_.pieces_size());
  if (!fresh) {
    v1::GraphPiece* const piece = found_.mutable_pieces(it->second);
    piece->set_run_count(piece->run_count() + 1);
    return;
  }
  bytes_ += graph.ByteSizeLong() + notes.ByteSizeLong();
  v1::GraphPiece* const piece = found_.add_pieces();
  piece->set_run_count(1);
  piece->set_fingerprint(absl::BytesToHexString(fingerprint));
  // A graph beyond the limit is not kept; End() reports the excess.
  if (bytes_ > max_bytes_) return;
  *piece->mutable_graph() = std::move(graph);
  if (notes.notes_size() > 0) *piece->mutable_notes() = std::move(notes);
}

}  // namespace djinn
