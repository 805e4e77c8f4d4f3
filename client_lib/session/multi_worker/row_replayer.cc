#include "client_lib/session/multi_worker/row_replayer.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/session/model/call_sites.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "common/srg/proto_codec.h"

namespace djinn {
namespace {

// Limit on the graphs whose plans are remembered, by SharingKey(), and on
// unanswered questions to the coordinator.
constexpr size_t kMaxSharings = 64;
constexpr size_t kMaxQuestions = 16;

absl::Status Stale(absl::string_view why) {
  return MakeError(absl::StatusCode::kFailedPrecondition, "STALE_RECORDING",
                   why);
}

std::string Describe(const v1::StageAnswer& answer) {
  const v1::BatchPlan& plan = answer.batch();
  if (answer.has_plan()) {
    return absl::StrCat(plan.parts_size(), " micro-batches of ",
                        plan.parts(0).rows(), " rows at most");
  }
  std::string text;
  for (const v1::BatchPlan::Part& part : plan.parts()) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", part.rows(), " rows on ",
                    part.worker_id());
  }
  return text;
}

}  // namespace

absl::Status RowReplayer::FindSharing(CapturedGraph* captured_graph) {
  DJINN_RETURN_IF_ERROR(CheckShareable(*captured_graph));
  {
    MutexLock lock(&mu_);
    if (sharings_.size() >= kMaxSharings) sharings_.clear();
    std::shared_ptr<RowSharing>& sharing =
        sharings_[SharingKey(*captured_graph)];
    if (sharing == nullptr) sharing = std::make_shared<RowSharing>();
    captured_graph->sharing = sharing;
  }
  if (captured_graph->sharing->Asks()) AskForShares(*captured_graph);
  return captured_graph->sharing->shares().status();
}

void RowReplayer::AskForShares(const CapturedGraph& captured_graph) {
  const CapturedPart& part = captured_graph.parts[0];
  v1::StageRequest request;
  request.set_virtual_device(static_cast<uint32_t>(workers_->index()));
  *request.mutable_recording() = SlotsOf(captured_graph);
  request.set_number(plans_->NextQuestion());
  // Leaves out the captured storages, which keep the device alive.
  auto asked = std::make_shared<CapturedGraph>(captured_graph);
  asked->kept.clear();
  {
    MutexLock lock(&mu_);
    questions_.emplace(request.number(), std::move(asked));
    if (questions_.size() > kMaxQuestions) {
      questions_.erase(questions_.begin());
    }
  }
  context_->link->SendGraph(srg::ToProto(part.graph), NotesOf(part.sites),
                            std::move(request));
}

void RowReplayer::OnAnswer(const v1::StageAnswer& answer) {
  std::shared_ptr<const CapturedGraph> captured_graph;
  {
    MutexLock lock(&mu_);
    const auto question = questions_.find(answer.number());
    if (question == questions_.end()) return;
    captured_graph = std::move(question->second);
    questions_.erase(question);
  }
  auto shares = MakeShares(*captured_graph, answer, workers_->count());
  const std::string graph = answer.batch().fingerprint().substr(0, 12);
  if (shares.ok()) {
    log::Info((*shares)->stages.empty()
                  ? "a captured graph's rows are shared out"
                  : "a captured graph's rows go through stages",
              {{"device", workers_->index()},
               {"graph", graph},
               {"parts", Describe(answer)}});
  } else {
    log::Info("a captured graph's rows stay together",
              {{"device", workers_->index()},
               {"graph", graph},
               {"why", shares.status().message()}});
  }
  captured_graph->sharing->Answer(std::move(shares));
}

absl::StatusOr<std::vector<StoragePtr>> RowReplayer::Replay(
    uint32_t lane, const std::shared_ptr<const CapturedGraph>& captured_graph,
    const std::shared_ptr<const RowShares>& shares,
    absl::Span<RemoteStorage* const> given) {
  Execution replay{lane, captured_graph, shares, given, {}};
  DJINN_RETURN_IF_ERROR(Check(replay));
  rounds_->Begin();
  auto outputs =
      shares->stages.empty() ? ExecuteParts(&replay) : ExecuteInStages(&replay);
  for (const auto& [member, storage] : replay.passing) {
    workers_->at(member).MarkDead(storage.get());
  }
  return outputs;
}

