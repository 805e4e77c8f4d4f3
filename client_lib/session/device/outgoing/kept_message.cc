#include "client_lib/session/device/outgoing/kept_message.h"

namespace djinn {

uint64_t SizeOf(const v1::Install& install) {
  switch (install.source_case()) {
    case v1::Install::kInlineValue:
      return install.inline_value().size();
    case v1::Install::kContent:
      return install.content().size();
    case v1::Install::kTransfer:
      return install.transfer().size_bytes();
    case v1::Install::kPull:
      return install.pull().size_bytes();
    default:
      return 0;  // a generator's seed
  }
}

std::shared_ptr<const v1::ControlRequest> HashFirst(const v1::Install& install,
                                                    const ContentHash& hash,
                                                    uint64_t size_bytes) {
  auto request = std::make_shared<v1::ControlRequest>();
  v1::Install* const asks = request->mutable_ordered()->mutable_install();
  asks->set_storage(install.storage());
  asks->set_base_version(install.base_version());
  v1::Transfer* const transfer = asks->mutable_transfer();
  transfer->set_size_bytes(size_bytes);
  transfer->set_hash_high(hash.high);
  transfer->set_hash_low(hash.low);
  return request;
}

const KeptMessage::Extras& KeptMessage::extras() const {
  static const Extras* const none = new Extras;
  return extras_ == nullptr ? *none : *extras_;
}

KeptMessage::Extras& KeptMessage::mutable_extras() {
  if (extras_ == nullptr) extras_ = std::make_unique<Extras>();
  return *extras_;
}

bool KeptMessage::has_bytes() const {
  return request == nullptr || !request->ordered().install().has_transfer() ||
         extras().source.any();
}

uint64_t KeptMessage::Shrink() {
  if (const uint64_t bytes = extras().source.memory_bytes(); bytes > 0) {
    mutable_extras().source = {};
    return bytes;
  }
  if (request == nullptr || !request->ordered().install().has_content()) {
    return 0;
  }
  const v1::Install& install = request->ordered().install();
  const std::string& content = install.content();
  const uint64_t bytes = content.size();
  request = HashFirst(install, HashContent(content.data(), bytes), bytes);
  return bytes;
}

namespace {

// Returns the bytes that a fetched copy takes here, or at its source's worker.
uint64_t BytesOf(const KeptCopy& copy, const v1::Install& fetch) {
  const UploadOfCopy& upload = copy.upload;
  if (upload.request == nullptr) return SizeOf(fetch);
  return upload.request->ByteSizeLong() + upload.source.memory_bytes();
}

}  // namespace

uint64_t Keepsake::Bytes() const {
  if (message == nullptr) return 0;
  uint64_t bytes = sizeof(KeptMessage);
  const KeptMessage::Extras& extras = message->extras();
  if (message->has_extras()) {
    bytes += sizeof(extras) + extras.sites.size() * 4;
    bytes += extras.source.memory_bytes();
    if (extras.copy != nullptr) {
      bytes += BytesOf(*extras.copy, message->request->ordered().install());
    }
  }
  if (message->request != nullptr) {
    bytes += sizeof(v1::ControlRequest) + message->request->ByteSizeLong();
  }
  // Besides this message, the table of graphs may own a run, and besides the
  // run its definition. Later messages that share them do not count them again.
  if (const KeptRun* const run = message->run.get();
      run != nullptr && message->run.use_count() <= 2) {
    bytes += sizeof(KeptRun) + run->final_slots.size() * 4 +
             run->floats.size() * 8 +
             run->scalar_tensors.size() * sizeof(std::string);
    if (run->graph.use_count() <= 2) bytes += run->graph->message.size();
  }
  return bytes;
}

}  // namespace djinn
