#include "gpu_worker/supervisor/contents/content_service.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "gpu_worker/store/disk_report.h"
#include "gpu_worker/supervisor/contents/connection.h"

namespace djinn::worker {
namespace {

constexpr size_t kMaxContents = 16384;

}  // namespace

ContentService::ContentService(Options options, std::unique_ptr<DiskStore> disk,
                               Clock* clock, RandomSource* random)
    : options_(std::move(options)),
      max_loans_(std::max<size_t>(
          options_.descriptors / 2 / std::max<size_t>(options_.executors, 1),
          1)),
      clock_(clock),
      cache_(std::clamp<size_t>(options_.descriptors / 2, 1, kMaxContents),
             clock),
      // The challenges of one executor displace none of another's.
      proofs_(&memory_, random, kMaxLooks * (options_.executors + 1)),
      disk_(std::move(disk)) {
  proofs_.Start();
  reaper_ = std::thread([this] { RunReaper(); });
  if (disk_ == nullptr) return;
  disk_->Bind(&memory_, &cache_);
  disk_->Start();
}

ContentService::~ContentService() {
  if (disk_ != nullptr) disk_->Stop();
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.Signal();
  }
  reaper_.join();
}

std::shared_ptr<void> ContentService::Serve(uint64_t executor,
                                            Descriptor socket) {
  return std::make_shared<Connection>(this, executor, std::move(socket));
}

void ContentService::SetSharing(const std::vector<std::string>& tenants) {
  if (options_.kept_bytes > 0) {
    cache_.SetSharing({tenants.begin(), tenants.end()});
  }
}

void ContentService::Trim() { cache_.KeepIdle(options_.kept_bytes); }

void ContentService::TakeBack(std::vector<std::shared_ptr<Buffer>> buffers) {
  MutexLock lock(&mu_);
  absl::c_move(buffers, std::back_inserter(taken_back_));
  changed_.Signal();
}

void ContentService::RunReaper() {
  for (;;) {
    std::vector<std::shared_ptr<Buffer>> buffers;
    {
      MutexLock lock(&mu_);
      while (taken_back_.empty() && !stopping_) changed_.Wait(&mu_);
      if (taken_back_.empty()) return;
      buffers.swap(taken_back_);
    }
    buffers.clear();
    Trim();
  }
}

void ContentService::Describe(size_t most, v1::WorkerState* state) const {
  std::vector<ContentCache::Content> held = cache_.List();
  if (disk_ != nullptr) {
    *state->mutable_disk() = DescribeDisk(*disk_->stats());
    for (ContentCache::Content& content : disk_->List()) {
      held.push_back(std::move(content));
    }
  }
  using Key = std::tuple<absl::string_view, ContentHash, uint64_t>;
  absl::flat_hash_set<Key> named;
  for (const v1::HeldContent& content : state->contents()) {
    named.insert({content.tenant(),
                  {content.hash_high(), content.hash_low()},
                  content.size_bytes()});
  }
  size_t added = 0;
  for (const ContentCache::Content& content : held) {
    if (added == most) return;
    if (!named.insert({content.tenant, content.hash, content.size_bytes})
             .second) {
      continue;
    }
    ++added;
    v1::HeldContent* const name = state->add_contents();
    name->set_tenant(content.tenant);
    name->set_hash_high(content.hash.high);
    name->set_hash_low(content.hash.low);
    name->set_size_bytes(content.size_bytes);
  }
}

void ContentService::Collect(Exposition* out) const {
  if (disk_ != nullptr) CollectDisk(*disk_->stats(), out);
  const ContentCache::Stats cache = cache_.stats();
  out->Gauge("djinn_worker_kept_content_bytes",
             "Contents in the supervisor's memory: those that executors were "
             "lent, and those that it keeps besides.",
             static_cast<double>(cache.bytes - cache.idle_bytes),
             {{"use", "lent"}});
  out->Gauge("djinn_worker_kept_content_bytes",
             "Contents in the supervisor's memory: those that executors were "
             "lent, and those that it keeps besides.",
             static_cast<double>(cache.idle_bytes), {{"use", "kept"}});
  out->Counter("djinn_worker_content_adoptions_total",
               "Contents that an executor was lent because its client proved "
               "to have another tenant's bytes.",
               static_cast<double>(cache.adoptions));
}

void ContentService::CollectCache(Exposition* out) const {
  if (disk_ == nullptr) return;
  CollectDiskCache(*disk_->stats(), options_.worker_id, out);
}

}  // namespace djinn::worker