absl::Status RowReplayer::Check(const Execution& replay) {
  const CapturedGraph& captured_graph = *replay.captured_graph;
  if (replay.given.size() != captured_graph.given) {
    return MakeError(absl::StatusCode::kInternal, "GIVEN_STORAGES",
                     "a captured graph is given another number of storages");
  }
  for (const RemoteStorage* const storage : replay.given) {
    if (storage->device().get() != owner_) {
      return Stale("an argument is on another virtual device");
    }
  }
  for (const StoragePtr& storage : captured_graph.kept) {
    if (storage->device().get() != owner_ || storage->dead()) {
      return Stale("a tensor that it used is no longer there");
    }
  }
  return replay.shares->stages.empty() ? CheckRoomForParts(replay)
                                       : CheckRoomForStages(replay);
}

absl::Status RowReplayer::CheckRoomForParts(const Execution& replay) {
  const uint64_t output_bytes = replay.OutputBytes();
  for (const RowShares::Part& part : replay.shares->parts) {
    uint64_t takes = part.member == kHome ? 2 * output_bytes : 0;
    for (const StoragePtr& storage : replay.captured_graph->kept) {
      takes += table_->LackedBytes(storage.get(), part.member);
    }
    for (size_t i = 0; i < replay.given.size(); ++i) {
      const uint64_t row_bytes = replay.shares->given_row_bytes[i];
      takes += row_bytes == 0
                   ? table_->LackedBytes(replay.given[i], part.member)
                   : row_bytes * part.rows;
    }
    for (const uint64_t row_bytes : replay.shares->output_row_bytes) {
      takes += row_bytes * part.rows;
    }
    if (workers_->RoomLeft(part.member) < static_cast<int64_t>(takes)) {
      return Stale("a worker has no room for its part");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<StoragePtr>> RowReplayer::ExecuteParts(
    Execution* replay) {
  const RowShares& shares = *replay->shares;
  // All rows leave before any replica begins with its own rows, so that rows
  // for other replicas arrive early.
  std::vector<std::vector<RemoteStorage*>> given(shares.parts.size());
  for (size_t i = shares.parts.size(); i-- > 0;) {
    DJINN_ASSIGN_OR_RETURN(given[i], BringGiven(replay, shares.parts[i]));
  }
  std::vector<std::vector<RowsAt>> made(shares.parts.size());
  for (size_t i = 0; i < shares.parts.size(); ++i) {
    const RowShares::Part& part = shares.parts[i];
    std::vector<StoragePtr> outputs;
    for (const uint64_t row_bytes : shares.output_row_bytes) {
      outputs.push_back(table_->NewPart(row_bytes * part.rows));
      made[i].push_back(
          {part.member, replay->Pass(part.member, outputs.back())});
    }
    std::vector<RemoteStorage*> kept;
    for (const StoragePtr& storage : replay->captured_graph->kept) {
      kept.push_back(table_->CopyAt(storage.get(), part.member));
    }
    // The program's calls count once, however many replicas execute them.
    const size_t calls =
        i == 0 ? replay->captured_graph->parts[0].graph.nodes.size() : 0;
    DJINN_RETURN_IF_ERROR(workers_->at(part.member)
                              .ReplayShare(replay->lane,
                                           {replay->captured_graph,
                                            std::shared_ptr<const SizedGraph>(
                                                replay->shares, &shares.graph),
                                            shares.SizeOf(part.rows), calls},
                                           {given[i], kept, outputs}));
    // A storage that nothing had written is zero-filled there.
    for (const StoragePtr& storage : replay->captured_graph->kept) {
      table_->Count(storage.get(), part.member);
    }
    for (size_t k = 0; k < replay->given.size(); ++k) {
      if (shares.given_row_bytes[k] == 0)
        table_->Count(replay->given[k], part.member);
    }
  }
  return PutTogether(replay, made);
}

absl::StatusOr<std::vector<StoragePtr>> RowReplayer::PutTogether(
    Execution* replay, absl::Span<const std::vector<RowsAt>> made) {
  const RowShares& shares = *replay->shares;
  std::vector<StoragePtr> outputs;
  for (const uint64_t bytes : replay->captured_graph->output_bytes) {
    outputs.push_back(owner_->NewStorage(bytes));
  }
  for (size_t i = 0; i < shares.parts.size(); ++i) {
    const RowShares::Part& part = shares.parts[i];
    for (size_t k = 0; k < outputs.size(); ++k) {
      const uint64_t row_bytes = shares.output_row_bytes[k];
      DJINN_ASSIGN_OR_RETURN(
          RemoteStorage* const rows,
          Send(replay, made[i][k].storage, made[i][k].member, kHome));
      DJINN_RETURN_IF_ERROR(CopyBytes(
          replay->lane, kHome, {rows, 0},
          {table_->CopyAt(outputs[k].get(), kHome), part.first * row_bytes},
          part.rows * row_bytes));
    }
  }
  table_->set_last(kHome);
  for (const StoragePtr& output : outputs) {
    DJINN_RETURN_IF_ERROR(table_->Wrote(replay->lane, output.get(), kHome));
  }
  return outputs;
}

absl::StatusOr<std::vector<RemoteStorage*>> RowReplayer::BringGiven(
    Execution* replay, const RowShares::Part& part) {
  for (const StoragePtr& storage : replay->captured_graph->kept) {
    DJINN_RETURN_IF_ERROR(
        mover_->BringWhole(replay->lane, storage.get(), part.member));
  }
  std::vector<RemoteStorage*> there;
  for (size_t i = 0; i < replay->given.size(); ++i) {
    DJINN_ASSIGN_OR_RETURN(there.emplace_back(),
                           BringOneGiven(replay, i, part));
  }
  return there;
}

absl::StatusOr<RemoteStorage*> RowReplayer::BringOneGiven(
    Execution* replay, size_t index, const RowShares::Part& part) {
  RemoteStorage* const storage = replay->given[index];
  const uint64_t row_bytes = replay->shares->given_row_bytes[index];
  if (row_bytes > 0) return BringRows(replay, storage, part, row_bytes);
  DJINN_RETURN_IF_ERROR(mover_->BringWhole(replay->lane, storage, part.member));
  return table_->CopyAt(storage, part.member);
}

absl::StatusOr<RemoteStorage*> RowReplayer::BringRows(
    Execution* replay, RemoteStorage* storage, const RowShares::Part& part,
    uint64_t row_bytes) {
  const StorageCopies& copies = table_->CopiesOf(storage);
  const uint64_t bytes = part.rows * row_bytes;
  // The storage is zero-filled when it is used.
  if (copies.holders == 0)
    return replay->Pass(part.member, table_->NewPart(bytes));
  if (copies.IsUnsure(part.member)) {
    DJINN_RETURN_IF_ERROR(mover_->MakeSure(replay->lane, storage, part.member));
  }
  const bool there = copies.Holds(part.member);
  const int from = there ? part.member : copies.owner;
  if (there && part.first == 0) return table_->CopyAt(storage, from);
  RemoteStorage* const rows = replay->Pass(from, table_->NewPart(bytes));
  DJINN_RETURN_IF_ERROR(
      CopyBytes(replay->lane, from,
                {table_->CopyAt(storage, from), part.first * row_bytes},
                {rows, 0}, bytes));
  return Send(replay, rows, from, part.member);
}

absl::StatusOr<RemoteStorage*> RowReplayer::Send(Execution* replay,
                                                 RemoteStorage* storage,
                                                 int from, int to,
                                                 double remaining_seconds) {
  if (from == to) return storage;
  // A storage without bytes is the same everywhere.
  if (storage->size_bytes() == 0) return replay->Pass(to, table_->NewPart(0));
  RemoteStorage* const there =
      replay->Pass(to, table_->NewPart(storage->size_bytes()));
  DJINN_RETURN_IF_ERROR(
      mover_->Send(replay->lane, storage, from, there, to, remaining_seconds));
  return there;
}

absl::Status RowReplayer::CopyBytes(uint32_t lane, int member,
                                    const BytesAt& from, const BytesAt& to,
                                    uint64_t bytes) {
  const auto size = static_cast<int64_t>(bytes);
  const int64_t stride = 1;
  Call call;
  call.Begin(*context_->options.copy_operator);
  const auto add = [&](const BytesAt& at, uint8_t access) {
    Operand operand;
    operand.storage = at.storage;
    operand.access = access;
    operand.data_type = srg::DataType::kUint8;
    operand.sizes = absl::MakeConstSpan(&size, 1);
    operand.strides = absl::MakeConstSpan(&stride, 1);
    operand.storage_offset = static_cast<int64_t>(at.offset);
    call.AddTensor(operand);
  };
  add(to, kWrites);
  add(from, kReads);
  call.AddBoolean(false);
  return workers_->at(member).Record(lane, &call);
}

}  // namespace djinn
