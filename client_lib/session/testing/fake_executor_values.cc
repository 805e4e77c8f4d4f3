// Handles bytes that come to a fake worker and leave it.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/session/testing/fake_executor.h"
#include "common/base/error.h"
#include "common/hash/content_proof.h"
#include "common/hash/hash.h"
#include "common/srg/proto_codec.h"
#include "common/transport/shared_bytes.h"

namespace djinn {
namespace {

constexpr char kProofKey[] = "0123456789abcdef";

// Appends the view's elements in order, from its first dimension on.
void Gather(const std::string& bytes, const srg::TensorView& view,
            size_t dimension, int64_t element, std::string* out) {
  if (dimension == view.sizes.size()) {
    const int64_t size = srg::ElementSize(view.data_type);
    out->append(bytes, element * size, size);
    return;
  }
  if (dimension + 1 == view.sizes.size() && view.strides[dimension] == 1) {
    const int64_t size = srg::ElementSize(view.data_type);
    out->append(bytes, element * size, view.sizes[dimension] * size);
    return;
  }
  for (int64_t i = 0; i < view.sizes[dimension]; ++i) {
    Gather(bytes, view, dimension + 1, element + i * view.strides[dimension],
           out);
  }
}

}  // namespace

bool FakeExecutor::TakeChunk(uint64_t transfer_id, uint64_t offset,
                             absl::Span<const absl::string_view> pieces) {
  size_t size = 0;
  for (const absl::string_view piece : pieces) size += piece.size();
  if (transfer_id != receiving_ || offset % kBulkChunkBytes != 0 ||
      offset >= received_bulk_.size() ||
      size != std::min(kBulkChunkBytes, received_bulk_.size() - offset) ||
      !received_chunks_.insert(offset).second) {
    Violation(absl::StrCat("bulk for ", transfer_id, " at ", offset));
    return false;
  }
  for (const absl::string_view piece : pieces) {
    received_bulk_.replace(offset, piece.size(), piece.data(), piece.size());
    offset += piece.size();
  }
  return true;
}

void FakeExecutor::TakeProof(const v1::TransferProof& proof) {
  // A stream that was cut may bring the proof again.
  if (proof.transfer_id() != proving_ ||
      proof.mac().size() != kContentMacBytes) {
    Violation(absl::StrCat("proof of ", proof.transfer_id()));
  }
  proof_ = proof.mac();
}

void FakeExecutor::DescribeTransfer(v1::WorkerHello* hello) {
  if (receiving_ == 0) return;
  uint64_t received = 0;
  while (received_chunks_.count(received) > 0) received += kBulkChunkBytes;
  // Chunks beyond a gap come again.
  received_chunks_.erase(received_chunks_.lower_bound(received),
                         received_chunks_.end());
  hello->mutable_transfer()->set_transfer_id(receiving_);
  hello->mutable_transfer()->set_received_bytes(
      std::min<uint64_t>(received, received_bulk_.size()));
}

bool FakeExecutor::CarryInstall(const v1::Ordered& message) {
  const v1::Install& install = message.install();
  if (!install.has_transfer()) {
    FakeStorage& storage = Written(install.storage(), install.base_version());
    storage.poison = 0;
    if (install.has_inline_value()) storage.bytes = install.inline_value();
    if (install.has_content()) {
      storage.bytes = install.content();
      if (storage.bytes.size() <= limits_.inline_bytes() ||
          storage.bytes.size() > kMaxContentBytes) {
        Violation("a content of the wrong size");
      }
    }
    if (install.has_copy()) {
      const auto found = storages_.find(install.copy().storage());
      if (found == storages_.end() ||
          found->second.version != install.copy().version()) {
        Violation(absl::StrCat("copy of storage ", install.copy().storage(),
                               " at version ", install.copy().version()));
      } else {
        storage.bytes = found->second.bytes;
        storage.poison = found->second.poison;
      }
    }
    // The fake worker fetches nothing from others.
    if (install.has_pull()) {
      storage.bytes.assign(install.pull().size_bytes(), 'p');
      storage.poison = script_.fail_next_pull;
      if (!script_.fails_every_pull) script_.fail_next_pull = 0;
      if (storage.poison != 0) {
        v1::ControlResponse response;
        *response.mutable_poisoned() = Detail(storage.poison);
        response.mutable_poisoned()->set_sequence(message.sequence());
        if (!script_.pull_failure.empty()) {
          response.mutable_poisoned()->set_reason(script_.pull_failure);
        }
        Reply(std::move(response));
      }
    }
    if (install.inline_value().size() > limits_.inline_bytes()) {
      Violation("inline value too large");
    }
    return true;
  }
  const v1::Transfer& transfer = install.transfer();
  if (receiving_ == 0) {
    v1::ControlResponse response;
    response.mutable_transfer()->set_transfer_id(transfer.transfer_id());
    if (script_.ask_for_proofs && proving_ != transfer.transfer_id()) {
      if (!transfer.provable()) Violation("a transfer that cannot be proved");
      proving_ = transfer.transfer_id();
      proof_.clear();
      response.mutable_transfer()->mutable_prove()->set_key(kProofKey);
      Reply(std::move(response));
      return false;
    }
    if (script_.ask_for_proofs && proof_.empty()) return false;
    uint64_t used = 0;
    for (const auto& [id, storage] : storages_) used += storage.bytes.size();
    const bool refuse = script_.transfers == FakeScript::Transfers::kRefuse ||
                        used + transfer.size_bytes() > limits_.memory_bytes();
    if (refuse) {
      FillDetail(
          LimitExceeded("SESSION_MEMORY", "session memory",
                        limits_.memory_bytes(), used, transfer.size_bytes()),
          response.mutable_transfer()->mutable_refused());
      response.mutable_transfer()->mutable_refused()->set_error_id(4711);
    } else if (script_.transfers == FakeScript::Transfers::kHeld) {
      response.mutable_transfer()->set_already_held(true);
    } else {
      response.mutable_transfer()->set_send(true);
    }
    const bool wait = response.transfer().has_send();
    if (wait) {
      receiving_ = transfer.transfer_id();
      received_bulk_.assign(transfer.size_bytes(), '\0');
      received_chunks_.clear();
    } else {
      FakeStorage& storage = Written(install.storage(), install.base_version());
      if (!refuse) storage.bytes.resize(transfer.size_bytes());
      // It has no contents to keep.
      if (storage.bytes.empty()) storage.poison = 4711;
    }
    Reply(std::move(response));
    return !wait;
  }
  if (received_chunks_.size() * kBulkChunkBytes < transfer.size_bytes()) {
    return false;
  }
  const ContentHash claimed{transfer.hash_high(), transfer.hash_low()};
  if (!(claimed == HashContent(received_bulk_.data(), received_bulk_.size()))) {
    Violation("wrong content hash");
  }
  if (script_.ask_for_proofs &&
      proof_ != ProveContent(kProofKey, received_bulk_)) {
    Violation("wrong proof");
  }
  FakeStorage& storage = Written(install.storage(), install.base_version());
  storage.poison = 0;
  storage.bytes = std::move(received_bulk_);
  receiving_ = 0;
  return true;
}

void FakeExecutor::CarryRead(const v1::Ordered& message) {
  const v1::Read& read = message.read();
  v1::ControlResponse response;
  if (profiling_) *response.mutable_timing() = script_.timing;
  v1::ReadReply* const reply = response.mutable_read();
  reply->set_sequence(message.sequence());
  const auto found = storages_.find(read.storage());
  absl::StatusOr<srg::TensorView> view = srg::FromProto(read.view());
  if (found == storages_.end() || found->second.version != read.version() ||
      !view.ok()) {
    Violation(absl::StrCat("read of storage ", read.storage(), " version ",
                           read.version()));
    *reply->mutable_error() = Detail(1);
  } else if (found->second.poison != 0) {
    *reply->mutable_error() = Detail(found->second.poison);
  } else {
    std::string value;
    Gather(found->second.bytes, *view, 0, view->storage_offset, &value);
    if (read.hash_only()) {
      reply->set_hash(HashSample(value));
      Reply(std::move(response));
      return;
    }
    if ((read.transfer_id() != 0) != (value.size() > limits_.inline_bytes())) {
      Violation("wrong way for a read");
    }
    if (read.transfer_id() != 0) {
      reply->set_bulk_bytes(value.size());
      respond_(std::move(response), read.transfer_id(),
               std::make_shared<std::string>(std::move(value)));
      return;
    } else {
      reply->set_value(std::move(value));
    }
  }
  Reply(std::move(response));
}

}  // namespace djinn
