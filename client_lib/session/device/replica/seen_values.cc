// Compares what a replay computes with what the program has seen. Of a large
// value, it compares a sample (HashSample()).
#include "client_lib/session/device/replica/seen_values.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client_lib/session/device/replica/replica.h"
#include "client_lib/session/device/replica/replica_state.h"
#include "common/base/error.h"
#include "common/hash/hash.h"

namespace djinn::replica {
namespace {

using Node = Lineage::Node;

// Values that are compared after a replay, for each message that wrote them.
constexpr size_t kMostSeen = 64;
// Roughly the bytes that the note of such a value takes.
constexpr uint64_t kSeenBytes = 256;

absl::Status Diverged(const ConnectionState& c, absl::string_view what)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(c.mu) {
  return MakeError(
      absl::StatusCode::kDataLoss, "REPLAY_DIVERGED",
      absl::StrCat(
          "worker ", c.lease.worker_id(), " computed ", what,
          " than the lost worker did, and the program has used the earlier "
          "value"),
      {{"worker", c.lease.worker_id()}});
}

// Returns a hash of what the metadata says, whatever message it answers.
ContentHash HashOf(const v1::RunMetadata& metadata) {
  std::string text;
  for (int i = 0; i < metadata.results_size(); ++i) {
    absl::StrAppend(&text, metadata.storage_bytes(i), ":",
                    metadata.results(i).SerializeAsString(), ";");
  }
  return HashContent(text.data(), text.size());
}

// Does as FillDetail(), and keeps the id by which errors are the same.
void FillRootError(const absl::Status& error, v1::ErrorDetail* detail) {
  FillDetail(error, detail);
  detail->set_worker_id(ErrorMetadataValue(error, "worker"));
  uint64_t id = 0;
  if (absl::SimpleHexAtoi(ErrorMetadataValue(error, "error_id"), &id)) {
    detail->set_error_id(id);
  }
}

}  // namespace

void TaintByRootError(State& r, Node* node, const absl::Status& error) {
  absl::Status root = error;
  if (ErrorMetadataValue(error, "error_id").empty()) {
    const std::string reason = ErrorReason(error);
    root = MakeError(
        error.code(), reason.empty() ? "INTERNAL" : reason, error.message(),
        {{"error_id",
          absl::StrCat(absl::Hex(r.context->options.random->NonZero64()))},
         {"worker", ErrorMetadataValue(error, "worker")}});
  }
  r.connection.lineage->Taint(node, root);
  // Added before anything can wake because of the error. An error that another
  // device had first counts once.
  if (!r.context->root_errors.Knows(root)) {
    r.context->root_errors.Add(r.index, root);
  }
}

bool TakeKept(State& r, v1::ReadReply* reply) {
  ConnectionState& c = r.connection;
  const uint64_t sequence = reply->sequence();
  if (auto found = c.recovery.checks.extract(sequence); !found.empty()) {
    const RecoveryState::Check& check = found.mapped();
    // A value that is lost already is lost for one reason.
    if (check.node->error.ok() && !reply->has_error() &&
        reply->hash() != check.hash) {
      TaintByRootError(r, check.node, Diverged(c, "another value"));
      c.recovery.diverged = true;
    }
    c.lineage->Release(check.node);
    return true;
  }
  if (c.lineage == nullptr) return false;
  const Node* const read = c.lineage->FindPending(sequence);
  if (read != nullptr && !read->error.ok()) {
    FillRootError(read->error, reply->mutable_error());
  } else if (reply->has_value()) {
    NoteSeen(r, sequence, reply->value());
  }
  return false;
}

void NoteSeen(State& r, uint64_t sequence, absl::string_view value) {
  ConnectionState& c = r.connection;
  if (c.lineage == nullptr) return;
  const Node* const read = c.lineage->FindPending(sequence);
  Node* const producer = c.lineage->ReadFrom(sequence);
  if (producer == nullptr || producer->anchor || KeptOf(*producer) == nullptr ||
      KeptOf(*read) == nullptr || KeptOf(*read)->request == nullptr) {
    return;
  }
  const KeptMessage& kept = *KeptOf(*producer);
  // An upload is sent again as it was.
  if (kept.request != nullptr && kept.request->ordered().has_install()) return;
  // Another batch may have other last bits.
  if (kept.run != nullptr && kept.run->mode.fast) return;
  const v1::Read& asked = KeptOf(*read)->request->ordered().read();
  const bool grows = !KeptOf(*producer)->has_extras();
  std::vector<KeptMessage::Seen>& seen =
      KeptOf(*producer)->mutable_extras().seen;
  const bool known =
      std::any_of(seen.begin(), seen.end(), [&](const auto& before) {
        return before.read.storage() == asked.storage() &&
               before.read.view().SerializeAsString() ==
                   asked.view().SerializeAsString();
      });
  if (known || seen.size() >= kMostSeen) return;
  seen.push_back({asked, HashSample(value)});
  seen.back().read.clear_transfer_id();
  seen.back().read.set_hash_only(true);
  c.lineage->Charge(producer,
                    kSeenBytes + (grows ? sizeof(KeptMessage::Extras) : 0));
}

void TakeKept(State& r, v1::RunMetadata* reply) {
  ConnectionState& c = r.connection;
  if (c.lineage == nullptr) return;
  if (const auto found = c.recovery.metadata_checks.extract(reply->sequence());
      !found.empty()) {
    Node* const again = found.mapped();
    if (again->error.ok() && !reply->has_error() &&
        KeptOf(*again)->extras().metadata != HashOf(*reply)) {
      TaintByRootError(r, again, Diverged(c, "results of another size"));
      c.recovery.diverged = true;
    }
    c.lineage->Release(again);
    return;
  }
  Node* const run = c.lineage->FindPending(reply->sequence());
  if (run != nullptr && !run->error.ok()) {
    reply->clear_results();
    reply->clear_storage_bytes();
    FillRootError(run->error, reply->mutable_error());
  } else if (run != nullptr && KeptOf(*run) != nullptr && !reply->has_error()) {
    const bool grows = !KeptOf(*run)->has_extras();
    KeptOf(*run)->mutable_extras().metadata = HashOf(*reply);
    if (grows) c.lineage->Charge(run, sizeof(KeptMessage::Extras));
  }
  c.lineage->Answered(reply->sequence());
}

}  // namespace djinn::replica
